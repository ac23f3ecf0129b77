"""Plays kubelet: pods as processes, claims as folders, ConfigMaps and Secrets as files and variables."""

"""Manifests and their lists as PyIceberg's records."""

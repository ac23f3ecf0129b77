"""Kinds of Kubernetes itself: the few checks that catch what operators, drivers and people get wrong. Pure."""

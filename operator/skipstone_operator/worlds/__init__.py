"""Worlds: the frozen inputs of every decision, and the facts read out of Kubernetes objects.

Reconcilers gather them; deciders judge them. Nothing here talks to anybody.
"""

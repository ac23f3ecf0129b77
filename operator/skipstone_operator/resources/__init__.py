"""Typed spec and status of every kind: the one source of crds/, of the field reference and of re-validation.

Reconcilers and manifests import from here; nothing in this room talks to a cluster, reads a clock or knows kopf.
Start at ``kinds.parse`` and ``kinds.KINDS``.
"""

"""Kept drivers in the spec and the status of a Warehouse.

Imported by the Warehouse. Must not know manifests.
"""

"""What a Warehouse asks of its planning server, and what its status tells of it.

Imported by the Warehouse, by reconcilers and by the CRD generator. Must not know manifests.
"""

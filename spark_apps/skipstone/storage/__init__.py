"""Where everything of a Warehouse is that is not a file of a table: sources, pins, records of runs, scratch.

One small port (``port``) with two implementations: a volume that is mounted, and an object store.
"""

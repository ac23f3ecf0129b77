"""Files in: list, pin and read the sources of loads and merges as typed Spark frames.

Called by the load and the merge run. Knows no table but its schema, and commits nothing.
"""

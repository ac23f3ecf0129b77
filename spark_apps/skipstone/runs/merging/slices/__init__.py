"""Slices of a source: by which ranges of keys it is written down, and where."""

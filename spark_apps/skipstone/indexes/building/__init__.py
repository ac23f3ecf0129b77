"""Builds indexes: the rows of data files become sorted entries, committed with what they cover."""

"""Loads of the mode Register: files of a lake become files of a table where they are."""

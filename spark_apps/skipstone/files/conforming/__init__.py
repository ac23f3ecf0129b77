"""Rows as the columns of a data file: types, and texts that stay in dictionaries."""

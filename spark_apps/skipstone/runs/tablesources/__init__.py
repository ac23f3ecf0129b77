"""Loads and merges whose source is a table, or laid out as one: which rows and files, once for all attempts."""

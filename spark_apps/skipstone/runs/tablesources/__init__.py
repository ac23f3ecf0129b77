"""Loads and merges whose source is a table: which rows, once for all attempts, and their way into files of the run."""

"""The rows that equality deletes take, found by the keys of the delete files."""

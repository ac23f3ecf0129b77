"""The changes of a table between two snapshots, row by row and by key."""

"""Which kinds are served, the columns that are printed of each, and Events, which two groups serve."""

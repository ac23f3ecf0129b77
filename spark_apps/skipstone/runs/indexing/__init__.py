"""Files of a table enter its indexes: in a reindex, and in the runs that committed them."""

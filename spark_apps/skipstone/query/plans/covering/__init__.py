"""Joins by the keys of covering indexes: rows come bucket by bucket from an index, the others are shuffled to them."""

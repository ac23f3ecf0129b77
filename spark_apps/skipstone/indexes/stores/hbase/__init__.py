"""Entries of an index in HBase: pages of hashed keys, which prove themselves that nothing of them is lost."""

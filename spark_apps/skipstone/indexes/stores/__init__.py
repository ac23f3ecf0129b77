"""Where the entries of an index are: in its table, or in a store beside the catalog, behind one port."""

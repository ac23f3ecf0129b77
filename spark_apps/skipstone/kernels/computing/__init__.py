"""What clauses compute: expressions on Arrow columns, and the casts in them."""

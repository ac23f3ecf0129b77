"""The rules of merges: the plan of one, its clauses, columns that it adds, and intervals of keys."""

"""The rules of indexes: identity, segments and coverage, snapshots, and whether using an index pays."""

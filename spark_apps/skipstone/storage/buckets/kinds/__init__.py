"""A module for each kind of object storage: ``buckets.kind`` finds it because it is here."""

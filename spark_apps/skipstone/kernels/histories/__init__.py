"""Several changes of one key: found in the slices of the source, and applied one after the other."""

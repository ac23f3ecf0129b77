"""The demonstration: real flights loaded, indexed, merged and verified on a cluster."""

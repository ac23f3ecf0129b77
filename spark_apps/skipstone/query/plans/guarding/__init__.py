"""Conditions that Iceberg must not prune files by, as it would lose rows that match."""

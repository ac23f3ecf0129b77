"""Parquet and ORC as sources: files that carry their types."""

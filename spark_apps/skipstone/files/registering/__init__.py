"""Parquet files of other writers as data files of a table: their columns, types, partitions and statistics."""

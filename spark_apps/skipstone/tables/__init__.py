"""Iceberg in and out: catalogs, schemas, file sets, commits. Knows no run, no Spark and no index."""

"""Iceberg in and out: catalogs, schemas, file sets, commits. Knows no run, no Spark and no index."""

from skipstone.tables.exactdoubles import read_doubles_exactly

read_doubles_exactly()

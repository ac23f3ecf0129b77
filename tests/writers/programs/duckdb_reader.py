"""DuckDB reads a table without a catalog: ``python duckdb_reader.py METADATA TARGET`` writes its rows as Parquet."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import duckdb

METADATA, TARGET = sys.argv[1:]


def connect() -> duckdb.DuckDBPyConnection:
    """A database with the extensions that packages brought."""
    made = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        (folder,) = spec.submodule_search_locations
        (path,) = Path(folder).rglob("*.duckdb_extension")
        made.execute(f"load '{path}'")
    return made


connect().execute(f"copy (select * from iceberg_scan('{METADATA}')) to '{TARGET}' (format parquet)")

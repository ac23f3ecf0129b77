"""DuckDB on rows in memory: one database for the whole process, because making one takes ten times as long as a query.

Used wherever tests ask DuckDB, those of tests/unit included.
"""

from __future__ import annotations

from functools import cache

import duckdb


def connection() -> duckdb.DuckDBPyConnection:
    """A connection in UTC, to be closed: what is registered in it, and its temporary tables, nobody else sees."""
    return _database().cursor()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("set global TimeZone = 'UTC'")
    made.execute("set threads = 1")  # so few rows
    return made

"""What the table must hold: a DuckDB replay of the monthly files and of the feed, and how two tables are compared.

Pure DuckDB on files; knows nothing of Skipstone, Iceberg or Spark, so that it can serve as the second engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from demo.data import COLUMNS, FEED, KEY, column_types

HASH_BITS = 64


@dataclass(frozen=True, kw_only=True)
class ColumnPrint:
    """One column's fingerprint: rows that hold a value, rows that hold none, and a hash that ignores row order."""

    name: str
    values: int
    nulls: int
    hash: int


def open_replay(
    root: Path, *, months: tuple[int, ...] = tuple(range(1, 13)), feed: bool = True
) -> duckdb.DuckDBPyConnection:
    """A connection with the table ``expected``: the months loaded and, when ``feed``, the changes applied."""
    connection = duckdb.connect()
    paths = [str(root / f"landing/2013-{month:02d}.csv") for month in months]
    connection.execute(
        f"CREATE TABLE expected AS SELECT * FROM read_csv({paths}, header=true, nullstr='NA', columns={column_types()})"
    )
    if feed:
        apply_feed(connection, root / FEED)
    return connection


def apply_feed(connection: duckdb.DuckDBPyConnection, feed: Path) -> None:
    """Apply the feed to ``expected``: per key the change with the greatest ``seq`` counts."""
    types = "{'op': 'VARCHAR', 'seq': 'BIGINT', " + column_types()[1:]
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE changes AS SELECT *"
        f" FROM read_csv('{feed}', header=true, nullstr='NA', columns={types})"
        f" QUALIFY row_number() OVER (PARTITION BY {', '.join(KEY)} ORDER BY seq DESC) = 1"
    )
    same_key = " AND ".join(f"t.{name} = c.{name}" for name in KEY)
    columns = ", ".join(COLUMNS)
    connection.execute(f"CREATE TEMP TABLE written AS SELECT {columns} FROM changes c WHERE op <> 'D'")
    connection.execute(f"DELETE FROM expected t WHERE EXISTS (SELECT 1 FROM changes c WHERE {same_key})")
    connection.execute(f"INSERT INTO expected SELECT {columns} FROM written")


def fingerprint(connection: duckdb.DuckDBPyConnection, relation: str) -> tuple[ColumnPrint, ...]:
    """Fingerprints of every column of ``relation`` and, as column ``*``, of its whole rows."""
    prints = [column_print(connection, relation, name, name) for name in COLUMNS]
    whole = "concat_ws('|', " + ", ".join(f"coalesce({name}::VARCHAR, '∅')" for name in COLUMNS) + ")"
    return (*prints, column_print(connection, relation, "*", whole))


def column_print(connection: duckdb.DuckDBPyConnection, relation: str, name: str, expression: str) -> ColumnPrint:
    """Fingerprint of one expression: counts, and the sum of the values' 64-bit hashes."""
    query = (
        f"SELECT count({expression}), count(*) - count({expression}), coalesce(sum(hash(({expression})::VARCHAR)), 0)"
    )
    row: Any = connection.execute(f"{query} FROM {relation}").fetchall()[0]
    return ColumnPrint(name=name, values=int(row[0]), nulls=int(row[1]), hash=int(row[2]) % 2**HASH_BITS)


def differences(expected: tuple[ColumnPrint, ...], actual: tuple[ColumnPrint, ...]) -> tuple[str, ...]:
    """One sentence per column that differs; empty when the two are equal."""
    return tuple(
        f"column {a.name}: expected {a.values} values, {a.nulls} nulls, hash {a.hash:016x};"
        f" found {b.values} values, {b.nulls} nulls, hash {b.hash:016x}"
        for a, b in zip(expected, actual, strict=True)
        if a != b
    )

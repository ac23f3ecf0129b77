"""Thirty conditions on the rows of a table, and the rows that satisfy each, as DuckDB finds them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa

from tests.spark.duck import connection

COUNT = 30


def conditions(rows: pa.Table) -> list[str]:
    """Conditions that Skipstone, DuckDB and Spark write alike, on every column in turn."""
    each = [list(_on_column(field.name, _values(rows.column(field.name)))) for field in rows.schema]
    mixed = [one for group in itertools.zip_longest(*filter(None, each)) for one in group if one is not None]
    pairs = [f"{one} and {other}" for one, other in zip(mixed[::2], mixed[3::2], strict=False)]
    return (mixed[: COUNT - 4] + pairs)[:COUNT]


def matching(rows: pa.Table, condition: str) -> pa.Table:
    """The rows of ``rows`` that satisfy ``condition``."""
    with connection() as duckdb:
        duckdb.register("rows", rows)
        return duckdb.sql(f"select * from rows where {condition}").to_arrow_table()


def _values(column: pa.ChunkedArray) -> list[object]:
    """Some values: the least, one in the middle, the greatest. None for types that conditions do not take."""
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        return []
    found = {value for value in column.to_pylist() if value is not None and not _is_odd(value)}
    ordered = sorted(found)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]] if ordered else []


def _is_odd(value: object) -> bool:
    """Whether engines write a float differently."""
    return isinstance(value, float) and not math.isfinite(value)


def _on_column(name: str, values: list[object]) -> Iterator[str]:
    if not values:
        return
    least, middle, greatest = map(literal, values)
    yield f"{name} = {middle}"
    if isinstance(values[0], bool):
        yield f"{name} is null"
        return
    yield f"{name} in ({least}, {greatest})"
    yield f"{name} between {least} and {middle}"
    yield f"{name} > {middle}"
    yield f"{name} is null"
    yield f"{name} <= {least}"
    yield f"{name} is not null and {name} < {greatest}"
    if isinstance(values[1], str):
        yield f"{name} like {literal(values[1][:5].replace('%', ''))[:-1]}%'"


def literal(value: object) -> str:
    """``value`` in SQL."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"timestamp '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
        case date():
            return f"date '{value}'"
        case Decimal() | int():
            return str(value)
    return repr(value)

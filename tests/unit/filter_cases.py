"""Random schemas, rows and filters for tests of engines' filters: values of every type, corners first.

A value is drawn as Python has it; ``stored`` gives what PyIceberg's records hold of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone_core.language.filterpredicates import predicate_of
from skipstone_core.language.filters import Filter
from skipstone_core.language.icebergjson import FilterColumns, read_filter
from skipstone_core.language.predicates import check_types

_EPOCH_DAY, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = ["", "a", "ab", "abc", "b", "\u00e9", "\uffff", "\U0001f600", 'q"\\', "b\x00", "abd"]
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 1.0, 1.5, 2.0**127, math.inf, math.nan]
DAYS = [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(2024, 3, 1), date(9999, 12, 31)]
_MOMENTS = [(1, 1, 1), (1969, 12, 31, 23, 59, 59, 999999), (1970, 1, 1), (2024, 2, 29, 12, 0, 0, 1), (9999, 12, 31, 23)]
INSTANTS = [datetime(*parts, tzinfo=UTC) for parts in _MOMENTS]
BYTES = [b"", b"\x00", b"\x00\x01", b"\x7f", b"\x80", b"\xff\xff"]
UUIDS = [UUID(int=value) for value in (0, 1, 1 << 127, (1 << 128) - 1, (1 << 127) - 1)]


@dataclass(frozen=True)
class Kind:
    """A type: its text, how Arrow holds it, and values of it."""

    name: str
    arrow: pa.DataType
    values: tuple[Any, ...]


def _decimals(*texts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, texts))


KINDS = (
    Kind("boolean", pa.bool_(), (False, True)),
    Kind("int", pa.int32(), (-(2**31), -1, 0, 1, 7, 2**31 - 1)),
    Kind("long", pa.int64(), (-(2**63), -(2**31) - 1, -1, 0, 1, 7, 2**53 + 1, 2**63 - 1)),
    Kind("float", pa.float32(), tuple(FLOATS)),
    Kind("double", pa.float64(), (*FLOATS, 0.1, 1e300, 5e-324)),
    Kind("decimal(9, 2)", pa.decimal128(9, 2), _decimals("-1.50", "0.00", "0.01", "1.00", "1.50", "9999999.99")),
    Kind("decimal(38, 0)", pa.decimal128(38, 0), _decimals("-1", "0", "1", "9" * 38)),
    Kind("string", pa.string(), tuple(TEXTS)),
    Kind("date", pa.date32(), tuple(DAYS)),
    Kind("timestamp", pa.timestamp("us"), tuple(moment.replace(tzinfo=None) for moment in INSTANTS)),
    Kind("timestamptz", pa.timestamp("us", tz="UTC"), tuple(INSTANTS)),
    Kind("uuid", pa.binary(16), tuple(UUIDS)),
    Kind("binary", pa.binary(), tuple(BYTES)),
    Kind("fixed[2]", pa.binary(2), (b"\x00\x00", b"\x00\x01", b"\x80\x00", b"\xff\xff")),
)
#: Types of which both libraries have one order, and whose values of one type are all literals that fit it.
CLEAR = tuple(
    kind for kind in KINDS if kind.name.partition("(")[0] in {"boolean", "int", "long", "string", "date", "timestamp"}
)
#: Literals of no type's own: of other kinds, and beyond what integers hold.
ODD = (True, 0, 1, -1, 2**31, -(2**31) - 1, 2**63, 2**70, 1.5, 0.0, "1", "1.5", "true", "2024-02-29", "x", "00", "")


@dataclass(frozen=True)
class Column:
    """A column of a random schema. Required ones hold no null."""

    field_id: int
    name: str
    kind: Kind
    is_required: bool = False

    def renamed(self, name: str) -> Column:
        """The column under another name."""
        return replace(self, name=name)

    def typed(self, kind: Kind) -> Column:
        """The column after its type was promoted."""
        return replace(self, kind=kind)


def nearest_float(value: float) -> float:
    """The value that a column of 32 bits holds of ``value``."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


_ZEROS = st.sampled_from([-0.0, 0.0])


def random_value(kind: Kind) -> st.SearchStrategy[Any]:
    """A corner, or any value of the type."""
    corners = st.sampled_from(kind.values)
    match kind.name.partition("(")[0]:
        case "int":
            return corners | st.integers(-(2**31), 2**31 - 1)
        case "long":
            return corners | st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
        case "float":
            return corners | _ZEROS | st.floats(width=32)
        case "double":
            return corners | _ZEROS | st.floats()
        case "string":
            return corners | st.text(st.characters(codec="utf-8"), max_size=4)
        case "date":
            return corners | st.integers(-100_000, 100_000).map(lambda days: _EPOCH_DAY + timedelta(days=days))
        case _:
            return corners


@st.composite
def schemas(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS) -> list[Column]:
    """One to four columns, ids and names in no order."""
    drawn = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    ids = draw(st.permutations(range(1, len(drawn) + 1)))
    return [
        Column(field_id, f"{kind.name[0]}{field_id}", kind, draw(st.booleans()))
        for field_id, kind in zip(ids, drawn, strict=True)
    ]


@st.composite
def rows(draw: st.DrawFn, columns: list[Column], most: int = 8) -> list[list[Any]]:
    """At least one row, a value or null for each column."""
    kinds = [
        random_value(column.kind) if column.is_required else st.none() | random_value(column.kind) for column in columns
    ]
    return draw(st.lists(st.tuples(*kinds).map(list), min_size=1, max_size=most))


def literals_of(column: Column, place: int, data: list[list[Any]]) -> st.SearchStrategy[Any]:
    """Values to compare a column with: half of them are those of its rows. NaN is not a literal of either library."""
    known = [row[place] for row in data if row[place] is not None]
    drawn = random_value(column.kind)
    literals = drawn | st.sampled_from(known) if known else drawn
    return literals.filter(lambda value: not isinstance(value, float) or not math.isnan(value))


def stored(value: Any) -> Any:
    """``value`` as records of Iceberg hold it."""
    match value:
        case datetime():
            return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (value - _EPOCH_DAY).days
        case UUID():
            return value.bytes
        case _:
            return value


def read_of(columns: list[Column], tree: Any, *, case_sensitive: bool) -> Filter:
    """What is read of a filter on a table with these columns."""
    names = {column.name: column.field_id for column in columns}
    types = {column.field_id: column.kind.name for column in columns}
    return read_filter(tree, FilterColumns((names,), types), case_sensitive=case_sensitive)


def kept_by_predicate(columns: list[Column], data: list[list[Any]], tree: Filter) -> list[bool]:
    """For each row, whether it passes the predicate of a filter."""
    predicate = predicate_of(tree, {column.field_id: column.name for column in columns})
    if predicate is None:
        return [True] * len(data)
    checked = check_types(predicate, {column.name: column.kind.name for column in columns})
    arrays = {column.name: _arrow_column(column, data, place) for place, column in enumerate(columns)}
    return [kept is True for kept in evaluate_predicate(checked, arrays, len(data)).to_pylist()]


def verdicts(ours: list[bool], theirs: list[bool] | None) -> Iterator[str]:
    """What a case comes to, for counts. ``theirs`` None: the library refuses the filter."""
    yield "cases"
    if theirs is None:
        yield "refused by the library"
    elif ours == theirs:
        yield "the same rows kept"
    else:
        yield "more rows kept"
    if not all(ours):
        yield "rows ruled out"


def _arrow_column(column: Column, data: list[list[Any]], place: int) -> pa.Array:
    values = [row[place].bytes if isinstance(row[place], UUID) else row[place] for row in data]
    return pa.array(values, column.kind.arrow)

"""Random filters and rows as JSON: filters as Iceberg's Java clients send them, rows as texts for a judge in Java."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tests.unit.filter_cases import ODD, Column, literals_of, stored

_COMPARISONS = ("eq", "not-eq", "lt", "lt-eq", "gt", "gt-eq")
TRANSFORMS = ("bucket[4]", "truncate[2]", "day", "year", "hour", "identity", "void")


def filter_trees(
    columns: list[Column], data: list[list[Any]], *, odd: bool, transforms: Sequence[str] = TRANSFORMS
) -> st.SearchStrategy[Any]:
    """Filters of a table with these columns and rows. ``odd``: with transforms, and values of other types."""

    def pair(kind: str, left: Any, right: Any) -> Any:
        return {"type": kind, "left": left, "right": right}

    tests = _tests(columns, data, odd, tuple(transforms))
    return st.recursive(
        st.integers(0, 9).flatmap(lambda die: tests if die else st.booleans()),
        lambda inner: (
            st.builds(pair, st.sampled_from(["and", "or"]), inner, inner)
            | inner.map(lambda child: {"type": "not", "child": child})
        ),
        max_leaves=6,
    )


@st.composite
def _tests(
    draw: st.DrawFn, columns: list[Column], data: list[list[Any]], odd: bool, transforms: tuple[str, ...]
) -> Any:
    place, column = draw(st.sampled_from([*enumerate(columns)]))
    term: Any = column.name
    fitting = _literals(column, place, data)
    if odd and draw(st.integers(0, 5)) == 0:
        term = {"type": "transform", "transform": draw(st.sampled_from(transforms)), "term": column.name}
        fitting = fitting | st.integers(-5, 5)
    match draw(st.sampled_from(["compare", "compare", "list", "null", "nan", "prefix"])):
        case "compare":
            value = draw(fitting | st.sampled_from(ODD) if odd else fitting)
            return {"type": draw(st.sampled_from(_COMPARISONS)), "term": term, "value": value}
        case "list":
            values = draw(st.lists(fitting, max_size=4))
            return {"type": draw(st.sampled_from(["in", "not-in"])), "term": term, "values": values}
        case "nan" if odd:
            return {"type": draw(st.sampled_from(["is-nan", "not-nan"])), "term": term}
        case "prefix" if column.kind.name == "string":
            operator = draw(st.sampled_from(["starts-with", "not-starts-with"]))
            return {"type": operator, "term": term, "value": draw(fitting)}
        case _:
            return {"type": draw(st.sampled_from(["is-null", "not-null"])), "term": term}


def _literals(column: Column, place: int, data: list[list[Any]]) -> st.SearchStrategy[Any]:
    """JSON has neither NaN nor infinities."""
    finite = literals_of(column, place, data).filter(lambda value: not isinstance(value, float) or math.isfinite(value))
    if column.kind.name.startswith(("date", "time")):
        return finite.map(_literal) | finite.map(lambda value: value.isoformat())
    return finite.map(_literal)


def _literal(value: Any) -> Any:
    """As Spark's filters reach a server: days, microseconds, texts of decimals, hex."""
    match value:
        case bytes():
            return value.hex().upper()
        case UUID() | str():
            return str(value)
        case bool() | int() | float():
            return value
        case date() | datetime():
            return stored(value)
        case _:
            return str(value)


def schema_json(columns: list[Column]) -> Any:
    """A schema as Iceberg writes it."""
    fields = [
        {"id": column.field_id, "name": column.name, "required": column.is_required, "type": column.kind.name}
        for column in columns
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def cells_of(data: list[list[Any]]) -> list[list[str | None]]:
    """Rows as texts that Java's parsers of numbers take: days, microseconds, hex."""
    return [[_cell(value) for value in row] for row in data]


def _cell(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bytes():
            return value.hex()
        case float():
            return str(value).replace("inf", "Infinity").replace("nan", "NaN")
        case date() | datetime():
            return str(stored(value))
        case _:
            return str(value).lower() if isinstance(value, bool) else str(value)

"""Changes of two sets of rows against a model of dictionaries, and rows that no key tells apart."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.query.changing.diffs import diff_rows
from skipstone_core.errors import BadData
from skipstone_core.history.tablereads import CHANGE_COLUMN

from tests.examples import cases

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("l", pa.list_(pa.float64())),
        ("r", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)


def _struct(a: int | None, b: str | None) -> dict[str, object]:
    return {"a": a, "b": b}


FLOATS = st.sampled_from([None, 0.0, -0.0, math.nan, math.inf, 1.5])
VALUES = st.tuples(
    FLOATS,
    st.sampled_from([None, "", "a", "b"]),
    st.none() | st.lists(FLOATS, max_size=2),
    st.none() | st.builds(_struct, st.none() | st.integers(0, 1), st.sampled_from([None, "x"])),
)
STATES = st.dictionaries(st.integers(0, 6), VALUES)
Values = tuple[Any, ...]


def table_of(state: dict[int, Values]) -> pa.Table:
    rows = [dict(zip(SCHEMA.names, (key, *values), strict=True)) for key, values in state.items()]
    return pa.Table.from_pylist(rows, SCHEMA)


def shown(rows: pa.Table) -> list[str]:
    return sorted(repr(row) for row in rows.to_pylist())


def model(before: dict[int, Values], after: dict[int, Values]) -> list[str]:
    """The changes by key; values are compared as they are written."""
    changes: list[tuple[str, int, Values]] = []
    for key in before.keys() | after.keys():
        if key not in after:
            changes.append(("DELETE", key, before[key]))
        elif key not in before:
            changes.append(("INSERT", key, after[key]))
        elif repr(before[key]) != repr(after[key]):
            changes += [("UPDATE_BEFORE", key, before[key]), ("UPDATE_AFTER", key, after[key])]
    rows = [
        {**dict(zip(SCHEMA.names, (key, *values), strict=True)), CHANGE_COLUMN: kind} for kind, key, values in changes
    ]
    return sorted(map(repr, rows))


@settings(max_examples=cases(60, 5000), deadline=None)
@given(STATES, STATES)
def test_changes_are_those_of_the_model(before: dict[int, Values], after: dict[int, Values]) -> None:
    found = diff_rows(table_of(before), table_of(after), ["id"], "ns.t")
    assert shown(found) == model(before, after)
    kinds = found.column(CHANGE_COLUMN).to_pylist()
    assert all(kinds[at + 1] == "UPDATE_AFTER" for at, kind in enumerate(kinds) if kind == "UPDATE_BEFORE")


def rows(*pairs: tuple[int | None, str]) -> pa.Table:
    values = pa.array([value for _, value in pairs], pa.string())
    return pa.table({"id": pa.array([key for key, _ in pairs], pa.int64()), "v": values})


def test_equal_rows_cancel_each_other_as_often_as_they_are_there() -> None:
    before, after = rows((1, "a"), (1, "a"), (2, "b")), rows((2, "b"), (1, "a"))
    assert diff_rows(before, after, [], "ns.t").to_pylist() == [{"id": 1, "v": "a", CHANGE_COLUMN: "DELETE"}]


def test_a_key_that_has_a_row_left_is_not_deleted() -> None:
    before, after = rows((1, "a"), (1, "a"), (2, "b"), (2, "c"), (3, "d")), rows((1, "a"), (2, "c"))
    assert diff_rows(before, after, ["id"], "ns.t").to_pylist() == [
        {"id": 2, "v": "b", CHANGE_COLUMN: "UPDATE_BEFORE"},
        {"id": 2, "v": "c", CHANGE_COLUMN: "UPDATE_AFTER"},
        {"id": 3, "v": "d", CHANGE_COLUMN: "DELETE"},
    ]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (rows((1, "a"), (1, "b")), rows(), "2 changed rows of ns.t have the key id = 1"),
        (rows(), rows((1, "a"), (1, "a")), "2 changed rows of ns.t have the key id = 1"),
        (rows((None, "a")), rows(), "null in the key 'id'"),
        (rows((1, "a"), (1, "b"), (1, "c")), rows((1, "b"), (1, "c")), "2 changed rows of ns.t have the key id = 1"),
    ],
)
def test_rows_that_no_key_tells_apart_are_refused(before: pa.Table, after: pa.Table, says: str) -> None:
    with pytest.raises(BadData, match=says):
        diff_rows(before, after, ["id"], "ns.t")


#: Microseconds and days that Python's dates do not reach, and bytes that are not UTF-8.
FAR, DAYS, BYTES = 7_884_000_000_000_000_000, 8_000_000, b"\xff"


def test_values_that_python_cannot_hold_are_compared() -> None:
    def table_with(extra: int) -> pa.Table:
        texts = pa.array([BYTES, BYTES], pa.binary()).view(pa.string())
        listed = pa.array([[FAR], [FAR + extra]], pa.list_(pa.int64()))
        days = pa.StructArray.from_arrays([pa.array([DAYS, DAYS], pa.int32()).cast(pa.date32()), texts], ["d", "t"])
        return pa.table(
            {
                "id": pa.array([FAR, FAR + 1]).cast(pa.timestamp("us", "UTC")),
                "l": listed.cast(pa.list_(pa.timestamp("us"))),
                "r": days,
                "m": pa.MapArray.from_arrays([0, 1, 2], texts, days),
            }
        )

    found = diff_rows(table_with(0), table_with(5), ["id"], "ns.t")
    assert found.column("id").cast(pa.int64()).to_pylist() == [FAR + 1, FAR + 1]
    assert found.column(CHANGE_COLUMN).to_pylist() == ["UPDATE_BEFORE", "UPDATE_AFTER"]
    twice = pa.concat_tables([table_with(0), table_with(5)])
    with pytest.raises(BadData, match=f"2 changed rows of ns.t have the key id = {FAR}"):
        diff_rows(table_with(0).slice(0, 0), twice, ["id"], "ns.t")

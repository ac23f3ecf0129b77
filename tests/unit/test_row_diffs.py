"""Changes of two sets of rows against a model of dictionaries, and rows that no key tells apart."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.query.changing.diffs import diff_rows
from skipstone.query.changing.dividing import part_of_rows
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


# --- values of all types ---

#: The beginning of the year 10000, which Python's times do not reach, in microseconds and in days.
LATE_US, LATE_DAY = 253_402_300_800_000_000, 2_932_897
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, None, False]),
    "int": (pa.int32(), [1, None, -5]),
    "long": (pa.int64(), [2**62, None, -1]),
    "decimal": (pa.decimal128(38, 10), [Decimal("1.5"), None, Decimal("-99999999999999999999999999.1234567891")]),
    "date": (pa.date32(), [LATE_DAY, None, -1_000_000]),
    "time": (pa.time64("us"), [1, None, 86_399_999_999]),
    "timestamp": (pa.timestamp("us"), [LATE_US, None, -(2**62)]),
    "timestamptz": (pa.timestamp("us", "UTC"), [LATE_US, None, 5]),
    "timestamp_ns": (pa.timestamp("ns"), [123_456_789, None, -(2**62)]),
    "string": (pa.string(), ["", None, "a\x00b"]),
    "binary": (pa.binary(), [b"", None, b"\x00"]),
    "fixed": (pa.binary(16), [b"0" * 16, None, b"1" * 16]),
}
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "float": (pa.float32(), [math.nan, -0.0, None]),
    "double": (pa.float64(), [math.nan, -0.0, 0.0]),
    "list": (pa.list_(pa.timestamp("us")), [[LATE_US], None, []]),
    "map": (pa.map_(pa.string(), pa.date32()), [[("a", LATE_DAY)], None, []]),
    "struct": (
        pa.struct([("x", pa.list_(pa.float64())), ("y", pa.timestamp("us", "UTC"))]),
        [{"x": [math.nan], "y": LATE_US}, None, {"x": None, "y": None}],
    ),
}


def column(name: str) -> pa.Array:
    kind, values = {**TYPES, **NESTED}[name]
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize("name", [*TYPES, *NESTED])
def test_values_of_every_type_are_compared(name: str) -> None:
    values, ids = column(name), pa.array([1, 2, 3])
    before = pa.table({"id": ids, "v": values})
    assert len(diff_rows(before, before, ["id"], "ns.t")) == 0
    for at in range(3):
        others = pa.concat_arrays([values.slice(0, at), values.slice((at + 1) % 3, 1), values.slice(at + 1)])
        changes = diff_rows(before, pa.table({"id": ids, "v": others}), ["id"], "ns.t")
        assert changes["id"].to_pylist() == [at + 1] * 2
        assert changes[CHANGE_COLUMN].to_pylist() == ["UPDATE_BEFORE", "UPDATE_AFTER"]


@pytest.mark.parametrize("name", TYPES)
def test_rows_with_equal_keys_come_to_one_part(name: str) -> None:
    few = pa.table({"k": column(name)})
    many = pa.concat_tables([few, few.slice(1), few]).combine_chunks()
    for keys in (["k"], []):
        parts = part_of_rows(many, keys, 5)
        assert parts.tolist() == [*part_of_rows(few, keys, 5), *part_of_rows(few.slice(1), keys, 5), *parts[:3]]
        assert 0 <= parts.min() <= parts.max() < 5
    message = "have null in the key 'k'|have the key k = "
    with pytest.raises(BadData, match=message):
        diff_rows(pa.concat_tables([few, few]).take([0, 3]), few.slice(0, 0), ["k"], "ns.t")


def test_many_keys_are_divided_evenly() -> None:
    rows = pa.table({"a": pa.array(range(10_000)), "b": pa.array(["x"] * 10_000)})
    for keys in (["a"], ["a", "b"], ["b", "a"]):
        counts = np.bincount(part_of_rows(rows, keys, 8), minlength=8)
        assert counts.min() > 1_000

"""Days and moments that Python does not have, in what merges and writers compute with them."""

from __future__ import annotations

import operator
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import MonthTransform, Transform, YearTransform
from pyiceberg.types import DateType, IcebergType, TimestampType
from skipstone.compat.pyiceberg import transformed_values
from skipstone.kernels.changes import SortRule, last_changes
from skipstone.kernels.computing.expressions import compute
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone_core.errors import BadData
from skipstone_core.keys import KeyFamily, KeyType
from skipstone_core.language.expressions import Atom, check_expression, with_sides
from skipstone_core.language.parser import parse_assigned
from skipstone_core.language.predicates import ColumnRef, Comparison, Operator, Predicate
from skipstone_core.merging.merges import BoundKey

DAY = 86_400_000_000
DAYS = st.integers(-(2**31), 2**31 - 1)
MOMENTS = st.integers(-(2**63), 2**63 - 1)
UNITS: dict[type[Transform[Any, Any]], str] = {YearTransform: "datetime64[Y]", MonthTransform: "datetime64[M]"}
OPERATORS: dict[Operator, Any] = {"<": operator.lt, "=": operator.eq, ">=": operator.ge}
TYPES = {"source.d": "date", "source.t": "timestamp", "source.z": "timestamptz"}


@pytest.mark.parametrize("transform", UNITS)
@given(st.lists(st.none() | DAYS, min_size=1), st.lists(st.none() | MOMENTS, min_size=1))
def test_years_and_months_are_those_of_numpy(
    transform: type[Transform[Any, Any]], days: list[int | None], moments: list[int | None]
) -> None:
    cases: list[tuple[IcebergType, pa.Array, list[int | None]]] = [
        (DateType(), pa.array(days, pa.int32()).view(pa.date32()), days),
        (TimestampType(), pa.array(moments, pa.int64()).view(pa.timestamp("us")),
         [None if one is None else one // DAY for one in moments]),
    ]  # fmt: skip
    for kind, values, whole in cases:
        expected = [None if one is None else int(np.datetime64(one, "D").astype(UNITS[transform]).astype(np.int64))
                    for one in whole]  # fmt: skip
        assert transformed_values(transform(), kind, values).to_pylist() == expected


@given(st.lists(st.tuples(DAYS, MOMENTS) | DAYS.map(lambda day: (day, (day % 10**8) * DAY)), min_size=1))
def test_days_compare_with_moments(pairs: list[tuple[int, int]]) -> None:
    columns = columns_of([day for day, _ in pairs], [moment for _, moment in pairs])
    for op, holds in OPERATORS.items():
        predicate = Predicate(Comparison(op, ColumnRef("source", "d"), ColumnRef("source", "t")), "")
        found = evaluate_predicate(predicate, columns, len(pairs)).to_pylist()
        assert found == [holds(day * DAY, moment) for day, moment in pairs]


@pytest.mark.parametrize("text", ["cast(z as timestamp)", "cast(t as timestamptz)", "to_date(z)", "cast(z as string)",
                                  "cast(d as string)", "cast(d as timestamp)", "cast(d as timestamptz)"])  # fmt: skip
@pytest.mark.parametrize("sign", [-1, 1])
def test_clocks_and_texts_of_far_years_are_told(text: str, sign: int) -> None:
    with pytest.raises(BadData, match="leave such rows out by a when"):
        computed(text, "Europe/Madrid", sign * (2**31 - 1), sign * (2**63 - 1))


@pytest.mark.parametrize("moment", [-(2**63), -(10**18) - 1, 10**18 + 1, 2**63 - 1])
def test_days_of_far_moments(moment: int) -> None:
    for text in ("to_date(t)", "to_date(z)"):
        assert computed(text, "UTC", 0, moment).view(pa.int32()).to_pylist() == [moment // DAY]


def test_changes_with_far_days_in_lists_are_ordered() -> None:
    columns = columns_of([-(2**31), 2**31 - 1], [-(2**63), 2**63 - 1])
    far = pa.StructArray.from_arrays([columns["source.d"], columns["source.t"]], ["d", "t"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), columns["source.d"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"]), columns["source.t"])
    changes = pa.table({"id": [1, 1], "n": [1, 1], "s": far, "l": lists, "m": maps})
    whole = KeyType(KeyFamily.INTEGER)
    rule = SortRule((BoundKey(target="id", source="id", type=whole),), "n", {"id": whole, "n": whole})
    first, *_ = last_changes(changes, rule)
    again, *_ = last_changes(changes.take([1, 0]), rule)
    assert first == again


def computed(text: str, zone: str, day: int, moment: int) -> pa.Array:
    term = parse_assigned(text)
    root = with_sides(Atom(term) if isinstance(term, ColumnRef) else term)
    expression = check_expression(root, TYPES, text=text, field="spec.f", zone=ZoneInfo(zone))
    return compute(expression, columns_of([day], [moment]), 1)


def columns_of(days: list[int], moments: list[int]) -> dict[str, pa.Array]:
    numbers = pa.array(moments, pa.int64())
    return {"source.d": pa.array(days, pa.int32()).view(pa.date32()), "source.t": numbers.view(pa.timestamp("us")),
            "source.z": numbers.view(pa.timestamp("us", tz="UTC"))}  # fmt: skip

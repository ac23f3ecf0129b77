"""Which bounds may be believed: the scalar rule, and the array version that must agree with it."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.tables.bounds import decode_bounds, trusted
from skipstone_core.stats import Bounds, trusted_bounds

NAN = float("nan")
edges = st.none() | st.sampled_from([NAN, -0.0, 0.0, 1.0, float("inf"), float("-inf")]) | st.floats()


@settings(deadline=None)  # the first call loads Arrow's kernels
@given(st.lists(st.tuples(edges, edges, st.none() | st.integers(0, 2)), max_size=20))
def test_arrays_are_trusted_as_single_values_are(rows: list[tuple[float | None, float | None, int | None]]) -> None:
    lower, upper, nans = (pa.array([row[n] for row in rows], kind) for n, kind in enumerate(KINDS))
    found = zip(*(bound.to_pylist() for bound in trusted(lower, upper, nans)), strict=True)
    expected = [trusted_bounds(low, high, nan_count=count, has_nan=True) for low, high, count in rows]
    assert [Bounds(*pair) for pair in found] == expected


KINDS = (pa.float64(), pa.float64(), pa.int64())


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9)), max_size=20))
def test_types_without_nan_need_no_count(rows: list[tuple[int | None, int | None]]) -> None:
    lower, upper = (pa.array([row[n] for row in rows], pa.int64()) for n in range(2))
    found = zip(*(bound.to_pylist() for bound in trusted(lower, upper, None)), strict=True)
    assert [Bounds(*pair) for pair in found] == [
        trusted_bounds(low, high, nan_count=None, has_nan=False) for low, high in rows
    ]


@given(st.lists(st.floats(), min_size=1))
def test_bounds_of_a_file_never_deny_a_value_it_holds(values: list[float]) -> None:
    numbers = [value for value in values if not math.isnan(value)]
    lower, upper = (min(numbers), max(numbers)) if numbers else (None, None)
    bounds = trusted_bounds(lower, upper, nan_count=len(values) - len(numbers), has_nan=True)
    assert all(bounds.may_hold(value) for value in values)


@pytest.mark.parametrize(
    ("bounds", "value", "expected"),
    [
        (Bounds(1.0, 3.0), 2.0, True),
        (Bounds(1.0, 3.0), 4.0, False),
        (Bounds(1.0, 3.0), NAN, False),
        (Bounds(1.0, None), NAN, True),
        (Bounds(0.0, 0.0), -0.0, True),
        (Bounds(), "anything", True),
    ],
)
def test_what_bounds_may_hold(bounds: Bounds, value: object, *, expected: bool) -> None:
    assert bounds.may_hold(value) is expected


def test_bytes_that_are_no_value_of_the_type_are_unknown() -> None:
    from pyiceberg.types import DecimalType, LongType, StringType

    raw = pa.array([b"\x01", b"\x01\x00\x00\x00", b"\x02" + b"\x00" * 7, None], pa.binary())
    assert decode_bounds(raw, LongType(), pa.int64()).to_pylist() == [None, 1, 2, None]
    text = pa.array([b"ok", b"\xff\xfe"], pa.binary())
    assert decode_bounds(text, StringType(), pa.string()).to_pylist() == ["ok", None]
    numbers = pa.array([b"\xff\x38", b"\x00" * 17, b""], pa.binary())
    found = decode_bounds(numbers, DecimalType(9, 2), pa.decimal128(9, 2)).to_pylist()
    assert [str(value) for value in found] == ["-2.00", "None", "None"]

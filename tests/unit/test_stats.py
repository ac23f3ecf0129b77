"""Which bounds may be believed: the scalar rule, and the array version that must agree with it."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.tables.bounds import decode_bounds, trusted
from skipstone_core.stats import least_above, upper_bound

from tests.unit.scalar_bounds import Bounds, trusted_bounds

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


SURROGATES = range(0xD800, 0xE000)
LAST = 0x10FFFF
EDGES = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FE, 0xD7FF, 0xE000, 0xFFFF, 0x10000, LAST - 1, LAST]


def test_after_every_character_comes_the_next_one() -> None:
    points = [point for point in range(LAST + 1) if point not in SURROGATES]
    assert [least_above(chr(point)) for point in points] == [*map(chr, points[1:]), None]


@pytest.mark.parametrize("length", range(1, 20))
def test_text_is_cut_to_a_bound_at_every_length(length: int) -> None:
    for point in EDGES:
        value = "a" * (length - 1) + chr(point) + "tail"
        bound = upper_bound(value, length)
        if point == LAST and length == 1:
            assert bound is None
            continue
        assert isinstance(bound, str)
        assert len(bound) <= length
        assert bound.encode() > value.encode()  # a lone surrogate has no UTF-8


@given(st.text() | st.binary(), st.integers(1, 5))
def test_a_bound_is_short_and_not_below_what_it_bounds(value: str | bytes, length: int) -> None:
    bound = upper_bound(value, length)
    greatest = chr(LAST) if isinstance(value, str) else b"\xff"
    if bound is None:
        assert value[:length] == greatest * length  # type: ignore[operator]
    else:
        assert len(bound) <= length
        assert bound >= value  # type: ignore[operator]

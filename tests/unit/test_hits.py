"""Hits combine as sets of rows do, and stored keys come back as the values they were made from."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from skipstone.indexes.asking import hits
from skipstone.indexes.asking.hits import (
    POSITION_BITS,
    ROW_GROUP_BITS,
    HitCollector,
    IndexHits,
    both,
    either,
    split_by_file,
)
from skipstone.indexes.keys import column_values, is_exact, storage_type, stored_keys
from skipstone.tables.arrow import arrow_type_of

FILES, GROUP_ROWS = 4, 3
ROWS = st.sets(st.tuples(st.integers(0, FILES - 1), st.integers(0, 3 * GROUP_ROWS - 1)))
MASKS = st.lists(st.booleans(), min_size=FILES, max_size=FILES)
LIMITS = st.sampled_from([0, 3, 1000])


def made(rows: set[tuple[int, int]], covered: list[bool], limit: int) -> IndexHits:
    """Hits of the covered ones of ``rows`` (ordinal, position); more than ``limit`` are kept by row group."""
    with mock.patch.object(hits, "MAX_ROWS", limit):
        collector = HitCollector(np.array(covered))
        for ordinal, position in sorted(rows, reverse=True):
            if covered[ordinal]:
                values = (ordinal, position // GROUP_ROWS, position)
                collector.add(*(np.array([value], np.int64) for value in values))
        return collector.hits()


def groups_of(rows: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(ordinal, position // GROUP_ROWS) for ordinal, position in rows}


def found_groups(one: IndexHits) -> set[tuple[int, int]]:
    return {(ordinal, group) for ordinal, part in split_by_file(one.locations, ROW_GROUP_BITS) for group in part}


def found_rows(one: IndexHits) -> set[tuple[int, int]]:
    return {(ordinal, position) for ordinal, part in split_by_file(one.rows.keys, POSITION_BITS) for position in part}


@given(a=ROWS, b=ROWS, covered_a=MASKS, covered_b=MASKS, limits=st.tuples(LIMITS, LIMITS))
def test_both_never_loses_a_row_of_the_intersection_and_either_none_of_the_union(
    a: set[tuple[int, int]],
    b: set[tuple[int, int]],
    covered_a: list[bool],
    covered_b: list[bool],
    limits: tuple[int, int],
) -> None:
    one, two = made(a, covered_a, limits[0]), made(b, covered_b, limits[1])
    every = {(file, position) for file in range(FILES) for position in range(3 * GROUP_ROWS)}
    may_a = {row for row in every if row in a or not covered_a[row[0]]}
    may_b = {row for row in every if row in b or not covered_b[row[0]]}
    for result, wanted in ((both(one, two), may_a & may_b), (either(one, two), may_a | may_b)):
        known = {row for row in wanted if result.covered[row[0]]}
        assert groups_of(known) <= found_groups(result)
        counted = {row for row in known if result.counted[row[0]]}
        assert counted <= found_rows(result)
        counted_groups = {place for place in found_groups(result) if result.counted[place[0]]}
        assert counted_groups == groups_of(found_rows(result))
        assert set(np.flatnonzero(result.left)) >= {file for file, _ in wanted}


@given(a=ROWS, b=ROWS, covered_a=MASKS, covered_b=MASKS, limits=st.tuples(LIMITS, LIMITS))
def test_what_one_side_knows_of_a_file_is_not_lost_in_both(
    a: set[tuple[int, int]],
    b: set[tuple[int, int]],
    covered_a: list[bool],
    covered_b: list[bool],
    limits: tuple[int, int],
) -> None:
    one, two = made(a, covered_a, limits[0]), made(b, covered_b, limits[1])
    result = both(one, two)
    for side in (one, two):
        assert not (side.counted & ~result.counted).any()
        assert not (side.covered & ~result.covered).any()
        mine = {place for place in found_groups(result) if side.covered[place[0]]}
        assert mine <= found_groups(side)
        assert {row for row in found_rows(result) if side.counted[row[0]]} <= found_rows(side)


@given(a=ROWS, b=ROWS)
def test_files_that_both_sides_cover_are_known_exactly(a: set[tuple[int, int]], b: set[tuple[int, int]]) -> None:
    everything = [True] * FILES
    assert found_rows(both(made(a, everything, 1000), made(b, everything, 1000))) == a & b
    assert found_rows(either(made(a, everything, 1000), made(b, everything, 1000))) == a | b


MOMENT = dt.datetime(1883, 11, 18, 12, 3, 58, 1, dt.UTC)
VALUES: tuple[tuple[IcebergType, list[object]], ...] = (
    (BooleanType(), [True, False, None]),
    (IntegerType(), [-(2**31), 2**31 - 1, None]),
    (LongType(), [-(2**63), 2**63 - 1, None]),
    (DecimalType(9, 2), [Decimal("-9999999.99"), Decimal("0.10"), None]),
    (DecimalType(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None]),
    (DateType(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (TimeType(), [dt.time(23, 59, 59, 999999), None]),
    (TimestampType(), [MOMENT.replace(tzinfo=None), None]),
    (TimestamptzType(), [MOMENT, None]),
    (StringType(), ["", "😀", "x" * 300, None]),
    (BinaryType(), [b"", b"\xff\x00", None]),
    (FixedType(3), [b"\xff\x00\x01", None]),
    (UUIDType(), [bytes(range(16)), None]),
)


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda one: str(one) if isinstance(one, IcebergType) else "")
def test_an_exact_key_comes_back_as_its_value(kind: IcebergType, values: list[object]) -> None:
    given_values = pa.array(values, arrow_type_of(kind))
    assert is_exact(kind)
    assert column_values(stored_keys(given_values, str(storage_type(kind))), kind).equals(given_values)


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_a_float_comes_back_equal_and_is_not_called_exact(kind: IcebergType) -> None:
    given_values = pa.array([-0.0, 0.0, 0.5, -0.25, float("inf"), float("-inf"), None], arrow_type_of(kind))
    found = column_values(stored_keys(given_values, "double"), kind)
    assert not is_exact(kind)
    assert found.to_pylist() == given_values.to_pylist()
    (nan,) = column_values(stored_keys(pa.array([float("nan")], arrow_type_of(kind)), "double"), kind).to_pylist()
    assert math.isnan(nan)

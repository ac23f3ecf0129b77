"""Key-range pruning by arrays: never fewer candidates than the scalar definition, and for plain keys exactly those."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.kernels.canonical import canonical
from skipstone.kernels.sortedkeys import MAX_WIDTH
from skipstone.pruning.keyranges import FileRanges, find_candidates, order_keys
from skipstone_core.keys import KeyFamily, KeyType

from tests.unit.scalar_bounds import KeyBounds, is_candidate, known_bounds
from tests.unit.scalar_keys import normalize

Key = int | bytes
numbers = st.integers(-12, 12)
texts = st.sampled_from([b"", b"a", b"ab", b"a\x01", b"b", "é".encode(), "\U0001f600".encode(), b"zz"])


@dataclass(frozen=True)
class Column:
    values: st.SearchStrategy[Key]
    arrow: pa.DataType


COLUMNS = [Column(numbers, pa.int64()), Column(texts, pa.large_binary())]


def ranges(files: list[tuple[Key | None, Key | None]], arrow: pa.DataType) -> FileRanges:
    return FileRanges(
        pa.array([low for low, _ in files], arrow),
        pa.array([high for _, high in files], arrow),
        np.zeros(len(files), dtype=bool),
    )


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4), st.data())
def test_candidates_are_those_of_the_scalar_definition(columns: list[Column], data: st.DataObject) -> None:
    keys = sorted(data.draw(st.lists(st.tuples(*(column.values for column in columns)), max_size=10)))
    one_file = st.tuples(*(st.tuples(st.none() | c.values, st.none() | c.values) for c in columns))
    files = data.draw(st.lists(one_file, max_size=10))
    hits = find_candidates(
        [ranges([file[i] for file in files], column.arrow) for i, column in enumerate(columns)],
        [pa.array([key[i] for key in keys], column.arrow) for i, column in enumerate(columns)],
    )
    bounds: list[list[KeyBounds | None]] = [[known_bounds(*pair) for pair in file] for file in files]
    expected = [number for number, one in enumerate(bounds) if is_candidate(one, keys)]
    assert hits.files.tolist() == expected
    for file, start, stop in zip(hits.files.tolist(), hits.start.tolist(), hits.stop.tolist(), strict=True):
        inside = [number for number, key in enumerate(keys) if is_candidate(bounds[file], [key])]
        assert set(inside) <= set(range(start, stop))


@settings(deadline=None)
@given(st.lists(st.binary(min_size=MAX_WIDTH, max_size=MAX_WIDTH + 4), min_size=1), st.data())
def test_long_keys_that_differ_late_lose_no_file(keys: list[bytes], data: st.DataObject) -> None:
    prefix = b"p" * (MAX_WIDTH - 2)
    ordered = sorted(prefix + key for key in keys)
    files = data.draw(st.lists(st.sampled_from(ordered).map(lambda key: (key, key)), max_size=5))
    hits = find_candidates([ranges(files, pa.large_binary())], [pa.array(ordered, pa.large_binary())])  # type: ignore[arg-type]
    assert hits.files.tolist() == list(range(len(files)))


def test_a_trailing_zero_byte_loses_no_file() -> None:
    files = [(b"a", b"a"), (b"a\x00", b"a\x00"), (b"b", b"b")]
    for own, key in enumerate((b"a", b"a\x00")):
        for keys in ([key], [b"", key], [key, b"a1"]):
            found = find_candidates([ranges(files, pa.large_binary())], [pa.array(keys, pa.large_binary())])  # type: ignore[arg-type]
            assert own in found.files.tolist()
            assert 2 not in found.files.tolist()


def test_files_of_nulls_only_hold_no_key() -> None:
    empty = FileRanges(pa.array([None, None], pa.int64()), pa.array([None, None], pa.int64()), np.array([True, False]))
    assert find_candidates([empty], [pa.array([1])]).files.tolist() == [1]


def test_no_key_touches_no_file() -> None:
    unknown = ranges([(None, None)], pa.int64())
    assert find_candidates([unknown], [pa.array([], pa.int64())]).files.tolist() == []


def test_floats_are_searched_in_sparks_order() -> None:
    kind = KeyType(KeyFamily.FLOAT)
    low = canonical(pa.array([-1.0, 0.0, 5.0, -0.0]), kind)
    high = canonical(pa.array([-0.0, 1.0, math.nan, -0.0]), kind)
    one = FileRanges(low, high, np.zeros(4, dtype=bool))
    assert find_candidates([one], [canonical(pa.array([0.0]), kind)]).files.tolist() == [0, 1, 3]
    assert find_candidates([one], [canonical(pa.array([math.nan]), kind)]).files.tolist() == [2]


def test_composite_ranges_are_joined_by_row_not_by_column() -> None:
    tenant = ranges([(1, 1), (2, 2)], pa.int64())
    order = ranges([(100, 199), (200, 299)], pa.int64())
    keys = [pa.array([1, 2]), pa.array([250, 150])]
    assert find_candidates([tenant, order], keys).files.tolist() == []


def test_beyond_the_budget_files_stay_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.pruning.keyranges.EXACT_PAIRS", 1)
    first = ranges([(0, 9), (0, 0)], pa.int64())
    second = ranges([(5, 9), (7, 8)], pa.int64())
    keys = [pa.array([0, 5, 9]), pa.array([6, 1, 7])]
    assert find_candidates([first, second], keys).files.tolist() == [0]
    keys = [pa.array([0, 5, 9]), pa.array([1, 6, 2])]
    monkeypatch.setattr("skipstone.pruning.keyranges.EXACT_PAIRS", 0)
    assert find_candidates([first, second], keys).files.tolist() == [0]


def test_the_most_selective_column_comes_first() -> None:
    same = ranges([(1, 1)] * 10, pa.int64())
    disjoint = ranges([(10 * i, 10 * i + 9) for i in range(10)], pa.int64())
    unknown = ranges([(None, None)] * 10, pa.int64())
    assert order_keys([same, disjoint, unknown]) == (1, 0, 2)
    assert order_keys([disjoint, disjoint]) == (0, 1)


def test_one_file_that_spans_everything_costs_no_other_file() -> None:
    files = [(0, 10**6), *((10 * i, 10 * i + 9) for i in range(1000))]
    hits = find_candidates([ranges(files, pa.int64())], [pa.array([5, 15])])  # type: ignore[arg-type]
    assert hits.files.tolist() == [0, 1, 2]


def test_key_at_the_exact_bound_is_inside() -> None:
    files = [(10, 20), (21, 30), (0, 9)]
    for key, expected in ((10, [0]), (20, [0]), (21, [1]), (9, [2]), (31, [])):
        assert find_candidates([ranges(files, pa.int64())], [pa.array([key])]).files.tolist() == expected  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.floats(), st.floats(), st.floats())
def test_float_range_holds_what_the_rule_says(low: float, high: float, key: float) -> None:
    kind = KeyType(KeyFamily.FLOAT)
    one = FileRanges(canonical(pa.array([low]), kind), canonical(pa.array([high]), kind), np.zeros(1, dtype=bool))
    found = find_candidates([one], [canonical(pa.array([key]), kind)]).files.tolist()
    bounds = known_bounds(normalize(low, kind), normalize(high, kind))
    assert bool(found) == is_candidate([bounds], [(normalize(key, kind),)])

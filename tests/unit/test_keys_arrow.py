"""Canonical keys as arrays agree with the scalar rule; the exact join agrees with a dictionary."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.kernels.canonical import canonical
from skipstone.kernels.matching import UNMATCHED, KeyMatcher
from skipstone.kernels.sortedkeys import fixed_bytes, words_of
from skipstone_core.keys import KeyFamily, KeyType

from tests.examples import cases
from tests.unit.scalar_keys import KeyValue, normalize

FLOATS = [-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]
SUPPLEMENTARY = ["", "a", "a\x00", "é", "\uffff", "\U0001f600", "z" * 100]
NARROW = KeyType(KeyFamily.DECIMAL, 2, 7)
WIDE = KeyType(KeyFamily.DECIMAL, 4, 34)
CASES: dict[str, tuple[KeyType, pa.DataType, st.SearchStrategy[KeyValue]]] = {
    "boolean": (KeyType(KeyFamily.BOOLEAN), pa.bool_(), st.booleans()),
    "int": (KeyType(KeyFamily.INTEGER), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (KeyType(KeyFamily.INTEGER), pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "narrow decimal": (NARROW, pa.decimal128(9, 2), st.decimals(-9999999, 9999999, places=2)),
    "wide decimal": (WIDE, pa.decimal128(38, 4), st.decimals(-(10**33), 10**33, places=4)),
    "decimal of less scale": (WIDE, pa.decimal128(9, 2), st.decimals(-9999999, 9999999, places=2)),
    "double": (KeyType(KeyFamily.FLOAT), pa.float64(), st.floats() | st.sampled_from(FLOATS)),
    "float": (KeyType(KeyFamily.FLOAT), pa.float32(), st.floats(width=32)),
    "string": (KeyType(KeyFamily.STRING), pa.string(), st.text() | st.sampled_from(SUPPLEMENTARY)),
    "binary": (KeyType(KeyFamily.BINARY), pa.binary(), st.binary()),
    "date": (KeyType(KeyFamily.DATE), pa.date32(), st.dates(date(1, 1, 1))),
    "timestamp": (KeyType(KeyFamily.TIMESTAMP), pa.timestamp("us"), st.datetimes(datetime(1, 1, 2))),  # noqa: DTZ001
    "timestamptz": (
        KeyType(KeyFamily.TIMESTAMPTZ),
        pa.timestamp("us", tz="UTC"),
        st.datetimes(datetime(1, 1, 2), timezones=st.just(UTC)),  # noqa: DTZ001
    ),
}


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None)
@given(data=st.data())
def test_arrays_agree_with_the_scalar_rule(name: str, data: st.DataObject) -> None:
    kind, arrow, values = CASES[name]
    rows = data.draw(st.lists(st.none() | values, max_size=8))
    found = canonical(pa.array(rows, arrow), kind).to_pylist()
    expected = [None if row is None else normalize(row, kind) for row in rows]
    if kind is WIDE:
        found = [None if key is None else int.from_bytes(key) - (1 << 127) for key in found]
    assert found == expected


def test_wide_decimals_order_by_value() -> None:
    values = [Decimal("-1e33"), Decimal("-0.0001"), Decimal(0), Decimal("0.0001"), Decimal("1e33")]
    keys = canonical(pa.array(values, pa.decimal128(38, 4)), WIDE).to_pylist()
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_slices_chunks_and_dictionaries_are_the_same_keys() -> None:
    kind = KeyType(KeyFamily.STRING)
    plain = pa.array(["x", "a", None, "b", "a"])
    expected = [b"a", None, b"b"]
    assert canonical(plain.slice(1, 3), kind).to_pylist() == expected
    assert canonical(plain.dictionary_encode().slice(1, 3), kind).to_pylist() == expected
    assert canonical(pa.chunked_array([plain.slice(1, 1), plain.slice(2, 2)]), kind).to_pylist() == expected
    assert canonical(pa.chunked_array([], pa.string()), kind).to_pylist() == []
    decimals = pa.array([Decimal(1), Decimal(2), None, Decimal(3)], pa.decimal128(9, 0)).slice(1)
    assert canonical(decimals, KeyType(KeyFamily.DECIMAL, 2, 9)).to_pylist() == [200, None, 300]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=6)), st.integers(1, 4))
def test_cut_keys_keep_their_order(values: list[bytes], width: int) -> None:
    ordered = pa.array(sorted(values), pa.large_binary())
    cut = list(fixed_bytes(ordered, width))
    assert cut == sorted(cut)
    words = list(words_of(ordered, width))
    assert words == [int.from_bytes(key[width : width + 8].ljust(8, b"\0")) for key in sorted(values)]


FAMILIES: list[tuple[KeyType, pa.DataType, list[KeyValue]]] = [
    (KeyType(KeyFamily.INTEGER), pa.int64(), [-1, 0, 1, 2, 3, 2**62]),
    (KeyType(KeyFamily.STRING), pa.string(), list(SUPPLEMENTARY)),
    (KeyType(KeyFamily.FLOAT), pa.float64(), list(FLOATS)),
    (WIDE, pa.decimal128(38, 4), [Decimal(0), Decimal("0.5"), Decimal("-1e30")]),
    (KeyType(KeyFamily.BOOLEAN), pa.bool_(), [True, False]),
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(range(len(FAMILIES))), min_size=1, max_size=4), st.data())
def test_match_is_a_dictionary_look_up(columns: list[int], data: st.DataObject) -> None:
    kinds = [FAMILIES[i] for i in columns]
    row = st.tuples(*(st.sampled_from(values) for _, _, values in kinds))
    nullable = st.tuples(*(st.none() | st.sampled_from(values) for _, _, values in kinds))

    def key(values: tuple[KeyValue | None, ...]) -> tuple[object, ...] | None:
        if any(value is None for value in values):
            return None
        return tuple(normalize(value, kind) for value, (kind, _, _) in zip(values, kinds, strict=True))  # type: ignore[arg-type]

    source = data.draw(st.lists(row, max_size=8, unique_by=key))
    target = data.draw(st.lists(nullable, min_size=1, max_size=12))

    def arrays(rows: list[tuple[KeyValue | None, ...]]) -> list[pa.Array]:
        return [
            canonical(pa.array([values[i] for values in rows], arrow), kind) for i, (kind, arrow, _) in enumerate(kinds)
        ]

    by_key = {key(values): number for number, values in enumerate(source)}
    found = KeyMatcher(arrays(list(source))).match(arrays(target)).tolist()
    assert found == [by_key.get(wanted, UNMATCHED) if (wanted := key(values)) else UNMATCHED for values in target]


#: Keys that are close together, far apart, and all over the range of a long.
SPANS = [(0, 3_000), (-(2**40), 2**40), (-(2**63), 2**63 - 1)]


@settings(deadline=None, max_examples=cases(30, 300))
@given(st.sampled_from(SPANS), st.integers(0, 3_000), st.integers(1, 5_000), st.floats(0, 1), st.integers(0, 99))
def test_many_numbers_match_as_a_dictionary_look_up(
    span: tuple[int, int], source: int, target: int, known: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    keys = np.unique(random.integers(*span, source, endpoint=True))
    random.shuffle(keys)
    wanted = random.integers(*span, target, endpoint=True)
    if len(keys):
        wanted = np.where(random.random(target) < known, random.choice(keys, target), wanted)
    by_key = {key: number for number, key in enumerate(keys.tolist())}
    found = KeyMatcher([pa.array(keys)]).match([pa.array(wanted)])
    assert found.tolist() == [by_key.get(key, UNMATCHED) for key in wanted.tolist()]

"""Values of every type that can have a bloom filter, and keys that equal them in other types.

Used by the tests of bloom filters, here and with other engines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

#: Lengths at which the algorithm of hashing takes another turn.
LENGTHS = (0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 39, 63, 64, 65, 99, 300)


@dataclass(frozen=True)
class FilterKind:
    """A type, its values, and other types in which a key may come that equals one of them."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    keys: tuple[pa.DataType, ...] = ()


def _money(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return (
        (st.sampled_from([0, 1, -1, most, -most, 128, -129, 255]) | st.integers(-most, most))
        .filter(lambda number: abs(number) <= most)
        .map(lambda number: Decimal(f"{number}e-{scale}"))
    )


def _floats(width: int) -> st.SearchStrategy[float]:
    return st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5]) | st.floats(width=width)


_bytes = st.sampled_from(LENGTHS).flatmap(lambda size: st.binary(min_size=size, max_size=size))
_moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001
KINDS: dict[str, FilterKind] = {
    "int": FilterKind(pa.int32(), st.integers(-(2**31), 2**31 - 1), (pa.int64(),)),
    "long": FilterKind(pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": FilterKind(pa.int64(), st.integers(-3, 3), (pa.int32(),)),
    "float": FilterKind(pa.float32(), _floats(32), (pa.float64(),)),
    "double": FilterKind(pa.float64(), _floats(64)),
    "day": FilterKind(pa.date32(), st.dates()),
    "time": FilterKind(pa.time64("us"), st.times()),
    "local": FilterKind(pa.timestamp("us"), _moments),
    "moment": FilterKind(pa.timestamp("us", "UTC"), _moments.map(lambda one: one.replace(tzinfo=UTC))),
    "money": FilterKind(pa.decimal128(9, 2), _money(9, 2), (pa.decimal128(20, 2), pa.decimal128(20, 6))),
    "more": FilterKind(pa.decimal128(18, 4), _money(18, 4), (pa.decimal128(30, 4), pa.decimal128(38, 9))),
    "most": FilterKind(pa.decimal128(38, 10), _money(38, 10)),
    "wide": FilterKind(pa.decimal128(20, 0), _money(20, 0), (pa.decimal128(30, 5),)),
    "text": FilterKind(pa.string(), st.text(max_size=12) | _bytes.map(lambda one: one.hex())),
    "bytes": FilterKind(pa.binary(), _bytes),
    "fixed": FilterKind(pa.binary(5), st.binary(min_size=5, max_size=5)),
    "uuid": FilterKind(pa.uuid(), st.binary(min_size=16, max_size=16)),
}


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array; uuids are given by their bytes."""
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    return pa.array(values, kind)

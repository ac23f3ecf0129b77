"""Puts rows in key order: by one sort of plain numbers that hold a row's keys and its place, wherever these fit.

Processors sort plain numbers by vector instructions, ten times as fast as they sort row numbers by what they point to,
and keys come back out of the sorted numbers without a look at where they came from. Pure: nothing is read or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property

from skipstone.kernels.canonical import Int64s

#: Rows made at a time: so few that they stay in a processor's cache from one step to the next.
CHUNK_ROWS = 64 * 1024
_SORTABLE_BITS = 63
_WIDEST = 64


@dataclass(frozen=True)
class Ordered:
    """Some neighbors in key order: their ``keys``, a column each, and of each the number of its stretch and its offset
    in that stretch.
    """

    keys: tuple[pa.Array, ...]
    stretches: Int64s
    offsets: Int64s


def in_key_order(columns: Sequence[Sequence[pa.Array]], rows: Sequence[int]) -> Iterator[Ordered]:
    """All rows by key, nulls last; rows of equal keys stay in the order of stretch and offset.

    ``columns``: of each key column its values in each stretch. ``rows``: how many each stretch has, at least one.
    """
    packed = _packed(columns, rows)
    return _indirectly(columns, rows) if packed is None else packed.ordered()


def sort_order(keys: Sequence[pa.Array]) -> Int64s:
    """Where the rows stand in key order, nulls last; rows of equal keys keep theirs."""
    if not len(keys[0]):
        return np.empty(0, np.int64)
    packed = _packed([[key] for key in keys], [len(keys[0])])
    return _order(keys) if packed is None else packed.offsets()


def _order(keys: Sequence[pa.Array]) -> Int64s:
    names = [str(at) for at in range(len(keys))]
    by = [(name, "ascending") for name in names]
    sorted_rows = pc.sort_indices(pa.table(list(keys), names=names), sort_keys=by)
    return np.asarray(sorted_rows.to_numpy(), dtype=np.int64)


def _indirectly(columns: Sequence[Sequence[pa.Array]], rows: Sequence[int]) -> Iterator[Ordered]:
    keys = [pa.concat_arrays(parts) for parts in columns]
    order = _order(keys)
    stretches = np.repeat(np.arange(len(rows), dtype=np.int64), rows)
    starts = np.cumsum([0, *rows[:-1]])
    for start in range(0, len(order), CHUNK_ROWS):
        taken = order[start : start + CHUNK_ROWS]
        of = stretches[taken]
        yield Ordered(tuple(key.take(pa.array(taken)) for key in keys), of, taken - starts[of])


@dataclass(frozen=True)
class _Digits:
    """How the values of a key column become numbers from zero; ``null`` stands for null and is the greatest."""

    kind: pa.DataType
    least: int
    null: int
    has_nulls: bool

    @cached_property
    def width(self) -> int:
        """In bits."""
        return self.null.bit_length()

    def of(self, key: pa.Array) -> Int64s:
        """The values as such numbers."""
        if key.null_count == len(key):
            return np.full(len(key), self.null)
        plain = _as_integers(key)
        filled = plain.cast(pa.int64()).fill_null(self.least) if plain.null_count else plain
        numbers: Int64s = np.subtract(filled.to_numpy(), self.least, dtype=np.int64)
        if plain.null_count:
            numbers[plain.is_null().to_numpy(zero_copy_only=False)] = self.null
        return numbers

    def values(self, numbers: Int64s) -> pa.Array:
        """The values back."""
        mask = numbers == self.null if self.has_nulls else None
        integers = pa.array(numbers + self.least, mask=mask)
        if self.kind == integers.type:
            return integers
        if self.kind.bit_width == _WIDEST:
            return integers.view(self.kind)
        return integers.cast(pa.int32()).view(self.kind)


def _digits(key: Sequence[pa.Array]) -> _Digits | None:
    kind = key[0].type
    if not (pa.types.is_temporal(kind) or pa.types.is_int64(kind)):
        return None
    bounds = pc.min_max(pa.chunked_array([_as_integers(part) for part in key]))
    least, greatest = (value.as_py() for value in bounds.values())
    has_nulls = any(part.null_count for part in key)
    return _Digits(kind, 0, 0, has_nulls) if least is None else _Digits(kind, least, greatest - least + 1, has_nulls)


def _as_integers(key: pa.Array) -> pa.Array:
    """Dates, times and timestamps as the numbers that they are stored as, which order as they do."""
    if pa.types.is_temporal(key.type):
        return key.view(pa.int64() if key.type.bit_width == _WIDEST else pa.int32())
    return key


@dataclass(frozen=True)
class _Packed:
    """Sorted numbers: the digits of each key, then the number of the stretch, then the offset in it."""

    numbers: Int64s
    keys: tuple[_Digits, ...]
    stretch_bits: int
    offset_bits: int

    def offsets(self) -> Int64s:
        """Of all rows; what is packed is gone afterwards."""
        numbers = self.numbers
        numbers &= _mask(self.offset_bits)
        return numbers

    def ordered(self) -> Iterator[Ordered]:
        """All rows, some at a time."""
        for start in range(0, len(self.numbers), CHUNK_ROWS):
            yield self._unpacked(self.numbers[start : start + CHUNK_ROWS])

    def _unpacked(self, numbers: Int64s) -> Ordered:
        offsets = numbers & _mask(self.offset_bits)
        left = numbers >> self.offset_bits
        stretches = left & _mask(self.stretch_bits)
        left >>= self.stretch_bits
        keys = []
        for digits in reversed(self.keys):
            keys.append(digits.values(left & _mask(digits.width)))
            left >>= digits.width
        return Ordered(tuple(reversed(keys)), stretches, offsets)


def _mask(bits: int) -> int:
    return (1 << bits) - 1


def _packed(columns: Sequence[Sequence[pa.Array]], rows: Sequence[int]) -> _Packed | None:
    """All rows as sorted numbers; None when these do not fit into 63 bits."""
    keys = []
    for column in columns:
        if (digits := _digits(column)) is None:
            return None
        keys.append(digits)
    stretch_bits, offset_bits = (len(rows) - 1).bit_length(), (max(rows) - 1).bit_length()
    if sum(digits.width for digits in keys) + stretch_bits + offset_bits > _SORTABLE_BITS:
        return None
    packed = _Packed(np.zeros(sum(rows), np.int64), tuple(keys), stretch_bits, offset_bits)
    _pack(packed, columns, rows)
    packed.numbers.sort()
    return packed


def _pack(packed: _Packed, columns: Sequence[Sequence[pa.Array]], rows: Sequence[int]) -> None:
    ordinals, start = np.arange(max(rows)), 0
    for number, count in enumerate(rows):
        part: npt.NDArray[np.int64] = packed.numbers[start : start + count]
        for digits, column in zip(packed.keys, columns, strict=True):
            part <<= digits.width
            part |= digits.of(column[number])
        part <<= packed.stretch_bits + packed.offset_bits
        part |= ordinals[:count]
        part |= number << packed.offset_bits
        start += count

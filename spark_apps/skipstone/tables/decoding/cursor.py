"""A vectorized Avro cursor: one NumPy step reads one field of all records at once.

Used by the manifest decoder only. Each record has its own position in one shared payload. Bytes that the format does
not allow raise NotDecodable, never a wrong value. Must not know manifests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skipstone.tables.decoding.avro import AvroRecord, AvroType, Fixed, NotDecodable, Nullable, Repeated, Sized, Varint

Ints = npt.NDArray[np.int64]
#: Records by number; ALL is every record, without the cost of naming them.
Rows = Ints | slice
ALL = slice(None)
#: Zeros that must follow a payload: a varint is fetched as two words of eight bytes.
PADDING = bytes(24)

_TOP_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
#: Steps that close the gaps which the top bits leave: mask of what stays, mask of what moves, by how much.
_FOLDS = tuple(
    (np.uint64(stays), np.uint64(moves), np.uint64(by))
    for stays, moves, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


@dataclass(frozen=True)
class Spans:
    """Byte ranges in the payload, ascending."""

    starts: Ints
    ends: Ints


class Cursor:
    """Reading positions in ``payload`` (which ends with PADDING), one per record; none may pass its limit."""

    def __init__(self, payload: bytes, at: Ints, limits: Ints) -> None:
        """Start record i at byte ``at[i]``; it ends at ``limits[i]``."""
        self.at = at.copy()
        self._limits = limits
        self._bytes = np.frombuffer(payload, np.uint8)
        self._words = np.ndarray((len(payload) - 7,), np.dtype("<u8"), payload, strides=(1,))

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.at)

    def longs(self, rows: Rows = ALL) -> Ints:
        """Read an int or long in each of ``rows``."""
        at = self.at[rows]
        first = self._bytes[at]
        if (first < 128).all():
            self.at[rows] = at + 1
            return _unzigzag(first.astype(np.uint64))
        raw, sizes = self._varints(at)
        self.at[rows] = at + sizes
        return _unzigzag(raw)

    def spans(self, rows: Rows = ALL) -> Spans:
        """Read a string or bytes in each of ``rows``."""
        sizes = self.longs(rows)
        starts = self.at[rows].copy()
        self.skip(sizes, rows)
        return Spans(starts, starts + sizes)

    def skip(self, sizes: Ints | int, rows: Rows = ALL) -> None:
        """Pass over ``sizes`` bytes. The one step that finds a record beyond its limit."""
        ends = self.at[rows] + sizes
        _require((np.asarray(sizes) >= 0).all() and (ends <= self._limits[rows]).all())
        self.at[rows] = ends

    def present(self, rows: Rows = ALL) -> Rows:
        """Read the branch of a union of null and one other type; the rows that have the other."""
        branches = self.longs(rows)
        if (branches == 1).all():
            return rows
        _require(((branches == 0) | (branches == 1)).all())
        having: Ints = self._numbers(rows)[branches == 1]
        return having

    def turns(self, rows: Rows = ALL) -> Iterator[tuple[Rows, Ints]]:
        """Pass through an array or map: yields, item after item, the rows that have one more and its ordinal there.

        Who takes a turn must read the item in all rows that it names.
        """
        done = np.zeros(len(self), np.int64)
        counts = self._block_counts(rows)
        while counts.any():
            for turn in range(int(counts.max())):
                active = rows if (counts > turn).all() else self._numbers(rows)[counts > turn]
                yield active, done[active] + turn
            done[rows] += counts
            rows = self._numbers(rows)[counts > 0] if (counts == 0).any() else rows
            counts = self._block_counts(rows)

    def pass_over(self, kind: AvroType, rows: Rows = ALL) -> None:
        """Pass over a value of type ``kind`` in each of ``rows``."""
        match kind:
            case Varint():
                self.longs(rows)
            case Sized():
                self.spans(rows)
            case Fixed(width):
                self.skip(width, rows)
            case Nullable(inner):
                self.pass_over(inner, self.present(rows))
            case Repeated(item):
                self._pass_over_items(item, rows)
            case AvroRecord(fields):
                for _, field in fields:
                    self.pass_over(field, rows)

    def _pass_over_items(self, item: AvroType, rows: Rows) -> None:
        for active, _ in self.turns(rows):
            self.pass_over(item, active)

    def _block_counts(self, rows: Rows) -> Ints:
        """Items of the next block of an array; a negative count is followed by the block's size in bytes."""
        counts = self.longs(rows)
        if (counts < 0).any():
            self.longs(self._numbers(rows)[counts < 0])
            counts = np.abs(counts)
        _require(((counts >= 0) & (counts <= self._limits[rows] - self.at[rows])).all())
        return counts

    def _numbers(self, rows: Rows) -> Ints:
        return np.arange(len(self)) if isinstance(rows, slice) else rows

    def _varints(self, at: Ints) -> tuple[npt.NDArray[np.uint64], Any]:
        """Varints of up to ten bytes and their sizes, as bit operations on the eight bytes from ``at`` on."""
        words = self._words[at]
        stops = ~words & _TOP_BITS
        used = (stops & -stops) - np.uint64(1)
        sizes = (np.bitwise_count(used) >> 3) + np.uint8(1)
        raw = words & used & _LOW_BITS
        for stays, moves, by in _FOLDS:
            raw = (raw & stays) | ((raw & moves) >> by)
        if (sizes > 8).any():
            self._extend(at, raw, sizes)
        return raw, sizes

    def _extend(self, at: Ints, raw: npt.NDArray[np.uint64], sizes: Any) -> None:
        """Complete the varints whose first eight bytes all say that more follow."""
        long = np.flatnonzero(sizes > 8)
        ninth, tenth = (self._bytes[at[long] + place].astype(np.uint64) for place in (8, 9))
        more = ninth >= 128
        _require((tenth[more] <= 1).all())
        tail = (ninth & np.uint64(127)) << np.uint64(56)
        raw[long] |= np.where(more, tail | (tenth << np.uint64(63)), tail)
        sizes[long] = np.where(more, 10, 9)


def _unzigzag(raw: npt.NDArray[np.uint64]) -> Ints:
    bit = np.uint64(1)
    return ((raw >> bit) ^ -(raw & bit)).view(np.int64)


def _require(condition: object) -> None:
    if not condition:
        raise NotDecodable("the records do not keep to their schema")

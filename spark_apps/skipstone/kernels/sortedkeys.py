"""Sorted source keys that the bounds of many files are searched in: int64, or bytes by words of eight.

Used by key-range search (files) and by index probes (row groups). Must not read files: bounds come as arrays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property

from skipstone.kernels.canonical import Int64s, int64s

#: Longer keys are searched by their first bytes: files may then be candidates for nothing, never the other way.
MAX_WIDTH = 64
_WORD = 8
Words = npt.NDArray[np.uint64]
FixedBytes = npt.NDArray[np.bytes_]


class SortedKeys:
    """Canonical keys in ascending order, without nulls."""

    def __init__(self, keys: pa.Array) -> None:
        """``keys``: int64 or large_binary."""
        self._keys = keys
        self._numbers = int64s(keys) if pa.types.is_int64(keys.type) else None

    def __len__(self) -> int:
        """How many."""
        return len(self._keys)

    def slices(self, lower: pa.Array, upper: pa.Array) -> tuple[Int64s, Int64s]:
        """Half-open slices of the keys within [lower, upper]; what they are for null bounds means nothing."""
        if self._numbers is not None:
            return self._numbers.searchsorted(int64s(lower)), self._numbers.searchsorted(int64s(upper), side="right")
        if not len(self):
            return np.zeros(len(lower), dtype=np.int64), np.zeros(len(upper), dtype=np.int64)
        return self._places(lower, is_upper=False), self._places(upper, is_upper=True)

    def _places(self, wanted: pa.Array, *, is_upper: bool) -> Int64s:
        """By the eight bytes after the prefix that all keys share; what these leave open, by all bytes."""
        wanted = pc.fill_null(wanted, b"")
        words = words_of(wanted, len(self._prefix))
        places = self._words.searchsorted(words)
        unsure = np.flatnonzero(self._words[np.minimum(places, len(self) - 1)] == words)
        if len(unsure):
            bounds = fixed_bytes(wanted.take(pa.array(unsure)), self._width)
            places[unsure] = self._fixed.searchsorted(bounds, side="right" if is_upper else "left")
        if self._prefix:
            head = pc.binary_slice(wanted, 0, len(self._prefix))
            places[_numpy(pc.less(head, self._prefix_scalar))] = 0
            places[_numpy(pc.greater(head, self._prefix_scalar))] = len(self)
        return places

    @cached_property
    def _prefix(self) -> bytes:
        first, last = self._keys[0].as_py(), self._keys[-1].as_py()
        same = (i for i in range(MAX_WIDTH - _WORD) if first[i : i + 1] != last[i : i + 1] or i == len(first))
        return bytes(first[: next(same, MAX_WIDTH - _WORD)])

    @cached_property
    def _prefix_scalar(self) -> pa.Scalar:
        return pa.scalar(self._prefix, pa.large_binary())

    @cached_property
    def _words(self) -> Words:
        return words_of(self._keys, len(self._prefix))

    @cached_property
    def _width(self) -> int:
        """One byte more than the longest key, by which a longer bound is told from it."""
        return min(MAX_WIDTH, int(pc.max(pc.binary_length(self._keys)).as_py()) + 1)

    @cached_property
    def _fixed(self) -> FixedBytes:
        return fixed_bytes(self._keys, self._width)


def words_of(values: pa.Array, start: int) -> Words:
    """Eight bytes from ``start`` of each value as a number that orders as they do; missing bytes are zero."""
    matrix = _matrix(values, start, _WORD)
    return np.asarray(matrix.view(">u8").reshape(-1), dtype=np.uint64)


def fixed_bytes(values: pa.Array, width: int) -> FixedBytes:
    """The first ``width`` bytes of each value, filled up with zeros, which NumPy does not tell from missing ones."""
    return _matrix(values, 0, width).view(f"S{width}").reshape(-1)


def _matrix(values: pa.Array, start: int, width: int) -> npt.NDArray[np.uint8]:
    """Bytes [start, start + width) of each value, one row per value; missing bytes are zero."""
    _, offset_buffer, data_buffer = values.buffers()
    ends = np.frombuffer(offset_buffer, np.int64)[values.offset : values.offset + len(values) + 1]
    matrix = np.zeros((len(values), width), np.uint8)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else matrix.reshape(-1)
    if len(data):
        for column in range(width):
            at = ends[:-1] + (start + column)
            np.copyto(matrix[:, column], data[np.minimum(at, len(data) - 1)], where=at < ends[1:])
    return matrix


def _numpy(mask: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)

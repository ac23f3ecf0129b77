"""In which bucket of a covering index a key is: by the hash that Spark shuffles by.

Builds divide entries by it; queries read a bucket as the partition of a shuffle that Spark does not have to make, and
compare this hash with Spark's own first. The algorithm is Spark's variant of MurmurHash3 (x86, 32 bit, seed 42): see
``Murmur3_x86_32.hashUnsafeBytes`` of Spark, which mixes in trailing bytes one by one. Must not read files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
_Hashes = npt.NDArray[np.uint32]
_SEED = 42
_WORD = 4
#: Rows that are hashed at a time: so few stay in the processor's cache.
_STRETCH = 32 * 1024
_INTS = re.compile("boolean|date")
_BYTES = re.compile("string|binary")


@dataclass(frozen=True)
class Buckets:
    """The buckets of an index: how many, and the storage types of its keys."""

    count: int
    storages: tuple[str, ...]

    def of(self, keys: Sequence[pa.Array]) -> npt.NDArray[np.uint16]:
        """The bucket of each row of stored keys, a column each."""
        buckets = np.empty(len(keys[0]), np.uint16)
        for start in range(0, len(buckets), _STRETCH):
            hashes = key_hashes([key.slice(start, _STRETCH) for key in keys], self.storages)
            buckets[start : start + _STRETCH] = np.mod(hashes.view(np.int32), np.int32(self.count))
        return buckets

    def split(self, keys: Sequence[pa.Array], order: Int64s) -> Iterator[tuple[int, Int64s]]:
        """The rows in ``order`` bucket by bucket, each in that order; buckets without rows are left out."""
        buckets = self.of(keys)[order]
        order = order[np.argsort(buckets, kind="stable")]
        ends = np.bincount(buckets, minlength=self.count).cumsum()
        for bucket, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                yield bucket, order[start:end]


def key_hashes(keys: Sequence[pa.Array], storages: Sequence[str]) -> _Hashes:
    """Spark's ``hash`` of each row of stored keys: columns one after the other, nulls leave the hash as it is."""
    hashes: _Hashes = np.full(len(keys[0]), _SEED, np.uint32)
    with np.errstate(over="ignore"):
        for key, storage in zip(keys, storages, strict=True):
            hashed = _hashed(key, storage, hashes)
            if key.null_count:
                hashed = np.where(pc.is_null(key).to_numpy(zero_copy_only=False), hashes, hashed)
            hashes = hashed
    return hashes


def _hashed(key: pa.Array, storage: str, seeds: _Hashes) -> _Hashes:
    if _BYTES.fullmatch(storage):
        return _of_bytes(key, seeds)
    if _INTS.fullmatch(storage):
        return _finished(_mixed(seeds, _plain(key, pa.int32()).view(np.uint32)), _WORD)
    numbers = _unscaled(key) if pa.types.is_decimal(key.type) else _plain(key, pa.int64())
    words = np.ascontiguousarray(numbers).view(np.uint32).reshape(-1, 2)
    return _finished(_mixed(_mixed(seeds, words[:, 0]), words[:, 1]), 2 * _WORD)


def _plain(key: pa.Array, kind: pa.DataType) -> npt.NDArray[np.int32 | np.int64]:
    numbers = key.cast(kind) if pa.types.is_boolean(key.type) else key.view(kind)
    filled: npt.NDArray[np.int32 | np.int64] = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return filled


def _unscaled(key: pa.Array) -> Int64s:
    """The lower half of decimals, which is all of those with few digits."""
    halves = np.frombuffer(key.buffers()[1], np.int64)
    return halves[2 * key.offset : 2 * (key.offset + len(key)) : 2]


def _of_bytes(key: pa.Array, seeds: _Hashes) -> _Hashes:
    """Word by word of all values that have so many, then the bytes that are left."""
    offsets = np.frombuffer(key.buffers()[1], np.int32)[key.offset : key.offset + len(key) + 1]
    held = key.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    hashes, words = seeds.copy(), lengths // _WORD
    rows = np.flatnonzero(words > 0)
    number = 0
    while len(rows):
        at = starts[rows] + _WORD * number
        taken = np.zeros(len(rows), np.uint32)
        for byte in range(_WORD):
            taken |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        hashes[rows] = _mixed(hashes[rows], taken)
        number += 1
        rows = rows[words[rows] > number]
    for byte in range(_WORD - 1):
        rows = np.flatnonzero(lengths % _WORD > byte)
        last = data[starts[rows] + words[rows] * _WORD + byte].view(np.int8)
        hashes[rows] = _mixed(hashes[rows], last.astype(np.int32).view(np.uint32))
    return _finished(hashes, lengths.astype(np.uint32))


def _mixed(hashes: _Hashes, words: _Hashes) -> _Hashes:
    """Hashes with one more word each."""
    words = _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(words: _Hashes, bits: int) -> _Hashes:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finished(hashes: _Hashes, length: _Hashes | int) -> _Hashes:
    hashes = hashes ^ np.uint32(length) if isinstance(length, int) else hashes ^ length
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    return hashes ^ (hashes >> np.uint32(16))

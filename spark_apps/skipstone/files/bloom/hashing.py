"""XXH64 of many values at once, as Parquet's bloom filters take it: with seed 0, of each value's plain encoding.

Used by ``values``. All values go through each step of the algorithm together, so that the cost is that of the bytes
and not that of the values. Source: the XXH64 specification of Cyan4973/xxHash. Must not know Parquet's types.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE = 32
_LANES = (1, 7, 12, 18)
#: Bytes of values that are hashed at once: more would not fit the processor's caches.
_AT_ONCE = 16 * 1024 * 1024


def hashes_of_words(words: npt.NDArray[np.uint64]) -> Hashes:
    """Of values of eight bytes each, given as little-endian numbers."""
    with np.errstate(over="ignore"):
        return _avalanche(_with_word(np.full(len(words), _P5 + np.uint64(8)), words))


def hashes_of_halves(halves: npt.NDArray[np.uint32]) -> Hashes:
    """Of values of four bytes each, given as little-endian numbers."""
    with np.errstate(over="ignore"):
        return _avalanche(_with_half(np.full(len(halves), _P5 + np.uint64(4)), halves.astype(np.uint64)))


def hashes_of_bytes(values: pa.Array) -> Hashes:
    """Of texts or bytes without nulls; a length that Parquet stores before a value is not a part of it."""
    if pa.types.is_fixed_size_binary(values.type):
        values = pc.cast(values, pa.binary())
    values = pc.cast(values, pa.large_binary())
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    hashes = np.empty(len(values), np.uint64)
    with np.errstate(over="ignore"):
        for part in _parts(offsets):
            hashes[part] = _hashes(content, offsets[part], np.diff(offsets)[part])
    return hashes


def _parts(offsets: _Places) -> list[_Places]:
    """Numbers of values that are hashed at once, those of similar lengths together."""
    order = np.argsort(np.diff(offsets), kind="stable")
    ends = np.cumsum(np.diff(offsets)[order] + _STRIPE)
    return np.split(order, np.flatnonzero(np.diff(ends // _AT_ONCE)) + 1)


def _hashes(content: npt.NDArray[np.uint8], starts: _Places, lengths: _Places) -> Hashes:
    """Of the values of so many bytes from ``starts`` on, which are sorted by length."""
    words, halves = _view(content, np.uint64), _view(content, np.uint32)
    hashes = _stripes(words, starts, lengths) + lengths.astype(np.uint64)
    at, rest = starts + lengths // _STRIPE * _STRIPE, lengths % _STRIPE
    for number in range(3):
        mine = np.flatnonzero(rest >= 8 * (number + 1))
        hashes[mine] = _with_word(hashes[mine], words[at[mine] + 8 * number])
    at, rest = at + rest // 8 * 8, rest % 8
    mine = np.flatnonzero(rest >= 4)
    hashes[mine] = _with_half(hashes[mine], halves[at[mine]].astype(np.uint64))
    at, rest = at + rest // 4 * 4, rest % 4
    for number in range(3):
        mine = np.flatnonzero(rest > number)
        hashes[mine] = _with_byte(hashes[mine], content[at[mine] + number].astype(np.uint64))
    return _avalanche(hashes)


def _view(content: npt.NDArray[np.uint8], kind: type[np.uint64 | np.uint32]) -> npt.NDArray[np.unsignedinteger]:
    """The numbers that begin at each byte; none where too few bytes are left."""
    size = np.dtype(kind).itemsize
    if len(content) < size:
        return np.zeros(0, kind)
    return np.ndarray(len(content) - size + 1, np.dtype(kind).newbyteorder("<"), content.data, 0, (1,))


def _stripes(words: npt.NDArray[np.unsignedinteger], starts: _Places, lengths: _Places) -> Hashes:
    """Return the hashes of the first bytes of each value, 32 at a time; short values have none."""
    first = int(np.searchsorted(lengths, _STRIPE))
    hashes = np.full(len(starts), _P5)
    lanes = [np.full(len(starts) - first, seed) for seed in (_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1)]
    starts, stripes = starts[first:], lengths[first:] // _STRIPE
    for number in range(int(stripes.max(initial=0))):
        mine = slice(int(np.searchsorted(stripes, number, side="right")), None)
        for lane, values in enumerate(lanes):
            values[mine] = _round(values[mine], words[starts[mine] + (_STRIPE * number + 8 * lane)])
    if len(starts):
        merged = _rotated(lanes[0], 1)
        for values, bits in zip(lanes[1:], _LANES[1:], strict=True):
            merged += _rotated(values, bits)
        for values in lanes:
            merged = (merged ^ _round(np.zeros_like(values), values)) * _P1 + _P4
        hashes[first:] = merged
    return hashes


def _round(lane: Hashes, word: npt.NDArray[np.unsignedinteger]) -> Hashes:
    return _rotated(lane + word.astype(np.uint64) * _P2, 31) * _P1


def _with_word(hashes: Hashes, word: npt.NDArray[np.unsignedinteger]) -> Hashes:
    return _rotated(hashes ^ _round(np.zeros_like(hashes), word), 27) * _P1 + _P4


def _with_half(hashes: Hashes, half: Hashes) -> Hashes:
    return _rotated(hashes ^ (half * _P1), 23) * _P2 + _P3


def _with_byte(hashes: Hashes, byte: Hashes) -> Hashes:
    return _rotated(hashes ^ (byte * _P5), 11) * _P1


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))

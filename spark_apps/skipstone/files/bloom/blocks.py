"""Split block bloom filters: which hashes a filter may hold, and how to enter some.

Used by ``reading`` and ``sealing``. Source: BloomFilter.md of apache/parquet-format. Must not know what was hashed, or
where a filter lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skipstone.files.bloom.hashing import Hashes
from skipstone.tables.parquet.thrift import CompactReader

#: Numbers of 32 bits, those of a block one after the other.
Bits = npt.NDArray[np.uint32]
BLOCK_BYTES = 32
#: Of each hash, one in each word of a block.
BITS_SET = 8
_WORDS = 8
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
#: More than a header takes.
HEADER_BYTES = 256
#: No filter is larger: what says so is not a filter.
MOST_BYTES = 128 * 1024 * 1024
#: The one algorithm, hash and compression that there are, each the first of a union.
_KNOWN: dict[int, dict[int, object]] = {1: {}}


@dataclass(frozen=True)
class FilterHeader:
    """The header of a filter: its own size, and that of the bits, in bytes."""

    size: int
    bits: int

    @property
    def blocks(self) -> int:
        """How many blocks the bits are."""
        return self.bits // BLOCK_BYTES


def read_header(begin: bytes) -> FilterHeader | None:
    """The header in the first bytes of a filter; None for a filter of a kind that is not known, or none at all."""
    try:
        struct = CompactReader(begin).struct()
        bits, kinds = struct[1], [struct[number] for number in (2, 3, 4)]
    except (LookupError, ValueError, TypeError):
        return None
    is_sound = isinstance(bits, int) and 0 < bits <= MOST_BYTES and bits % BLOCK_BYTES == 0
    return FilterHeader(len(struct.raw), bits) if is_sound and kinds == [_KNOWN] * 3 else None


def blocks_of(hashes: Hashes, blocks: int) -> npt.NDArray[np.int64]:
    """The block of each hash in a filter of so many ``blocks``."""
    return (((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)).astype(np.int64)


def may_hold(bits: Bits, at: npt.NDArray[np.int64], hashes: Hashes) -> npt.NDArray[np.bool_]:
    """Return a mask: whether the block of ``bits`` at each place ``at`` holds each of ``hashes``.

    Most of those that are not there are told by the first word, so that later ones are looked up for few.
    """
    low, left = hashes.astype(np.uint32), np.arange(len(hashes))
    for word, salt in enumerate(_SALTS):
        is_set = (bits[at[left] * _WORDS + word] >> _shifts(low[left], salt)) & np.uint32(1)
        left = left[is_set.astype(np.bool_)]
    held = np.zeros(len(hashes), np.bool_)
    held[left] = True
    return held


def enter(bits: Bits, hashes: Hashes) -> None:
    """Set the bits of ``hashes``."""
    at = blocks_of(hashes, len(bits) // _WORDS) * _WORDS
    for word, salt in enumerate(_SALTS):
        np.bitwise_or.at(bits, at + word, np.uint32(1) << _shifts(hashes.astype(np.uint32), salt))


def _shifts(low: Bits, salt: np.uint32) -> Bits:
    with np.errstate(over="ignore"):
        return (low * salt) >> np.uint32(27)

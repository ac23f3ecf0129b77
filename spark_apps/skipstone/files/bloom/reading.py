"""Bloom filters read from files: as much of one as the keys need, by ranges, checked where it has checksums.

Used by ``probing``. Few keys need few pieces of a large filter. Whatever is not as it should be makes every key one
that may be there. Must not know what was hashed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from skipstone.files.bloom.blocks import (
    BITS_SET,
    BLOCK_BYTES,
    HEADER_BYTES,
    FilterHeader,
    blocks_of,
    may_hold,
    read_header,
)
from skipstone.files.bloom.hashing import Hashes
from skipstone.files.bloom.sealing import PIECE_BYTES, read_checks
from skipstone.files.footers import Source, read_at

Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]
#: Larger filters are not read: with one in each thread, memory stays bounded.
MOST_READ_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class FilterPlace:
    """Where the filter of a column chunk lies. ``length``: in bytes, header included; None: only the header says it.

    ``checks``: CRC-32 of each piece, None when its writer told none. ``values``: that the chunk holds, nulls aside.
    """

    offset: int
    length: int | None
    checks: tuple[int, ...] | None
    values: int

    @classmethod
    def of(cls, chunk: pq.ColumnChunkMetaData) -> FilterPlace | None:
        """That of a column chunk of a footer; None when it has no filter."""
        if chunk.bloom_filter_offset is None or chunk.file_path:  # a chunk in another file has its filter there
            return None
        checks = read_checks(chunk.metadata)
        nulls = (chunk.statistics.null_count or 0) if chunk.statistics is not None else 0
        return cls(chunk.bloom_filter_offset, chunk.bloom_filter_length, checks, chunk.num_values - nulls)

    def size(self, unknown: int) -> int:
        """Bytes of the filter; ``unknown`` when only the header says it."""
        return unknown if self.length is None else self.length


@dataclass(frozen=True)
class FilterAnswer:
    """Which hashes a filter may hold, how often it says so in vain, and how many bytes of it were read."""

    holds: Mask
    rate: float
    bytes: int


def read_filter(source: Source, place: FilterPlace, hashes: Hashes) -> FilterAnswer:
    """Return the answer of the filter at ``place`` for ``hashes``. Raises OSError if the storage does not answer."""
    try:
        return _Reading(source, place).find(hashes)
    except (ValueError, LookupError):  # the file is not as its footer says
        return FilterAnswer(np.ones(len(hashes), np.bool_), 1.0, 0)


@dataclass(frozen=True)
class _Reading:
    """One filter of an open file."""

    source: Source
    place: FilterPlace

    def find(self, hashes: Hashes) -> FilterAnswer:
        """Return its answer. Raises ValueError or LookupError for bytes that are not a whole filter."""
        begin = self._begin()
        header = read_header(begin)
        if (
            header is None
            or header.bits > MOST_READ_BYTES
            or self.place.length not in (None, header.size + header.bits)
        ):
            raise ValueError("no filter of a known kind")
        at = blocks_of(hashes, header.blocks)
        bits, read = np.zeros(header.bits, np.uint8), 0
        for number, content in self._pieces(header, begin, _pieces_of(at, header)):
            start = number * PIECE_BYTES - header.size
            bits[max(start, 0) : start + len(content)] = np.frombuffer(content, np.uint8)[max(-start, 0) :]
            read += len(content)
        words = bits.view("<u4")
        if self.place.values and read == header.size + header.bits and not words.any():
            raise ValueError("a filter of values has no bit set")  # as where a storage lost it
        is_set = int(np.bitwise_count(words).sum()) / (8 * max(read - header.size, 1))
        return FilterAnswer(may_hold(words, at, hashes), min(1.0, is_set) ** BITS_SET, read)

    def _begin(self) -> bytes:
        """The first piece, or at least the header."""
        if self.place.length is not None:
            return read_at(self.source, self.place.offset, min(self.place.length, PIECE_BYTES))
        self.source.seek(self.place.offset)
        return bytes(self.source.read(HEADER_BYTES))

    def _pieces(self, header: FilterHeader, begin: bytes, numbers: _Numbers) -> Iterator[tuple[int, bytes]]:
        """The pieces of these numbers. Raises ValueError for one that is not what was written."""
        size, offset = header.size + header.bits, self.place.offset
        spans = [(number * PIECE_BYTES, min(size, (number + 1) * PIECE_BYTES)) for number in numbers.tolist()]
        self._prefetch([(offset + start, offset + end) for start, end in spans if end > len(begin)])
        for number, (start, end) in zip(numbers.tolist(), spans, strict=True):
            content = begin[start:end] if end <= len(begin) else read_at(self.source, offset + start, end - start)
            if self.place.checks is not None and self.place.checks[number] != zlib.crc32(content):
                raise ValueError("a filter is not the one that was written")
            yield number, content

    def _prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        if ranges and (prefetch := getattr(self.source, "prefetch", None)) is not None:
            prefetch(ranges)


def _pieces_of(at: _Numbers, header: FilterHeader) -> _Numbers:
    """The numbers of the pieces that hold the header and the blocks ``at``."""
    starts = header.size + np.unique(at) * BLOCK_BYTES
    ends = starts + BLOCK_BYTES - 1
    return np.unique(np.concatenate([[0], starts // PIECE_BYTES, ends // PIECE_BYTES]))

"""Checksums of bloom filters in the footer, since Parquet has none: a bit that is lost would be a key that is lost.

Used by the writers of data files. A filter of floats that holds a zero is told of the zero of the other sign too: they
are equal, and other readers ask for one of them only. Must not know which columns have filters.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skipstone.files.bloom.blocks import blocks_of, enter, may_hold, read_header
from skipstone.files.bloom.values import hashes_of_floats
from skipstone.files.footers import TAIL
from skipstone.tables.parquet.thrift import CompactReader, Raw, Struct, encode_struct, with_fields

#: Filters are checked, and read, in pieces of so many bytes.
PIECE_BYTES = 64 * 1024
#: Names the checksums among what a column chunk says of itself.
CHECKS = b"skipstone.bloom.crc32"
#: Parquet's numbers of its types of floats.
_FLOATS: dict[int, type[np.floating[Any]]] = {4: np.float32, 5: np.float64}
#: Fields of a column chunk's metadata: its type, what it says of itself, and where its filter is.
_TYPE, _KEY_VALUES, _OFFSET, _LENGTH = 1, 8, 14, 15
_CRC_DIGITS = 8


def checks_of(content: bytes) -> tuple[int, ...]:
    """The CRC-32 of each piece of a filter."""
    pieces = (memoryview(content)[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES))
    return tuple(zlib.crc32(piece) for piece in pieces)


def read_checks(metadata: Mapping[bytes, bytes] | None) -> tuple[int, ...] | None:
    """The checksums in what a column chunk says of itself; None where there are none."""
    text = (metadata or {}).get(CHECKS)
    if text is None:
        return None
    return tuple(int(text[at : at + _CRC_DIGITS], 16) for at in range(0, len(text), _CRC_DIGITS))


@dataclass(frozen=True)
class SealedFilter:
    """A filter as it is written, and the key-value metadata that its column chunk then has."""

    content: bytes
    key_values: list[Raw] | None


def seal_filter(content: bytes, metadata: Struct) -> SealedFilter | None:
    """The filter of a column chunk with ``metadata``; None when it is not the one that was written, or no whole one."""
    if not _is_whole(content):  # other readers would take what follows it for its end
        return None
    known = read_checks({entry[1]: entry.get(2, b"") for entry in metadata.get(_KEY_VALUES, ())})
    if known is not None and known != checks_of(content):
        return None
    kind = _FLOATS.get(metadata[_TYPE])
    if kind is not None:
        content = _with_both_zeros(content, kind)
    value = "".join(f"{check:08x}" for check in checks_of(content)).encode()
    return SealedFilter(content, [*unsealed(metadata), encode_struct({1: CHECKS, 2: value})])


def _is_whole(content: bytes) -> bool:
    """Return whether a filter is of a known kind, and as long as its header says."""
    header = read_header(content)
    return header is not None and header.size + header.bits == len(content)


def unsealed(metadata: Struct) -> list[Raw]:
    """Return the key-value metadata of a column chunk, without checksums."""
    return [Raw(entry.raw) for entry in metadata.get(_KEY_VALUES, ()) if entry[1] != CHECKS]


def _with_both_zeros(content: bytes, kind: type[np.floating[Any]]) -> bytes:
    header, zeros = read_header(content), hashes_of_floats(np.array([0.0, -0.0], kind))
    if header is None:
        return content
    bits = np.frombuffer(content, "<u4", offset=header.size).copy()
    if may_hold(bits, blocks_of(zeros, header.blocks), zeros).any():
        enter(bits, zeros)
    return content[: header.size] + bits.tobytes()


def seal_filters(end: bytes, start: int) -> bytes:
    """The end of a file that Arrow wrote from ``start`` on, filters and footer among it, with sealed filters."""
    sealing = _Sealing(bytearray(end), start)
    length, magic = TAIL.unpack(end[-TAIL.size :])
    footer = CompactReader(end[-TAIL.size - length : -TAIL.size]).struct()
    groups = [with_fields(group.raw, {1: [sealing.chunk(chunk) for chunk in group[1]]}) for group in footer.get(4, ())]
    if not groups:
        return end
    sealed = with_fields(footer.raw, {4: groups})
    return bytes(sealing.end[: -TAIL.size - length]) + sealed + TAIL.pack(len(sealed), magic)


@dataclass(frozen=True)
class _Sealing:
    """The end of a file whose filters are sealed in place."""

    end: bytearray
    start: int

    def chunk(self, chunk: Struct) -> Raw:
        """A column chunk's entry in the footer. Raises ValueError for a filter that lies elsewhere."""
        metadata = chunk[3]
        if _OFFSET not in metadata:
            return Raw(chunk.raw)
        place = slice(metadata[_OFFSET] - self.start, metadata[_OFFSET] - self.start + metadata[_LENGTH])
        sealed = seal_filter(bytes(self.end[place]), metadata)
        if place.start < 0 or sealed is None or len(sealed.content) != metadata[_LENGTH]:
            raise ValueError("a bloom filter is not where the footer says")
        self.end[place] = sealed.content
        return with_fields(chunk.raw, {3: with_fields(metadata.raw, {_KEY_VALUES: sealed.key_values})})

"""Pages: the entries of an index by the hash of their keys, packed into the cells of a key-value store.

A *generation* is what one commit of an index enters. It divides the space of hashes into 2^level pages of about equal
size, and writes a cell for every page, also for one without entries. So a cell that is not there is a loss, and never
an answer: whoever asks for a key knows by the page alone whether the store still has all entries of the generation that
the key may have. Packing is by arrays, and each page is sorted. Must not do I/O.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
#: Bits of a hash that entries keep: false hits stay rare with thousands of millions of entries, and cost time only.
HASH_BITS = 48
MAX_LEVEL = 24
#: Most entries of a page, on an average: what one get brings, for each key that is asked.
PAGE_ENTRIES = 1024
#: Bits of the position of a row in its file; all of them set: any row of the row group.
POSITION_BITS = 40
ANYWHERE = (1 << POSITION_BITS) - 1
#: More rows of one file with the same key are remembered by row group only.
MAX_SAME = 256
#: Most bytes of a cell: HBase's Thrift server takes messages of 2 MB where they are framed.
CELL_BYTES = 512 * 1024
#: What the names of the cells of a page end with: the number of the cell.
CELL_NUMBER_BYTES = 2
_MAGIC = b"SKP1"
#: Of the first cell of a page: what it is, bytes of the page, and a checksum.
_HEADER = struct.Struct(">4sII")
#: Bytes of each column of an entry: hash, file id, row group, position.
_WIDTHS = (HASH_BITS // 8, 4, 4, POSITION_BITS // 8)
_PLANES = sum(_WIDTHS)


class LostPage(Exception):
    """A page of a generation is not there, or not as it was written; the text is a clause."""


@dataclass(frozen=True)
class PageEntries:
    """Entries, an element each: hash of the key, and file id, row group and position of the row."""

    hashes: Hashes
    file_ids: Int64s
    row_groups: Int64s
    positions: Int64s

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.hashes)

    def take(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> PageEntries:
        """Some of them."""
        return PageEntries(self.hashes[chosen], self.file_ids[chosen], self.row_groups[chosen], self.positions[chosen])


def joined(parts: Sequence[PageEntries]) -> PageEntries:
    """All entries of some parts."""
    return PageEntries(
        np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.file_ids for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.row_groups for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.positions for part in parts)]),
    )


def level_for(rows: int) -> int:
    """The level at which so many rows fill pages: an even number, so that an index has few levels."""
    level = 0
    while level < MAX_LEVEL and rows >> level > PAGE_ENTRIES:
        level += 2
    return level


def distinct(hashes: Hashes) -> Hashes:
    """Sorted, each once. NumPy's own way puts integers into a hash table first, which takes several times longer."""
    ordered = np.sort(hashes)
    return ordered[np.append(True, np.diff(ordered) != 0)] if len(ordered) else ordered


def pages_of(hashes: Hashes, level: int) -> Int64s:
    """The pages of sorted hashes, ascending, each once."""
    pages = page_of(hashes, level)
    return pages[np.append(True, np.diff(pages) != 0)] if len(pages) else pages


def page_of(hashes: Hashes, level: int) -> Int64s:
    """The page of each hash."""
    return (hashes >> np.uint64(HASH_BITS - level)).astype(np.int64)


def row_key(index: bytes, level: int, page: int) -> bytes:
    """The row of a page: the upper bits of its hashes come first, so all servers of the store have a share."""
    first = page >> (level - 8) if level >= 8 else page << (8 - level)
    return bytes([first]) + index + bytes([level]) + page.to_bytes(4, "big")


def in_order(entries: PageEntries) -> PageEntries:
    """Entries by hash, file and row group; rows of one file with the same key many times become one per row group."""
    ordered = entries.take(_order(entries))
    if not len(ordered):
        return ordered
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = (np.diff(ordered.hashes) != 0) | (np.diff(ordered.file_ids) != 0)
    starts = np.flatnonzero(is_first)
    counts = np.diff(starts, append=len(ordered))
    is_many = np.repeat(counts > MAX_SAME, counts)
    if not is_many.any():
        return ordered
    is_kept = ~is_many | is_first
    is_kept[1:] |= np.diff(ordered.row_groups) != 0
    positions = np.where(is_many, ANYWHERE, ordered.positions)
    return PageEntries(ordered.hashes, ordered.file_ids, ordered.row_groups, positions).take(is_kept)


def _order(entries: PageEntries) -> npt.NDArray[np.intp]:
    """Where entries stand in order: most keys are there once, so only the others are sorted by their places, too."""
    order = np.argsort(entries.hashes)
    is_same = np.diff(entries.hashes[order]) == 0
    repeated = np.flatnonzero(np.append(is_same, False) | np.append(False, is_same))
    rows = order[repeated]
    by_place = np.lexsort((entries.row_groups[rows], entries.file_ids[rows], entries.hashes[rows]))
    order[repeated] = rows[by_place]
    return order


class Page(NamedTuple):
    """A page of a level, and its content."""

    number: int
    content: bytes


def pack_pages(ordered: PageEntries, level: int, pages: range) -> Iterator[Page]:
    """The content of each of ``pages``; ``ordered`` entries of these pages, by hash."""
    planes = _planes(ordered)
    bounds = np.array([*pages, pages.stop], np.uint64) << np.uint64(HASH_BITS - level)
    # the last bound may be one above all hashes, which needs a bit more than they have
    ends = np.searchsorted(ordered.hashes, bounds).tolist()
    for page, (start, end) in zip(pages, pairwise(ends), strict=True):
        packed = pa.compress(planes[:, start:end].tobytes(), codec="zstd", asbytes=True)
        yield Page(page, (end - start).to_bytes(4, "big") + packed)


def cut_cells(row: bytes, name: bytes, content: bytes) -> list[tuple[bytes, bytes]]:
    """The cells of a page: pairs of a name that begins with ``name``, and a value; most pages are one cell.

    The first has a checksum over row, name and content, so a cell that is copied elsewhere is noticed.
    """
    header = _HEADER.pack(_MAGIC, len(content), zlib.crc32(content, zlib.crc32(row + name)))
    whole = header + content
    return [
        (name + number.to_bytes(CELL_NUMBER_BYTES, "big"), whole[start : start + CELL_BYTES])
        for number, start in enumerate(range(0, len(whole), CELL_BYTES))
    ]


def join_cells(row: bytes, name: bytes, cells: Mapping[bytes, bytes]) -> bytes:
    """The content of the page ``name`` from the ``cells`` of its row. Raises LostPage."""
    first = cells.get(name + bytes(CELL_NUMBER_BYTES))
    if first is None:
        raise LostPage("is gone")
    if len(first) < _HEADER.size or first[:4] != _MAGIC:
        raise LostPage("is not a page")
    _, size, checksum = _HEADER.unpack_from(first)
    count = -(-(size + _HEADER.size) // CELL_BYTES)
    rest = [cells.get(name + number.to_bytes(CELL_NUMBER_BYTES, "big"), b"") for number in range(1, count)]
    content = b"".join([first[_HEADER.size :], *rest])
    if len(content) != size or zlib.crc32(content, zlib.crc32(row + name)) != checksum:
        raise LostPage("is not as it was written")
    return content


def unpack_pages(contents: Sequence[bytes]) -> PageEntries:
    """The entries of pages, in their order."""
    planes = [_unpacked(content) for content in contents]
    if not planes:
        return joined([])
    columns = np.split(np.concatenate(planes, axis=1), np.cumsum(_WIDTHS)[:-1], axis=0)
    hashes, file_ids, row_groups, positions = (_numbers(column) for column in columns)
    return PageEntries(hashes, file_ids.astype(np.int64), row_groups.astype(np.int64), positions.astype(np.int64))


def _unpacked(content: bytes) -> npt.NDArray[np.uint8]:
    count = int.from_bytes(content[:4], "big")
    raw = pa.decompress(content[4:], decompressed_size=count * _PLANES, codec="zstd", asbytes=True)
    return np.frombuffer(raw, np.uint8).reshape(_PLANES, count)


def _planes(entries: PageEntries) -> npt.NDArray[np.uint8]:
    """The bytes of entries, a row for the first bytes of all, and so on: equal bytes stand together."""
    columns = (entries.hashes, entries.file_ids, entries.row_groups, entries.positions)
    rows = [
        (column.astype(np.uint64) >> np.uint64(8 * byte)).astype(np.uint8)
        for column, width in zip(columns, _WIDTHS, strict=True)
        for byte in reversed(range(width))
    ]
    return np.stack(rows)


def _numbers(planes: npt.NDArray[np.uint8]) -> Hashes:
    numbers = np.zeros(planes.shape[1], np.uint64)
    for plane in planes:
        numbers = numbers << np.uint64(8) | plane.astype(np.uint64)
    return numbers

"""Reads chosen rows of a Parquet file by decoding only the pages that hold them.

Used by ``reader``. Pages are found by the file's offset index and copied, as they are, into small Parquet files of one
column each, which Arrow decodes: no encoding is known here. Columns at the top of the schema only, each a page's worth
of work however large its row group is. Source of the formats: parquet.thrift of apache/parquet-format.
Must not know tables, deletes or field ids.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache
from propcache.api import cached_property

from skipstone.files.footers import MAGIC, TAIL, UNREADABLE, Source, read_at, read_footer
from skipstone.files.thrift import CompactReader, Int32, Raw, Struct, encode_struct
from skipstone.tables.parquetfiles import WholeFile

Rows = npt.NDArray[np.int64]
#: INT96 timestamps are read as Iceberg does: in nanoseconds they would reach from 1677 to 2262 only.
INT96_UNIT = "us"
#: Memory for where pages are, in bytes; least recently used files go first.
CACHE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 3_000
_REPEATED = 2
#: Of the types of pages with data, the field of a page header that tells about them.
_DATA = {0: 5, 3: 8}
#: More than a page header takes.
_HEADER_BYTES = 16 * 1024
#: Rows of a column chunk that must not be decoded for its pages to be worth finding and cutting out.
_WORTH_ROWS = 50_000


@dataclass(frozen=True)
class _Chunk:
    """A column chunk: its schema element and metadata, and where its offset index lies."""

    element: Raw
    metadata: Struct
    index_at: int
    index_length: int

    @property
    def begin(self) -> int:
        """Where its pages begin, the dictionary first."""
        return int(self.metadata.get(11) or self.metadata[9])


@dataclass(frozen=True)
class _PageIndex:
    """Per row group the number of its rows, and its chunks by column name."""

    rows: tuple[int, ...]
    chunks: tuple[dict[str, _Chunk], ...]

    @property
    def cost(self) -> int:
        """About how many bytes of memory it takes."""
        return _CHUNK_BYTES * (1 + sum(map(len, self.chunks)))


_indexes: LRUCache[tuple[str, int], _PageIndex] = LRUCache(CACHE_BYTES, getsizeof=lambda index: index.cost)
_lock = threading.Lock()


class PageReader:
    """Reads rows of one open Parquet file."""

    def __init__(self, source: Source, path: str, size: int) -> None:
        """``path`` and ``size`` (in bytes) name the file, which never changes. Nothing is read yet."""
        self._source = source
        self._path = path
        self._size = size

    def spare(self, group: int, columns: Sequence[str], rows: Rows) -> bool:
        """Whether ``read`` would give ``rows``, which may be too many to be read at once."""
        return bool(self._find(group, columns, rows))

    def read(self, group: int, columns: Sequence[str], rows: Rows) -> pa.RecordBatch | None:
        """The ``rows`` (ascending, counted in row group ``group``, at least one) of ``columns``.

        None when the file does not say where its pages are, or says nothing that makes sense, or they hold so much of
        the row group that it is read as fast. Raises DamagedFileError.
        """
        arrays = [pages.read(self._source, rows) for pages in self._find(group, columns, rows)]
        if not arrays or any(one is None for one in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _find(self, group: int, columns: Sequence[str], rows: Rows) -> list[_Pages]:
        """The pages that hold ``rows``, per column; none when that is not known or spares too little."""
        index = self._index
        if index is None or not all(name in index.chunks[group] for name in columns):
            return []
        chunks, count = [index.chunks[group][name] for name in columns], index.rows[group]
        try:
            found = [_Pages.of(self._source, chunk, count, rows) for chunk in chunks]
        except UNREADABLE:
            return []
        return found if sum(pages.spared for pages in found) >= _WORTH_ROWS * len(found) else []

    @cached_property
    def _index(self) -> _PageIndex | None:
        key = (self._path, self._size)
        with _lock:
            if key in _indexes:
                return _indexes[key]
        try:
            found = _page_index(read_footer(self._source))
        except UNREADABLE:
            return None
        with _lock:
            if found.cost <= _indexes.maxsize:
                _indexes[key] = found
        return found


def _page_index(footer: Struct) -> _PageIndex:
    elements = {element[4]: Raw(element.raw) for element in _flat_elements(footer[2])}
    groups: list[dict[str, _Chunk]] = []
    for group in footer[4]:
        found: dict[str, _Chunk] = {}
        for chunk in group[1]:
            path: list[bytes] = chunk[3][3] if 3 in chunk else []
            if 4 in chunk and 1 not in chunk and len(path) == 1 and path[0] in elements:
                found[path[0].decode()] = _Chunk(elements[path[0]], chunk[3], chunk[4], chunk[5])
        groups.append(found)
    return _PageIndex(tuple(group[3] for group in footer[4]), tuple(groups))


def _flat_elements(elements: Sequence[Struct]) -> Iterator[Struct]:
    """The elements of columns that are directly under the root and hold one value a row."""
    below = 0
    for element in elements[1:]:
        children = element.get(5, 0)
        if below:
            below += children - 1
        elif children:
            below = children
        elif element.get(3) != _REPEATED:
            yield element


@dataclass(frozen=True)
class _Pages:
    """The pages of a column chunk that hold some rows: their numbers among all, of which each has a first row."""

    chunk: _Chunk
    locations: list[Struct]
    first: Rows
    numbers: Rows

    @classmethod
    def of(cls, source: Source, chunk: _Chunk, count: int, rows: Rows) -> _Pages:
        """The pages of ``rows`` in a chunk of ``count`` rows. Raises one of UNREADABLE."""
        locations = CompactReader(read_at(source, chunk.index_at, chunk.index_length)).struct()[1]
        first = np.array([*(location.get(3, 0) for location in locations), count], dtype=np.int64)
        ends = [location[1] + location[2] for location in locations]
        begins = [*(location[1] for location in locations[1:]), chunk.begin + chunk.metadata[7]]
        if first[0] != 0 or bool((np.diff(first) < 0).any()) or begins != ends:
            raise ValueError("the pages of an offset index are not one after the other")
        return cls(chunk, locations, first, np.unique(np.searchsorted(first, rows, side="right") - 1))

    @property
    def lengths(self) -> Rows:
        """Rows in each page."""
        return np.diff(self.first)[self.numbers]

    @property
    def spared(self) -> int:
        """Rows of the chunk that are in none of the pages."""
        return int(self.first[-1] - self.lengths.sum())

    def read(self, source: Source, rows: Rows) -> pa.Array | None:
        """The values of ``rows``; None when the pages hold other rows than their index says."""
        places = [(self.locations[n][1], self.locations[n][2]) for n in self.numbers]
        pages = b"".join(_page_bytes(source, places))
        if _rows_in_pages(pages, [length for _, length in places]) != self.lengths.tolist():
            return None  # the index is wrong, or a header is: Arrow tells which
        begin, first_page = self.chunk.begin, int(self.locations[0][1])
        dictionary = read_at(source, begin, first_page - begin) if first_page > begin else b""
        file = _one_column(self.chunk, dictionary, pages, int(self.lengths.sum()))
        parquet = WholeFile(
            pa.BufferReader(file), page_checksum_verification=True, coerce_int96_timestamp_unit=INT96_UNIT
        )
        column = parquet.read(parquet.schema_arrow.names).column(0)
        begins, first = np.cumsum(self.lengths) - self.lengths, self.first[self.numbers]
        at = np.searchsorted(first, rows, side="right") - 1
        return column.combine_chunks().take(pa.array(rows - first[at] + begins[at]))


def _rows_in_pages(pages: bytes, lengths: Sequence[int]) -> list[int]:
    """Values of each page by its own header, which are rows, since no column holds lists; none where one is no data."""
    begins = [0, *accumulate(lengths[:-1])]
    try:
        headers = [CompactReader(pages[begin : begin + _HEADER_BYTES]).struct() for begin in begins]
        return [header[_DATA[header[1]]][1] for header in headers]
    except UNREADABLE:
        return []


def _page_bytes(source: Source, pages: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """The pages (offset and length, ascending), neighbors by one read."""
    begin, end = pages[0][0], pages[0][0]
    for offset, length in pages:
        if offset != end:
            yield read_at(source, begin, end - begin)
            begin = offset
        end = offset + length
    yield read_at(source, begin, end - begin)


def _one_column(chunk: _Chunk, dictionary: bytes, pages: bytes, rows: int) -> bytes:
    """A Parquet file of one column in one row group of the given pages."""
    size = len(dictionary) + len(pages)
    given: Any = chunk.metadata
    metadata = {
        1: Int32(given[1]),
        2: [Int32(encoding) for encoding in given[2]],
        3: given[3],
        4: Int32(given[4]),
        5: rows,
        6: size,
        7: size,
        9: len(MAGIC) + len(dictionary),
        **({11: len(MAGIC)} if dictionary else {}),
    }
    column = encode_struct({2: 0, 3: encode_struct(metadata)})
    root = encode_struct({4: b"schema", 5: Int32(1)})
    group = encode_struct({1: [column], 2: size, 3: rows})
    footer = encode_struct({1: Int32(2), 2: [root, chunk.element], 3: rows, 4: [group]})
    return b"".join([MAGIC, dictionary, pages, footer, TAIL.pack(len(footer), MAGIC)])

"""Reads chosen rows of a Parquet file by decoding only the pages that hold them.

Used by ``reader`` and by whoever reads index files. Pages are found by the file's offset index and copied, as they are,
into a small Parquet file, which Arrow decodes: no encoding is known here. Columns at the top of the schema only, each a
page's worth of work however large its row group is. Source of the formats: parquet.thrift of apache/parquet-format.
Must not know tables, deletes or field ids.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache
from propcache.api import cached_property

from skipstone.files.footers import MAGIC, TAIL, UNREADABLE, Source, read_at, read_footer
from skipstone.tables.parquet.offsets import locations
from skipstone.tables.parquet.thrift import CompactReader, Int32, Raw, Struct, encode_struct, with_integers
from skipstone.tables.parquet.unpacking import unpacked
from skipstone.tables.parquetfiles import BATCH_BYTES, WholeFile, read_page_indexes

Rows = npt.NDArray[np.int64]
#: INT96 timestamps are read as Iceberg does: in nanoseconds they would reach from 1677 to 2262 only.
INT96_UNIT = "us"
#: Memory for where pages are, in bytes; least recently used files go first.
CACHE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES, _REPEATED = 3_000, 2
#: The type of texts and bytes, and the encoding of values that repeat the beginning of those before them.
_BYTES, _PREFIXED = 6, 7
#: Of the types of pages with data, the field of a page header that tells about them.
_DATA = {0: 5, 3: 8}
#: More than a page header takes.
_HEADER_BYTES = 16 * 1024
#: Where the pages of a chunk are is remembered for so many.
_KEPT_PAGES = 128
#: Rows of a column chunk that must not be decoded for its pages to be worth finding and cutting out, and values, of all
#: columns, for the footer to be worth reading once more, value by value (`make bench-lookup`).
_WORTH_ROWS = 8_000
_WORTH_FOOTER = 20_000
#: The same where each page is a request to an object store.
_WORTH_ROWS_FAR = 20_000
_WORTH_FOOTER_FAR = 80_000


@dataclass(frozen=True)
class _Chunk:
    """A column chunk: its schema element and metadata, and where its offset index and its column index lie.

    ``bounds_length`` 0: there is no column index.
    """

    element: Raw
    metadata: Struct
    index_at: int
    index_length: int
    bounds_at: int
    bounds_length: int

    @property
    def begin(self) -> int:
        """Where its pages begin, the dictionary first."""
        return int(self.metadata.get(11) or self.metadata[9])


@dataclass(frozen=True)
class _PageIndex:
    """Per row group the number of its rows, and its chunks by column name."""

    rows: tuple[int, ...]
    chunks: tuple[dict[str, _Chunk], ...]
    _known: dict[tuple[int, str], _Places] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        """About how many bytes of memory it takes."""
        return _CHUNK_BYTES * (1 + sum(map(len, self.chunks)))

    def places(self, source: Source, group: int, name: str) -> _Places:
        """Where the pages of a column chunk lie. Raises one of UNREADABLE."""
        places = self._known.get((group, name))
        if places is None:
            places = _places_of(source, self.chunks[group][name], self.rows[group])
            if len(places.offsets) <= _KEPT_PAGES:
                self._known[group, name] = places
        return places


_indexes: LRUCache[tuple[str, int], _PageIndex] = LRUCache(CACHE_BYTES, getsizeof=lambda index: index.cost)
_lock = threading.Lock()


@dataclass(frozen=True)
class PageBounds:
    """The bounds of the values in each page of a column chunk, by the file.

    ``first``: the first row of each page, counted in its row group, and the end. ``lower``, ``upper``: bounds as
    Parquet stores single values, None for a page of nulls alone. ``nulls``: how many are in each, at most.
    """

    first: Rows
    lower: tuple[bytes | None, ...]
    upper: tuple[bytes | None, ...]
    nulls: Rows


class PageReader:
    """Reads rows of one open Parquet file."""

    def __init__(self, source: Source, path: str, size: int, group_rows: Sequence[int]) -> None:
        """``path`` and ``size`` (in bytes) name the file, which never changes. Nothing is read yet.

        ``group_rows``: rows of each row group.
        """
        self._source = source
        self._key = (path, size)
        self._group_rows = group_rows
        is_far = hasattr(source, "prefetch")
        self._worth_rows = _WORTH_ROWS_FAR if is_far else _WORTH_ROWS
        self._worth_footer = _WORTH_FOOTER_FAR if is_far else _WORTH_FOOTER

    def spare(self, group: int, columns: Sequence[str], rows: Rows) -> bool:
        """Return whether ``read`` would give ``rows``, which may be too many to be read at once."""
        return bool(self._find(group, columns, rows))

    def read(self, group: int, columns: Sequence[str], rows: Rows) -> pa.RecordBatch | None:
        """The ``rows`` (ascending, counted in row group ``group``, at least one) of ``columns``.

        None when the file does not say where its pages are, or says nothing that makes sense, or they hold so much of
        the row group that it is read as fast. Raises DamagedFileError, and what Arrow raises.
        """
        packed = self.read_packed(group, columns, rows)
        return None if packed is None else next(unpacked(packed, sys.maxsize))

    def read_packed(self, group: int, columns: Sequence[str], rows: Rows) -> pa.RecordBatch | None:
        """As ``read``; texts that the file has in a dictionary are in it, however long they are."""
        chosen = self._find(group, columns, rows)
        arrays: dict[str, pa.Array] = {}
        for together in _by_rows(chosen):
            part = _read_together(self._source, together, rows)
            if part is None:
                return None
            arrays |= part
        return pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns)) if arrays else None

    def stretch(self, group: int, columns: Sequence[str], begin: int, end: int) -> pa.RecordBatch | None:
        """The rows from ``begin`` up to ``end``, as ``read`` gives them, however little that spares."""
        index = self._index(self._worth_footer)
        if index is None or not _have_pages(index.chunks[group], columns):
            return None
        try:
            chosen = [
                _Pages.between(name, index.chunks[group][name], index.places(self._source, group, name), begin, end)
                for name in columns
            ]
        except UNREADABLE:
            return None
        arrays: dict[str, pa.Array] = {}
        for together in _by_rows(chosen):
            if (decoded := _decoded_together(self._source, together)) is None:
                return None
            skipped = begin - int(together[0].first[0])
            arrays |= {name: values.slice(skipped, end - begin) for name, values in decoded.items()}
        return pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))

    def bounds(self, group: int, column: str) -> PageBounds | None:
        """Return the bounds of the pages of a column in a row group; None without any, or for senseless ones.

        Only where a seal proves that it is what was written: a wrong bound would leave out rows.
        """
        if (index := self._index(self._worth_footer)) is None or (chunk := index.chunks[group].get(column)) is None:
            return None
        try:
            if self._sealed is None:
                return None
            begin, indexes = self._sealed
            first = index.places(self._source, group, column).first
            column_index = CompactReader(indexes[chunk.bounds_at - begin :][: chunk.bounds_length]).struct()
            empty, lower, upper = column_index[1], column_index[2], column_index[3]
            nulls = np.array(column_index[5], np.int64) if 5 in column_index else np.diff(first)
            if not len(empty) == len(lower) == len(upper) == len(nulls) == len(first) - 1:
                return None
            return PageBounds(first, _unless(empty, lower), _unless(empty, upper), nulls)
        except UNREADABLE:
            return None

    def _find(self, group: int, columns: Sequence[str], rows: Rows) -> list[_Pages]:
        """The pages that hold ``rows``, per column; none when that is not known or spares too little."""
        index = self._index((self._group_rows[group] - self._worth_rows) * len(columns))
        if index is None or not _have_pages(index.chunks[group], columns):
            return []
        try:
            chosen = [
                _Pages.of(name, index.chunks[group][name], index.places(self._source, group, name), rows)
                for name in columns
            ]
        except UNREADABLE:
            return []
        return chosen if sum(pages.spared for pages in chosen) >= self._worth_rows * len(chosen) else []

    def _index(self, spared: int) -> _PageIndex | None:
        """Where the file's pages are; None when that is not known, and not worth a look to spare so many values."""
        with _lock:
            known = _indexes.get(self._key)
        return self._read_index if known is None and spared >= self._worth_footer else known

    @cached_property
    def _sealed(self) -> tuple[int, bytes] | None:
        """Where the page indexes of the file begin, and all of them."""
        return read_page_indexes(self._source)

    @cached_property
    def _read_index(self) -> _PageIndex | None:
        try:
            index = _page_index(read_footer(self._source))
        except UNREADABLE:
            return None
        with _lock:
            if index.cost <= _indexes.maxsize:
                _indexes[self._key] = index
        return index


def _have_pages(chunks: dict[str, _Chunk], columns: Sequence[str]) -> bool:
    """Return whether pages of ``columns`` are decoded alone; a page of repeated values may take any memory."""
    return all(name in chunks and _PREFIXED not in chunks[name].metadata[2] for name in columns)


def _unless(empty: Sequence[bool], values: Sequence[bytes]) -> tuple[bytes | None, ...]:
    return tuple(None if is_empty else value for is_empty, value in zip(empty, values, strict=True))


def _page_index(footer: Struct) -> _PageIndex:
    elements = {element[4]: Raw(element.raw) for element in _flat_elements(footer[2])}
    groups: list[dict[str, _Chunk]] = []
    for group in footer[4]:
        chunks: dict[str, _Chunk] = {}
        for chunk in group[1]:
            path: list[bytes] = chunk[3][3] if 3 in chunk else []
            if 4 in chunk and 1 not in chunk and len(path) == 1 and path[0] in elements:
                places = chunk[4], chunk[5], chunk.get(6, 0), chunk.get(7, 0)
                chunks[path[0].decode()] = _Chunk(elements[path[0]], chunk[3], *places)
        groups.append(chunks)
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
class _Places:
    """The pages of a column chunk, one after the other: offset and length in bytes, and the first row of each, and the
    end.
    """

    offsets: Rows
    lengths: Rows
    first: Rows


def _places_of(source: Source, chunk: _Chunk, count: int) -> _Places:
    """Where the pages of a chunk of ``count`` rows are. Raises one of UNREADABLE."""
    pages = locations(read_at(source, chunk.index_at, chunk.index_length))
    places = _Places(pages[:, 0], pages[:, 1], np.append(pages[:, 2], count))
    ends = places.offsets + places.lengths
    begins = np.append(places.offsets[1:], chunk.begin + chunk.metadata[7])
    steps = places.first[1:] - places.first[:-1]
    if places.first[0] != 0 or int(steps.min()) < 0 or not np.array_equal(begins, ends):
        raise ValueError("the pages of an offset index are not one after the other")
    return places


@dataclass(frozen=True)
class _Pages:
    """The pages of the column ``name`` that hold some rows: their numbers among all of its chunk."""

    name: str
    chunk: _Chunk
    places: _Places
    numbers: Rows

    @classmethod
    def of(cls, name: str, chunk: _Chunk, places: _Places, rows: Rows) -> _Pages:
        """The pages of ``rows`` in a chunk."""
        return cls(name, chunk, places, np.unique(np.searchsorted(places.first, rows, side="right") - 1))

    @classmethod
    def between(cls, name: str, chunk: _Chunk, places: _Places, begin: int, end: int) -> _Pages:
        """The pages of the rows from ``begin`` up to ``end``."""
        first, last = np.searchsorted(places.first, (begin, end - 1), side="right") - 1
        return cls(name, chunk, places, np.arange(first, last + 1))

    @cached_property
    def lengths(self) -> Rows:
        """Rows in each page."""
        return self.places.first[self.numbers + 1] - self.places.first[self.numbers]

    @property
    def first(self) -> Rows:
        """The first row of each page."""
        return self.places.first[self.numbers]

    @property
    def spared(self) -> int:
        """Rows of the chunk that are in none of the pages."""
        return int(self.places.first[-1] - self.lengths.sum())

    def read(self, source: Source) -> _Piece | None:
        """Return their rows; None when these are other rows than their index says."""
        places = [
            *zip(self.places.offsets[self.numbers].tolist(), self.places.lengths[self.numbers].tolist(), strict=True)
        ]
        pages = b"".join(_page_bytes(source, places))
        if _rows_in_pages(pages, [length for _, length in places]) != self.lengths.tolist():
            return None  # the index is wrong, or a header is: Arrow tells which
        begin, first_page = self.chunk.begin, int(self.places.offsets[0])
        dictionary = read_at(source, begin, first_page - begin) if first_page > begin else b""
        return _Piece(self.chunk, dictionary, pages)


@dataclass(frozen=True)
class _Piece:
    """The bytes of some pages of a column chunk, and of the dictionary (empty without one) that they need."""

    chunk: _Chunk
    dictionary: bytes
    pages: bytes

    @property
    def repeated_bytes(self) -> int:
        """Bytes of the dictionary in memory, if it is of texts: a value takes no more."""
        if not self.dictionary or self.chunk.metadata[1] != _BYTES:
            return 0
        try:
            return int(CompactReader(self.dictionary[:_HEADER_BYTES]).struct()[2])
        except UNREADABLE:
            return 0  # Arrow tells what is wrong

    def described(self, at: int, rows: int) -> Raw:
        """The column chunk of ``rows`` that it is where it lies ``at`` that byte of a file, the dictionary first."""
        given: Any = self.chunk.metadata
        first_page = at + len(self.dictionary)
        length = len(self.dictionary) + len(self.pages)
        numbers = {5: rows, 6: length, 7: length, 9: first_page} | ({11: at} if self.dictionary else {})
        same = _described(given[1], tuple(given[2]), tuple(given[3]), given[4])
        return encode_struct({2: 0, 3: with_integers(same, 4, numbers)})


@lru_cache(4_096)
def _described(kind: int, encodings: tuple[int, ...], path: tuple[bytes, ...], codec: int) -> Raw:
    """Return the first fields of a chunk's metadata, which columns of many files share."""
    return encode_struct({1: Int32(kind), 2: [*map(Int32, encodings)], 3: [*path], 4: Int32(codec)})


def _by_rows(columns: Sequence[_Pages]) -> list[list[_Pages]]:
    """Columns whose pages hold the same rows, as those of our files mostly do, together."""
    together: dict[tuple[bytes, bytes], list[_Pages]] = {}
    for pages in columns:
        together.setdefault((pages.first.tobytes(), pages.lengths.tobytes()), []).append(pages)
    return list(together.values())


def _read_together(source: Source, columns: Sequence[_Pages], rows: Rows) -> dict[str, pa.Array] | None:
    """The values of ``rows`` of columns whose pages hold the same rows; None when pages hold others than is said."""
    decoded = _decoded_together(source, columns, few=True)
    if decoded is None:
        return None
    lengths, first = columns[0].lengths, columns[0].first
    at = np.searchsorted(first, rows, side="right") - 1
    places = pa.array(rows - first[at] + (np.cumsum(lengths) - lengths)[at])
    return {name: values.take(places) for name, values in decoded.items()}


def _decoded_together(source: Source, columns: Sequence[_Pages], *, few: bool = False) -> dict[str, pa.Array] | None:
    """All values of the pages of such columns. ``few``: few of them will be taken, so that texts whose dictionary is
    large stay in it, and nobody has to find out first how long its texts are.
    """
    pieces = []
    for pages in columns:
        piece = pages.read(source)
        if piece is None:
            return None
        pieces.append(piece)
    count = int(columns[0].lengths.sum())
    file = pa.BufferReader(_small_file(pieces, count))
    options: dict[str, Any] = {"page_checksum_verification": True, "coerce_int96_timestamp_unit": INT96_UNIT}
    packed = [
        pages.name for pages, piece in zip(columns, pieces, strict=True) if piece.repeated_bytes * count > BATCH_BYTES
    ]
    if packed and not few:
        packed = WholeFile(file, **options).long_texts(packed, 0, BATCH_BYTES // count)
    parquet = WholeFile(file, **options, read_dictionary=packed)
    decoded = parquet.read(parquet.schema_arrow.names)
    return {pages.name: decoded.column(n).combine_chunks() for n, pages in enumerate(columns)}


def _rows_in_pages(pages: bytes, lengths: Sequence[int]) -> list[int]:
    """Return the values of each page by its header: rows, as no column holds lists; none where a page has no data."""
    begins = [0, *accumulate(lengths[:-1])]
    try:
        return [_rows_of_page(pages, begin) for begin in begins]
    except UNREADABLE:
        return []


def _rows_of_page(pages: bytes, begin: int) -> int:
    """Values of the page that begins there. Raises one of UNREADABLE."""
    header = CompactReader(pages[begin : begin + _HEADER_BYTES]).struct()
    values: int = header[_DATA[header[1]]][1]
    return values


def _page_bytes(source: Source, pages: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """The pages (offset and length, ascending), neighbors by one read."""
    begin, end = pages[0][0], pages[0][0]
    for offset, length in pages:
        if offset != end:
            yield read_at(source, begin, end - begin)
            begin = offset
        end = offset + length
    yield read_at(source, begin, end - begin)


def _small_file(columns: Sequence[_Piece], rows: int) -> bytes:
    """A Parquet file of one row group of ``rows`` with the given columns."""
    body, described, at = [MAGIC], [], len(MAGIC)
    for piece in columns:
        described.append(piece.described(at, rows))
        body += [piece.dictionary, piece.pages]
        at += len(piece.dictionary) + len(piece.pages)
    root = encode_struct({4: b"schema", 5: Int32(len(columns))})
    group = encode_struct({1: described, 2: at, 3: rows})
    elements = [root, *(piece.chunk.element for piece in columns)]
    footer = encode_struct({1: Int32(2), 2: elements, 3: rows, 4: [group]})
    return b"".join([*body, footer, TAIL.pack(len(footer), MAGIC)])

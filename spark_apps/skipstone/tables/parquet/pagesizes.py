"""How many bytes the next rows of a row group take in memory, told by the headers of their pages.

Used by ``parquetfiles``: a footer tells of a row group as a whole, and its long values may lie together. Headers are
read as far as the next rows need. Within a page, and where headers cannot be read, rows count as equally long.
Source of the format: parquet.thrift of apache/parquet-format. Must not decode values.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from skipstone.tables.parquet.thrift import CompactReader, Struct

#: What reading a header that makes no sense ends in.
_UNREADABLE = (ValueError, LookupError, TypeError, OverflowError, RecursionError, struct.error)
#: Types of pages with data, each with the field of the header that tells about them, and its field of the encoding.
_DATA, _DATA_V2 = 0, 3
_DETAILS = {_DATA: (5, 2), _DATA_V2: (8, 4)}
#: Encodings of numbers in a dictionary.
_DICTIONARY = frozenset({2, 8})
#: The part of the bytes that may be in chunks which are not looked at.
_UNSEEN = 0.25
#: Bytes that are read at once for headers: of a file on this machine, of an object, and where a header has long bounds.
_NEAR, _FAR, _LONGEST = 1024, 512 * 1024, 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class PagedChunk:
    """A column chunk: where its pages ``start`` and ``end`` in the file, its ``values`` and the ``rows`` of its group.

    ``nbytes``: of all values in memory, each of the dictionary once; ``width``: of each where all are of one length;
    ``repeated``: of each that is in the dictionary, at most. ``is_nested``: a row may have several values.
    """

    start: int
    end: int
    values: int
    rows: int
    nbytes: int
    width: int | None
    repeated: int
    is_nested: bool

    @property
    def varies(self) -> bool:
        """Return whether some rows may take more than others."""
        return self.width is None or self.is_nested

    @property
    def row_bytes(self) -> float:
        """Bytes of a row, on the average."""
        return self.nbytes / self.rows

    def most(self, rows: int) -> float:
        """Bytes of any ``rows`` at most."""
        return self.nbytes + self.repeated * rows * max(1.0, self.values / self.rows)


@dataclass(frozen=True)
class UnevenRows:
    """Rows of a row group of which any ``rows`` together may be more than ``nbytes``, as the footer tells.

    ``chunks``: those that may be so much; ``row_bytes``: of each row besides.
    """

    chunks: tuple[PagedChunk, ...]
    row_bytes: float
    rows: int
    nbytes: int

    @classmethod
    def of(cls, chunks: Sequence[PagedChunk], rows: int, nbytes: int) -> UnevenRows | None:
        """Of all column chunks that are read; None where no ``rows`` are more than ``nbytes``."""
        varied = sorted((chunk for chunk in chunks if chunk.varies), key=lambda chunk: chunk.nbytes, reverse=True)
        row_bytes = sum(chunk.row_bytes for chunk in chunks if not chunk.varies)
        most = row_bytes * rows + sum(chunk.most(rows) for chunk in varied)
        if most <= nbytes:
            return None
        small = [chunk for chunk, left in _left(varied) if left <= nbytes * _UNSEEN]
        row_bytes += sum(chunk.row_bytes for chunk in small)
        return cls(tuple(varied[: len(varied) - len(small)]), row_bytes, rows, nbytes)

    def sizes(self, source: Any) -> RowSizes:
        """By the pages in ``source``, the open file."""
        return RowSizes(source, self)


class RowSizes:
    """How many rows of a row group are few enough bytes."""

    def __init__(self, source: Any, uneven: UnevenRows) -> None:
        """``source``: the open file. Nothing is read yet."""
        self._uneven = uneven
        self._walks = [_Walk(source, chunk) for chunk in uneven.chunks]

    def fitting(self, start: int) -> int:
        """How many rows from ``start`` on, at least one, are few enough; it never decreases. Raises OSError."""
        rows, nbytes = self._uneven.rows, self._uneven.nbytes
        left = nbytes - rows * self._uneven.row_bytes
        if sum(walk.left(start) for walk in self._walks) <= left:
            return rows
        stop = start + rows
        for walk in self._walks:
            walk.go(start, stop, nbytes)
        if sum(walk.before(stop) - walk.before(start) for walk in self._walks) <= left:
            return rows
        places = np.array(sorted({start, stop, *(end for walk in self._walks for end in walk.between(start, stop))}))
        sizes = (places - start) * self._uneven.row_bytes
        for walk in self._walks:
            sizes = sizes + [walk.before(place) - walk.before(start) for place in places]
        return max(1, int(np.interp(nbytes, sizes, places)) - start)


class _Walk:
    """Goes from page to page of a chunk: the row behind each known page, and the bytes before it."""

    def __init__(self, source: Any, chunk: PagedChunk) -> None:
        self._source, self._chunk = source, chunk
        self._at, self._read_from, self._read = chunk.start, 0, b""
        self._ends: list[float] = [0.0]
        self._sizes: list[float] = [0.0]

    def before(self, row: float) -> float:
        """Bytes of the rows before ``row``, as far as pages are known."""
        ends, sizes = self._ends, self._sizes
        at = bisect_right(ends, row) - 1
        if at == len(ends) - 1:
            return sizes[-1]
        return sizes[at] + (sizes[at + 1] - sizes[at]) * (row - ends[at]) / (ends[at + 1] - ends[at])

    def left(self, row: int) -> float:
        """Bytes of all rows from ``row`` on."""
        return self._chunk.most(self._chunk.rows - row) - self.before(row)

    def between(self, start: int, stop: int) -> Iterator[float]:
        """The ends of pages between two rows."""
        return (end for end in self._ends if start < end < stop)

    def go(self, start: int, stop: int, nbytes: int) -> None:
        """Know the pages of the rows from ``start`` to ``stop``, or of more than ``nbytes`` of them."""
        passed = bisect_right(self._ends, start) - 1
        del self._ends[:passed], self._sizes[:passed]
        last = min(stop, self._chunk.rows)
        while self._ends[-1] < last and self._sizes[-1] - self.before(start) <= nbytes:
            self._next()

    def _next(self) -> None:
        """Know one page more, or take the rest for a page."""
        chunk = self._chunk
        try:
            header = self._header() if self._at < chunk.end else None
            rows, nbytes = (0.0, 0.0) if header is None else self._page(header)
        except _UNREADABLE:
            header = None
        if header is None:
            self._at = chunk.end
            rows, nbytes = chunk.rows - self._ends[-1], max(0.0, chunk.nbytes - self._sizes[-1])
        if rows > 0:
            self._ends.append(min(self._ends[-1] + rows, float(chunk.rows)))
            self._sizes.append(self._sizes[-1] + nbytes)

    def _page(self, header: Struct) -> tuple[float, float]:
        """Rows and bytes of a page; none of one without data. Raises one of _UNREADABLE."""
        chunk = self._chunk
        if header[1] not in _DETAILS:
            return 0.0, 0.0
        field, encoding = _DETAILS[header[1]]
        details = header[field]
        values, rows = details[1], details[1]
        if chunk.is_nested:
            rows = details[3] if header[1] == _DATA_V2 else values * chunk.rows / max(chunk.values, 1)
        if min(values, rows, header[2]) < 0:
            raise ValueError("a page has fewer than no values")
        nbytes = header[2] if chunk.width is None else values * chunk.width
        return rows, max(nbytes, values * chunk.repeated) if details[encoding] in _DICTIONARY else nbytes

    def _header(self) -> Struct:
        """The header of the next page, which is passed. Raises one of _UNREADABLE, and OSError."""
        begin = self._at - self._read_from
        if not 0 <= begin <= len(self._read) - _NEAR:
            self._fill(_FAR if hasattr(self._source, "prefetch") else _NEAR)
        try:
            return self._passed(_NEAR)
        except _UNREADABLE:  # it may be longer, with bounds that are long values
            self._fill(_LONGEST)
            return self._passed(_LONGEST)

    def _passed(self, length: int) -> Struct:
        begin = self._at - self._read_from
        header = CompactReader(self._read[begin : begin + length]).struct()
        if header[3] < 0:
            raise ValueError("a page has fewer than no bytes")
        self._at += len(header.raw) + header[3]
        return header

    def _fill(self, length: int) -> None:
        self._source.seek(self._at)
        self._read_from, self._read = self._at, bytes(self._source.read(min(length, self._chunk.end - self._at)))


def _left(chunks: Sequence[PagedChunk]) -> Iterator[tuple[PagedChunk, int]]:
    """Each chunk with the bytes of it and those after it."""
    left = sum(chunk.nbytes for chunk in chunks)
    for chunk in chunks:
        yield chunk, left
        left -= chunk.nbytes


@contextmanager
def opened(source: Any) -> Iterator[Any]:
    """An open file, or the file of this path while the context lasts."""
    if not isinstance(source, str):
        yield source
        return
    with open(source, "rb", buffering=0) as file:  # noqa: PTH123 - Path.open is the same
        yield file

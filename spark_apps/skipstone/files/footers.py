"""Parquet footers as raw Thrift: for those who move pages and column chunks without decoding them.

Used by ``pages`` and ``splicing``. Source of the formats: parquet.thrift of apache/parquet-format.
Must not know tables, deletes or field ids.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO

from pyiceberg.io import InputStream

from skipstone.tables.parquet.thrift import CompactReader, Struct
from skipstone.tables.parquetfiles import read_tail, require_seal

#: An open file.
Source = BinaryIO | InputStream
#: What a Parquet file begins and ends with.
MAGIC = b"PAR1"
#: The end of a file: the footer's length and the magic.
TAIL = struct.Struct("<I4s")
#: What reading a footer or a page index that makes no sense ends in.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, struct.error)


def read_footer(source: Source) -> Struct:
    """The file's metadata. Raises one of UNREADABLE when it is not a plain Parquet file, or damaged."""
    tail = read_tail(source)
    length, magic = TAIL.unpack(tail[-TAIL.size :])
    if magic != MAGIC:
        raise ValueError("not a plain Parquet file")
    if length + TAIL.size > len(tail):
        raise ValueError("the file is shorter than its footer says")
    require_seal(tail)
    return CompactReader(tail[len(tail) - TAIL.size - length : -TAIL.size]).struct()


def read_at(source: Source, offset: int, length: int) -> bytes:
    """So many bytes. Raises ValueError when the file has not so many."""
    if offset < 0:
        raise ValueError("the file is shorter than its footer says")
    source.seek(offset)
    content: bytes = source.read(length)
    if len(content) != length:
        raise ValueError("the file is shorter than its footer says")
    return content


def elements_by_column(elements: Sequence[Struct]) -> dict[str, tuple[Struct, ...]]:
    """The schema elements of each column at the top of the schema, with those under it."""
    by_column, at = {}, 1
    while at < len(elements):
        end = _end(elements, at)
        by_column[elements[at][4].decode()] = tuple(elements[at:end])
        at = end
    return by_column


def _end(elements: Sequence[Struct], at: int) -> int:
    end = at + 1
    for _ in range(elements[at].get(5, 0)):
        end = _end(elements, end)
    return end

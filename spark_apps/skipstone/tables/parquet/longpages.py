"""Reads a column of texts or bytes whose pages are too large to be unpacked as a whole, a few values at a time.

Used by ``parquetfiles``. Writers that check the size of a page after so many values, as Arrow does by default, make a
page of 1 GiB of 1,024 values of 1 MiB, be it of values or of their dictionary; Arrow unpacks such a page at once, and
holds it two or three times. Here values pass through as they are unpacked, and a dictionary lies in a temporary file.
A page of a codec that cannot be unpacked piece by piece is unpacked as a whole.
Source of the format: parquet.thrift and Encodings.md of apache/parquet-format. Must not know what values mean.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skipstone.tables.parquet.thrift import CompactReader, Struct

Ints = npt.NDArray[np.int64]
#: What reading bytes that are not as the format says ends in.
MALFORMED = (ValueError, LookupError, TypeError, OverflowError, RecursionError, struct.error)
#: Types of pages, and the field of the header that describes each.
_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_DETAILS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_CODES = (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
#: Codecs that unpack piece by piece.
_STREAMED = frozenset({"zstd", "gzip", "brotli"})
#: Codecs that are known here, as Arrow names them. What is called LZ4 may be one of two.
CODECS = _STREAMED | {"snappy", "uncompressed"}
#: Bytes of a header: of most, and of one with statistics that are long values.
_HEADERS = (1024, 4 * 1024 * 1024)
#: Bytes that are read from a file at once.
_PIECE_BYTES = 1024 * 1024
_LENGTH = struct.Struct("<I")
_CRC_FIELD = 4


@dataclass(frozen=True, kw_only=True)
class LongChunk:
    """A column chunk of BYTE_ARRAY: its bytes in the file, its codec as Arrow names it, its values.

    ``is_nullable``: whether a value may be null; no value is in a list. ``checks``: whether checksums are verified.
    """

    start: int
    end: int
    codec: str
    values: int
    is_nullable: bool
    checks: bool = False


@dataclass(frozen=True)
class _Page:
    """A page: its header, and where its ``body`` begins in the file."""

    header: Struct
    body: int

    @property
    def kind(self) -> int:
        """The type of the page."""
        return int(self.header[1])

    @property
    def details(self) -> Struct:
        """What the header says of pages of that type."""
        details: Struct = self.header[_DETAILS[self.kind]]
        return details

    @property
    def end(self) -> int:
        """The byte behind the page."""
        return self.body + int(self.header[3])


def dictionary_bytes(source: Any, start: int, end: int) -> int:
    """Return how many bytes the dictionary page takes unpacked that begins at ``start``; 0 if there is none there.

    ``end``: of the chunk. Raises OSError.
    """
    try:
        page = _read_page(source, start, end)
    except MALFORMED:
        return 0  # Arrow says what is wrong
    return int(page.header[2]) if page.kind == _DICTIONARY else 0


def is_long(source: Any, chunk: LongChunk, nbytes: int) -> bool:
    """Return whether a page of the chunk is of more than ``nbytes`` unpacked, and each can be read here.

    ``source``: the open file. Raises OSError.
    """
    try:
        pages = list(_pages(source, chunk))
        return any(page.header[2] > nbytes for page in pages) and all(map(_is_known, pages))
    except MALFORMED:
        return False  # Arrow says what is wrong


def long_values(source: Any, chunk: LongChunk, nbytes: int) -> Iterator[pa.BinaryArray]:
    """Yield all values of the chunk as binary, about ``nbytes`` at a time, or one value.

    ``source``: the open file, which nobody else may move meanwhile. Raises OSError, and one of MALFORMED for pages that
    are not as the format says.
    """
    left = chunk.values
    with ExitStack() as kept:
        dictionary = None
        for page in _pages(source, chunk):
            if page.kind == _DICTIONARY:
                body = _body(source, chunk, page)
                file = kept.enter_context(tempfile.TemporaryFile(prefix="skipstone-"))
                dictionary = _Dictionary(file, _values(body, page.details[1]))
                body.end()
            elif page.kind != _INDEX:
                left -= int(page.details[1])
                yield from _page_values(source, chunk, page, dictionary, nbytes)
    if left:
        raise ValueError(f"the pages of a column lack {left} of {chunk.values} values")


def _pages(source: Any, chunk: LongChunk) -> Iterator[_Page]:
    """The pages of the chunk. Raises one of MALFORMED."""
    at = chunk.start
    while at < chunk.end:
        page = _read_page(source, at, chunk.end)
        if page.header[3] < 0 or page.end > chunk.end:
            raise ValueError("a page is longer than its column")
        yield page
        at = page.end


def _read_page(source: Any, at: int, end: int) -> _Page:
    short, longest = (min(length, end - at) for length in _HEADERS)
    source.seek(at)
    try:
        header = CompactReader(bytes(source.read(short))).struct()
    except MALFORMED:
        source.seek(at)
        header = CompactReader(bytes(source.read(longest))).struct()
    return _Page(header, at + len(header.raw))


def _is_known(page: _Page) -> bool:
    """Return whether the page holds nothing that is not understood here."""
    if page.kind == _INDEX:
        return True
    details = page.details
    if page.kind == _DICTIONARY:
        return details[2] in (_PLAIN, _PLAIN_DICTIONARY)
    if page.kind == _DATA_V2:
        return details[4] in (_PLAIN, *_CODES) and details[6] == 0
    return details[2] in (_PLAIN, *_CODES) and details[3] == _RLE


class _Body:
    """The unpacked bytes of a page, from its beginning on. ``stored``: those that the file holds."""

    def __init__(self, stream: Any, stored: _Stored) -> None:
        self._stream, self._stored = stream, stored

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes. Raises ValueError when there are fewer."""
        parts, left = [], length
        while left:
            part = self._stream.read(min(left, _PIECE_BYTES))
            if not part:
                raise ValueError(f"a page ends {left} bytes too early")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def rest(self) -> bytes:
        """All that is left."""
        return bytes(self._stream.read())

    def end(self) -> None:
        """Raise ValueError if anything is left, or if the file does not hold what was written."""
        if self._stream.read(1):
            raise ValueError("a page holds more than its values")
        self._stored.read()


class _Stored:
    """Bytes of a file as a stream of its own, whose checksum is verified at the end."""

    closed = False

    def __init__(self, source: Any, start: int, end: int, checksum: int | None) -> None:
        self._source, self._at, self._end = source, start, end
        self._checksum, self._found = checksum, 0

    def read(self, length: int = -1) -> bytes:
        """At most ``length`` bytes, or all. Raises ValueError at the end if they are not those that were written."""
        left = self._end - self._at
        self._source.seek(self._at)
        content = bytes(self._source.read(left if length < 0 else min(length, left)))
        if left and length and not content:
            raise ValueError("the file ends within a page")
        self._at += len(content)
        self._found = zlib.crc32(content, self._found)
        if self._at == self._end and self._checksum not in (None, self._found):
            raise ValueError("CRC checksum of a page is not that of its header")
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        """Not possible; Arrow asks whether it is."""
        raise OSError("a page is read from its start to its end")

    def tell(self) -> int:
        """The place in the file."""
        return self._at

    def seekable(self) -> bool:
        """False: see ``seek``."""
        return False

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """False."""
        return False

    def close(self) -> None:
        """Whoever opened the file closes it."""

    def flush(self) -> None:
        """Nothing is written."""


def _body(source: Any, chunk: LongChunk, page: _Page, *, levels: int = 0, is_packed: bool = True) -> _Body:
    """What a page holds; its first ``levels`` bytes are never packed and must be taken first."""
    checksum = page.header.get(_CRC_FIELD) if chunk.checks else None
    stored = _Stored(source, page.body, page.end, None if checksum is None else checksum & 0xFFFFFFFF)
    if not is_packed or chunk.codec == "uncompressed":
        return _Body(stored, stored)
    first = stored.read(levels) if levels else b""
    if chunk.codec in _STREAMED:
        unpacked: Any = pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), chunk.codec)
    else:
        size = int(page.header[2]) - levels
        unpacked = pa.BufferReader(pa.Codec(chunk.codec).decompress(stored.read(), size) if size else b"")
    return _Body(_Joined(first, unpacked), stored)


class _Joined:
    """Some bytes, and a stream after them."""

    def __init__(self, first: bytes, rest: Any) -> None:
        self._first, self._rest = first, rest

    def read(self, length: int = -1) -> bytes:
        """At most ``length`` bytes, or all."""
        if length < 0:
            first, self._first = self._first, b""
            return first + bytes(self._rest.read())
        if self._first:
            content, self._first = self._first[:length], self._first[length:]
            return content
        return bytes(self._rest.read(length))


def _page_values(
    source: Any, chunk: LongChunk, page: _Page, dictionary: _Dictionary | None, nbytes: int
) -> Iterator[pa.BinaryArray]:
    """The values of a page with data, nulls among them."""
    details, count = page.details, int(page.details[1])
    is_second = page.kind == _DATA_V2
    length = int(details[5]) if is_second else 0
    is_packed = bool(details.get(7, True)) if is_second else True
    body = _body(source, chunk, page, levels=length, is_packed=is_packed)
    valid = np.ones(count, np.bool_)
    if not is_second and chunk.is_nullable:
        (length,) = _LENGTH.unpack(body.take(_LENGTH.size))
    if length:
        valid = _numbers(body.take(length), 1, count).astype(np.bool_)
    present = int(valid.sum())
    if details[4 if is_second else 2] in _CODES:
        if dictionary is None:
            raise ValueError("a page refers to a dictionary that its column lacks")
        values = dictionary.values(_codes(body.rest(), present))
    else:
        values = _values(body, present)
    yield from _arrays(values, valid, nbytes)
    if present:
        body.end()


def _codes(packed: bytes, count: int) -> Ints:
    return _numbers(packed[1:], packed[0], count) if count else np.empty(0, np.int64)


def _values(body: _Body, count: int) -> Iterator[bytes]:
    """The next values that lie one after the other, each behind its length."""
    for _ in range(count):
        (length,) = _LENGTH.unpack(body.take(_LENGTH.size))
        yield body.take(length)


class _Dictionary:
    """The values of a dictionary, in a file."""

    def __init__(self, file: IO[bytes], values: Iterator[bytes]) -> None:
        self._file = file
        lengths = [file.write(value) for value in values]
        self._starts = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])

    def values(self, codes: Ints) -> Iterator[bytes]:
        """The values of these numbers. Raises IndexError for one that is not there."""
        starts = self._starts
        if len(codes) and int(codes.max()) >= len(starts) - 1:
            raise IndexError("a page refers to a value that its dictionary lacks")
        for code in codes.tolist():
            self._file.seek(starts[code])
            yield self._file.read(starts[code + 1] - starts[code])


def _numbers(packed: bytes, width: int, count: int) -> Ints:
    """``count`` numbers of ``width`` bits in runs and in packs of eight. Raises one of MALFORMED."""
    parts, left, at = [np.empty(0, np.int64)], count, 0
    while left > 0:
        head, at = _varint(packed, at)
        size = width * (head >> 1) if head & 1 else -(-width // 8)
        run = packed[at : at + size]
        at += size
        if head & 1 and width:
            numbers = _unpacked(run, width)
        else:
            repeats = (head >> 1) * 8 if head & 1 else head >> 1
            numbers = np.full(min(repeats, left), int.from_bytes(run, "little"), np.int64)
        if not len(numbers):
            raise ValueError("a page has fewer values than its header says")
        parts.append(numbers[:left])
        left -= len(numbers)
    return np.concatenate(parts)


def _unpacked(run: bytes, width: int) -> Ints:
    """Numbers of ``width`` bits, one after the other; the last pack may lack bytes of its padding."""
    bits = np.unpackbits(np.frombuffer(run, np.uint8), bitorder="little")
    whole = bits[: len(bits) // width * width].reshape(-1, width)
    return np.asarray(whole.astype(np.int64) @ (np.int64(1) << np.arange(width, dtype=np.int64)), np.int64)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _arrays(values: Iterator[bytes], valid: npt.NDArray[np.bool_], nbytes: int) -> Iterator[pa.BinaryArray]:
    """``values`` at the places that are ``valid``, nulls at the others."""
    held: list[bytes | None] = []
    size = 0
    for is_there in valid.tolist():
        value = next(values) if is_there else None
        length = 0 if value is None else len(value)
        if held and size + length > nbytes:
            yield pa.array(held, pa.binary())
            held, size = [], 0
        held.append(value)
        size += length
    if held:
        yield pa.array(held, pa.binary())

"""Avro object container files: the header, and the unpacked blocks one after another.

Called by ``files``. Never leaves out a block in silence: what is not exactly as the format says raises Damaged.
Must not know what records are.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from binascii import crc32
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import pyarrow as pa

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MOST_HEADER_BYTES = 16 << 20
#: Bytes of a block that are held at once, packed and unpacked; writers begin another one after some kilobytes.
MOST_BLOCK_BYTES = 256 << 20
#: What unpacking xz may take beside the block.
_XZ_MEMORY = 256 << 20
_LONG_BITS = 64
#: Of Snappy blocks; some writers leave that of zlib, or a part of it, behind deflated ones.
_CHECKSUM_BYTES = 4


class Damaged(ValueError):
    """A file is not what the format of Avro says, or more than this process holds; says what and where."""


@dataclass(frozen=True)
class Block:
    """The unpacked bytes of ``count`` records; ``at``: where the block begins in its file."""

    at: int
    count: int
    content: bytes


class BlockReader:
    """An opened file: its ``schema`` as JSON text, then its blocks."""

    def __init__(self, opened: BinaryIO) -> None:
        """Read the header. Raises Damaged."""
        self._opened = opened
        begin = self._take(len(_MAGIC))
        if begin.startswith(b"\0"):
            raise Damaged(
                "it begins with a zero byte, as the header of a schema registry does (a zero byte and an id of 4 "
                "bytes): write container files, which carry their schema, through the converter of that registry"
            )
        if begin != _MAGIC:
            raise Damaged("it does not begin as Avro files do")
        metadata = self._metadata()
        self.schema = metadata.get("avro.schema", b"").decode(errors="replace")
        self._unpack = _codec(metadata.get("avro.codec", b"null").decode(errors="replace"))
        self._sync = self._take(_SYNC_BYTES)

    def blocks(self) -> Iterator[Block]:
        """The blocks in their order; those without records too. Raises Damaged."""
        while True:
            at = self._opened.tell()
            if (first := self._opened.read(1)) == b"":
                return
            try:
                count, content = self._block(first)
            except Damaged as error:
                raise Damaged(f"the block at byte {at} is damaged: {error}") from error
            yield Block(at, count, content)

    def _block(self, first: bytes) -> tuple[int, bytes]:
        count, size = self._long(first), self._long()
        if count < 0 or size < 0:
            raise Damaged("it has a negative count or size")
        packed = self._take(_held(size))
        if self._take(_SYNC_BYTES) != self._sync:
            raise Damaged("it does not end with the sync marker of the file")
        if not count and not packed:
            return 0, b""
        try:
            return count, self._unpack(packed)
        except MemoryError:
            raise  # which is one of Arrow's exceptions too
        except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            raise Damaged(f"it cannot be unpacked ({error})") from error

    def _metadata(self) -> Mapping[str, bytes]:
        metadata: dict[str, bytes] = {}
        begin = self._opened.tell()
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            for _ in range(count):
                name = self._sized(begin)
                metadata[name.decode(errors="replace")] = self._sized(begin)
        return metadata

    def _sized(self, begin: int) -> bytes:
        size = self._long()
        if not 0 <= size <= _MOST_HEADER_BYTES - (self._opened.tell() - begin):
            raise Damaged(f"its header is damaged or larger than {_MOST_HEADER_BYTES >> 20} MiB")
        return self._take(size)

    def _long(self, first: bytes = b"") -> int:
        """A number of variable length; its ``first`` byte may have been read already."""
        value, shift = 0, 0
        byte = (first or self._take(1))[0]
        while byte & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift >= _LONG_BITS:
                raise Damaged("a number in it is longer than 64 bits")
            byte = self._take(1)[0]
        value |= byte << shift
        return (value >> 1) ^ -(value & 1)

    def _take(self, size: int) -> bytes:
        content = self._opened.read(size)
        if len(content) < size:
            raise Damaged("the file ends in the middle of it")
        return content


class _Stream(Protocol):
    """A decompressor with a limit, as the modules of Python have it."""

    @property
    def eof(self) -> bool:
        """Return whether the end was reached."""

    @property
    def unused_data(self) -> bytes:
        """Return the bytes behind the end."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so much."""


def _held(size: int) -> int:
    """``size`` if a block may have it."""
    if size > MOST_BLOCK_BYTES:
        raise Damaged(f"it holds more than {MOST_BLOCK_BYTES >> 20} MiB: write smaller blocks")
    return size


def _streamed(new: Callable[[], _Stream]) -> Callable[[bytes], bytes]:
    def unpack(packed: bytes) -> bytes:
        stream = new()
        content = stream.decompress(packed, MOST_BLOCK_BYTES + 1)
        _held(len(content))
        if not stream.eof or len(stream.unused_data) > _CHECKSUM_BYTES:
            raise Damaged("its packed bytes end too early or too late")
        return content

    return unpack


def _snappy(packed: bytes) -> bytes:
    """Raw Snappy, which begins with the unpacked size, then a big-endian CRC-32 of the unpacked bytes."""
    body, checksum = packed[:-_CHECKSUM_BYTES], packed[-_CHECKSUM_BYTES:]
    size = 0
    for place, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    content: bytes = pa.Codec("snappy").decompress(body, decompressed_size=_held(size), asbytes=True)
    if crc32(content) != int.from_bytes(checksum, "big"):
        raise Damaged("it has another checksum than it says")
    return content


def _zstandard(packed: bytes) -> bytes:
    """By a stream, because many writers do not say how much it unpacks to."""
    if not packed:
        raise Damaged("it is empty")
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        content: bytes = stream.read(MOST_BLOCK_BYTES + 1)
    _held(len(content))
    return content


def _codec(name: str) -> Callable[[bytes], bytes]:
    if name not in _CODECS:
        raise Damaged(f"its codec '{name}' is not read: use one of {', '.join(_CODECS)}")
    return _CODECS[name]


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _streamed(lambda: zlib.decompressobj(wbits=-zlib.MAX_WBITS)),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _streamed(bz2.BZ2Decompressor),
    "xz": _streamed(lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
}

"""Manifests and their lists as PyIceberg's records, of files that are whole.

PyIceberg takes a file that is cut off for one with fewer records, and its compiled decoder reads on in the memory
behind it. Whoever takes what is not listed for garbage would delete files that are in use. Must not know what records
mean.
"""

from __future__ import annotations

import bz2
import zlib
from binascii import crc32
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.codecs.zstandard_codec import ZStandardCodec
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import InputFile
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

_SCHEMA = "avro.schema"
_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


class NotWholeError(DependencyUnavailable, ValueError):
    """A manifest or a list of them, the file ``name``, is damaged or cut off: jobs wait until somebody restores it."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(Reason.STORAGE_UNAVAILABLE, f"{name} {why}; restore the file.")


def read_records(file: InputFile, reader_of: Callable[[str], Reader]) -> list[Any]:
    """All records of an Avro file. ``reader_of``: how they are read, by their schema as JSON.

    Raises OSError when the file cannot be read, and NotWholeError when it is not an Avro file, damaged or cut off.
    """
    with file.open() as stream:
        content = stream.read()
    return records_in(content, file.location, reader_of)


def records_in(content: bytes, name: str, reader_of: Callable[[str], Reader]) -> list[Any]:
    """All records in ``content``, that of the Avro file ``name``. See ``read_records``."""
    with _refused(name):
        schema, blocks = _blocks(content)
        reader = reader_of(schema)
        return [record for count, block in blocks for record in _of_block(block, count, reader)]


def read_blocks(content: bytes) -> tuple[str, list[tuple[int, bytes]]]:
    """The schema of an Avro file as JSON, and each block: how many records it holds, and its inflated bytes.

    Raises NotWholeError when ``content`` is not an Avro file, damaged or cut off.
    """
    with _refused("this"):
        return _blocks(content)


@contextmanager
def _refused(name: str) -> Iterator[None]:
    """Codecs and readers have errors of their own; whatever they are, the content is at fault."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise NotWholeError(name, f"is not a whole Avro file ({error})") from error


def _blocks(content: bytes) -> tuple[str, list[tuple[int, bytes]]]:
    begin = StreamingBinaryDecoder(content)  # it knows where the content ends
    header: AvroFileHeader = _HEADER.read(begin)
    _require(header.magic == MAGIC, "it does not begin like one")
    _require(_SCHEMA in header.meta, "it names no Avro schema")
    inflate = _CODECS.get(header.meta.get(AVRO_CODEC_KEY, "null"))
    if inflate is None:
        raise ValueError(f"the codec {header.meta[AVRO_CODEC_KEY]!r} is not known")
    decoder = new_decoder(content)
    decoder.skip(begin.tell())
    blocks = []
    while decoder.tell() < len(content):
        count, stored = _block(decoder, header.sync, len(content))
        blocks.append((count, inflate(stored)))
    return header.meta[_SCHEMA], blocks


def _block(decoder: BinaryDecoder, sync: bytes, end: int) -> tuple[int, bytes]:
    """The compiled decoder must not be led past the ``end``."""
    count, length = decoder.read_int(), decoder.read_int()
    _require(count >= 0 and 0 <= length <= end - decoder.tell() - SYNC_SIZE, "it is cut off")
    block = decoder.read(length)
    _require(decoder.read(SYNC_SIZE) == sync, "a block does not end with the file's sync marker")
    return count, block


def _of_block(block: bytes, count: int, reader: Reader) -> list[Any]:
    decoder = new_decoder(block)
    records = [reader.read(decoder) for _ in range(count)]
    _require(decoder.tell() == len(block), "a block does not keep to the schema")
    return records


def _require(condition: bool, why: str) -> None:  # noqa: FBT001
    if not condition:
        raise ValueError(why)


def _snappy(block: bytes) -> bytes:
    """Raw Snappy, which begins with the inflated size, then a big-endian CRC-32 of the inflated bytes."""
    body, checksum = block[:-4], int.from_bytes(block[-4:], "big")
    size = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(_leading_varint(body)))
    inflated: bytes = pa.Codec("snappy").decompress(body, decompressed_size=size, asbytes=True)
    if crc32(inflated) != checksum:
        raise ValueError("a Snappy block has another checksum than it says")
    return inflated


def _leading_varint(body: bytes) -> bytes:
    last = next((place for place, byte in enumerate(body) if byte < 0x80), len(body))
    return body[: last + 1]


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": partial(zlib.decompress, wbits=-zlib.MAX_WBITS),
    "snappy": _snappy,
    "zstandard": ZStandardCodec.decompress,
    "bzip2": bz2.decompress,
}

"""Avro object container files: the header's schema, and the blocks of records, inflated.

Used by the manifest decoder. Must not know manifests. What it does not read raises NotDecodable.
"""

from __future__ import annotations

import bz2
import zlib
from binascii import crc32
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.avro.codecs.zstandard_codec import ZStandardCodec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


class NotDecodable(Exception):
    """The bytes are not what this decoder reads; PyIceberg's reader has to judge them."""


@dataclass(frozen=True)
class Varint:
    """An int or a long."""


@dataclass(frozen=True)
class Sized:
    """A string or bytes: a length, then as many bytes."""


@dataclass(frozen=True)
class Fixed:
    """Always ``width`` bytes."""

    width: int


@dataclass(frozen=True)
class Nullable:
    """A union of null and ``inner``, in this order."""

    inner: AvroType


@dataclass(frozen=True)
class Repeated:
    """An array of ``item``, or a map, which is written like an array of pairs."""

    item: AvroType


@dataclass(frozen=True)
class AvroRecord:
    """Fields one after another, each with its Iceberg field id (None: it has none)."""

    fields: tuple[tuple[int | None, AvroType], ...]


AvroType = Varint | Sized | Fixed | Nullable | Repeated | AvroRecord

_PRIMITIVES: dict[str, AvroType] = {
    "null": Fixed(0),
    "boolean": Fixed(1),
    "float": Fixed(4),
    "double": Fixed(8),
    "int": Varint(),
    "long": Varint(),
    "bytes": Sized(),
    "string": Sized(),
}


def parse_type(avro: Any) -> AvroType:
    """How values of an Avro type are laid out. Raises NotDecodable for what Iceberg never writes."""
    match avro:
        case str() if avro in _PRIMITIVES:
            return _PRIMITIVES[avro]
        case ["null", inner]:
            return Nullable(parse_type(inner))
        case {"type": "record", "fields": list(fields)}:
            return AvroRecord(tuple((field.get("field-id"), parse_type(field["type"])) for field in fields))
        case {"type": "array", "items": items}:
            return Repeated(parse_type(items))
        case {"type": "map", "values": values}:
            return Repeated(AvroRecord(((None, Sized()), (None, parse_type(values)))))
        case {"type": "fixed", "size": int(size)}:
            return Fixed(size)
        case {"type": inner}:
            return parse_type(inner)
    raise NotDecodable(f"the Avro type {avro!r} is not known")


@dataclass(frozen=True)
class Container:
    """The Avro schema as JSON text, and each block: its inflated bytes and how many records they hold."""

    schema: str
    blocks: list[bytes]
    counts: list[int]


def read_container(data: bytes) -> Container:
    """Split a whole file into blocks. Raises NotDecodable when it is damaged or its codec is not known."""
    try:
        return _read_container(data)
    except (EOFError, ValueError, KeyError, OSError, zlib.error, pa.ArrowException) as error:
        raise NotDecodable(f"the Avro file cannot be read: {error}") from error


def _read_container(data: bytes) -> Container:
    decoder = new_decoder(data)
    header: Any = _HEADER.read(decoder)
    inflate = _CODECS[header.meta.get("avro.codec", "null")]
    blocks: list[bytes] = []
    counts: list[int] = []
    while decoder.tell() < len(data):
        counts.append(decoder.read_int())
        blocks.append(inflate(decoder.read_bytes()))
        _check_sync(decoder, header.sync)
    if header.magic != _MAGIC or min(counts, default=0) < 0:
        raise ValueError("no Avro container, or a negative number of records")
    return Container(header.meta["avro.schema"], blocks, counts)


def _check_sync(decoder: BinaryDecoder, expected: bytes) -> None:
    if decoder.read(_SYNC_BYTES) != expected:
        raise ValueError("a block does not end with the file's sync marker")


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

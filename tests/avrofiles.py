"""Avro files made byte by byte, so that tests can pack them in any codec and let them lie."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from binascii import crc32
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import zstandard

SYNC = b"sixteen bytes at"
Rows = Sequence[Mapping[str, Any]]


def _snappy(content: bytes) -> bytes:
    packed = pa.Codec("snappy").compress(content, asbytes=True)
    return bytes(packed) + crc32(content).to_bytes(4, "big")


def _deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def _unsized_zstandard(content: bytes) -> bytes:
    """As Java's writer does: a frame that does not say how large it is."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(content)


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _unsized_zstandard,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def long_bytes(number: int) -> bytes:
    """As Avro writes it."""
    rest, found = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def sized(content: bytes) -> bytes:
    """Bytes after their length."""
    return long_bytes(len(content)) + content


def header(schema: object, codec: str = "null") -> bytes:
    """``schema``: JSON values, or the text itself."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    told = sized(b"avro.schema") + sized(text.encode()) + sized(b"avro.codec") + sized(codec.encode())
    return b"Obj\x01" + long_bytes(2) + told + long_bytes(0) + SYNC


def block(content: bytes, count: int, codec: str = "null") -> bytes:
    """One block."""
    return long_bytes(count) + sized(CODECS[codec](content)) + SYNC


def records(schema: Any, rows: Rows) -> bytes:
    """The bytes of records."""
    parsed, found = fastavro.parse_schema(schema), io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(found, parsed, row)
    return found.getvalue()


def avro_file(schema: Any, *blocks: Rows, codec: str = "null") -> bytes:
    """A file with these ``blocks``."""
    return header(schema, codec) + b"".join(block(records(schema, rows), len(rows), codec) for rows in blocks)


def record(**fields: Any) -> dict[str, Any]:
    """The schema of records with these fields."""
    found = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Row", "namespace": "tests", "fields": found}

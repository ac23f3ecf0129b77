"""Avro object container files: the types of the header's schema, and the blocks of records.

Used by the manifest decoder. Must not know manifests. What it does not read raises NotDecodable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skipstone.compat.avro.whole import read_blocks


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
        schema, blocks = read_blocks(data)
    except ValueError as error:
        raise NotDecodable(f"the Avro file cannot be read: {error}") from error
    return Container(schema, [block for _, block in blocks], [count for count, _ in blocks])

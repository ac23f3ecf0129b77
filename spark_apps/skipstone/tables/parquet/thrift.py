"""Thrift's compact protocol, as far as Parquet's footers use it: structs as dicts by field number, and back.

Used by ``footers``, ``pages`` and ``splicing``. Source: the Apache Thrift compact protocol specification.
Must not know Parquet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_LONG_LIST = 15
#: Up to this one, the head of a field does not tell how far its number is from that of the field before.
_LONG_STEP = 15
_INTEGERS = frozenset({_I16, _I32, _I64})


class Struct(dict[int, Any]):
    """A struct by field number; ``raw``: the bytes it was read from."""

    raw: bytes


class CompactReader:
    """Reads ``data`` from its start."""

    def __init__(self, data: bytes) -> None:
        """Nothing is read yet."""
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        """The struct that comes next. Raises IndexError or ValueError when it is none."""
        value, self._at = _struct(self._data, self._at)
        return value

    def fields(self) -> dict[int, tuple[int, bytes]]:
        """The struct that comes next: type and encoded value by field number. Raises as ``struct`` does."""
        fields, data, at, number = {}, self._data, self._at, 0
        while head := data[at]:
            number, kind, at = _field(data, at, number, head)
            begin = at
            if kind not in (_TRUE, _FALSE):
                _, at = _value(data, at, kind)
            fields[number] = (kind, data[begin:at])
        self._at = at + 1
        return fields


# A footer has thousands of values: functions that take and give places are several times as fast as methods that keep
# one, and numbers and structs, which most values are, are read where they are met.


def _struct(data: bytes, at: int) -> tuple[Struct, int]:
    struct, begin, number = Struct(), at, 0
    while head := data[at]:
        if head > _LONG_STEP:
            number, kind, at = number + (head >> 4), head & 15, at + 1
        else:
            number, kind, at = _field(data, at, number, head)
        if kind in _INTEGERS:
            raw = data[at]
            at += 1
            if raw > 127:
                raw, at = _varint_from(data, at, raw)
            struct[number] = (raw >> 1) ^ -(raw & 1)
        elif kind == _STRUCT:
            struct[number], at = _struct(data, at)
        elif kind in (_TRUE, _FALSE):
            struct[number] = kind == _TRUE
        else:
            struct[number], at = _value(data, at, kind)
    struct.raw = data[begin : at + 1]
    return struct, at + 1


def _field(data: bytes, at: int, number: int, head: int) -> tuple[int, int, int]:
    """Number and type of the field with that ``head``, which follows the field ``number``, and where its value is."""
    if head > _LONG_STEP:
        return number + (head >> 4), head & 15, at + 1
    own_number, at = _integer(data, at + 1)
    return own_number, head & 15, at


def _varint_from(data: bytes, at: int, first: int) -> tuple[int, int]:
    """A number whose ``first`` byte says that others follow."""
    value, shift = first & 127, 7
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    return _varint_from(data, at + 1, first) if first > 127 else (first, at + 1)


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int, count: int) -> tuple[bytes, int]:
    if at + count > len(data):
        raise ValueError("a Thrift value ends after its bytes")
    return data[at : at + count], at + count


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _integer(data, at)
    if kind == _BINARY:
        count, at = _unsigned(data, at)
        return _bytes(data, at, count)
    if kind == _STRUCT:
        return _struct(data, at)
    if kind in (_LIST, _SET):
        return _list(data, at)
    return _rare(data, at, kind)


def _rare(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):  # in a list a truth value is a byte
        return data[at] == _TRUE, at + 1
    if kind == _BYTE:
        return data[at], at + 1
    if kind == _DOUBLE:
        return _bytes(data, at, 8)
    if kind == _MAP:
        return _map(data, at)
    raise ValueError(f"Thrift has no type {kind}")


def _list(data: bytes, at: int) -> tuple[list[Any], int]:
    head = data[at]
    count, kind, at = head >> 4, head & 15, at + 1
    if count == _LONG_LIST:
        count, at = _unsigned(data, at)
    values = []
    for _ in range(count):
        value, at = _value(data, at, kind)
        values.append(value)
    return values, at


def _map(data: bytes, at: int) -> tuple[list[tuple[Any, Any]], int]:
    count, at = _unsigned(data, at)
    kinds, at = (data[at], at + 1) if count else (0, at)
    pairs = []
    for _ in range(count):
        key, at = _value(data, at, kinds >> 4)
        value, at = _value(data, at, kinds & 15)
        pairs.append((key, value))
    return pairs, at


class Raw(bytes):
    """A struct that is encoded already."""


class Int32(int):
    """An integer that readers expect as i32."""


class Byte(int):
    """An integer of 8 bits."""


def encode_struct(fields: Mapping[int, int | bytes | Raw | list[Any]]) -> Raw:
    """A struct of integers (i64 but for Int32 and Byte), texts, structs and non-empty lists of one of these kinds."""
    return _assembled({number: _Field(_kind(value), _encoded(value)) for number, value in fields.items()})


def with_fields(raw: bytes, values: Mapping[int, int | bytes | Raw | list[Any] | None]) -> Raw:
    """The encoded struct ``raw`` with other ``values`` in some fields, without those that are None."""
    fields = {number: _Field(*encoded) for number, encoded in CompactReader(raw).fields().items()}
    for number, value in values.items():
        fields.pop(number, None)
        if value is not None:
            fields[number] = _Field(_kind(value), _encoded(value))
    return _assembled(fields)


def with_integers(raw: Raw, last: int, values: Mapping[int, int]) -> Raw:
    """The encoded struct ``raw``, whose last field is ``last``, with more fields of integers (i64), ascending."""
    encoded = bytearray(raw[:-1])
    for number, value in values.items():
        encoded.append((number - last) << 4 | _I64)
        encoded += _varint(value << 1 ^ value >> 63)
        last = number
    return Raw(encoded + b"\0")


class _Field(NamedTuple):
    """A field of a struct: its type and its encoded value."""

    kind: int
    value: bytes


def _assembled(fields: Mapping[int, _Field]) -> Raw:
    encoded, last = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        if number - last > _LONG_STEP:
            encoded += bytes([kind]) + _varint(number << 1)
        else:
            encoded.append((number - last) << 4 | kind)
        encoded += value
        last = number
    return Raw(encoded + b"\0")


def _kind(value: object) -> int:
    match value:
        case Raw():
            return _STRUCT
        case bytes():
            return _BINARY
        case list():
            return _LIST
        case Int32():
            return _I32
        case Byte():
            return _BYTE
        case _:
            return _I64


def _encoded(value: Any) -> bytes:
    match value:
        case Raw():
            return value
        case bytes():
            return _varint(len(value)) + value
        case list():
            return bytes([_LONG_LIST << 4 | _kind(value[0])]) + _varint(len(value)) + b"".join(map(_encoded, value))
        case Byte():
            return bytes([value])
        case _:
            return _varint(value << 1 ^ value >> 63)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])

"""Thrift's compact protocol, as far as Parquet's footers use it: structs as dicts by field number, and back.

Used by ``footers``, ``pages`` and ``splicing``. Source: the Apache Thrift compact protocol specification.
Must not know Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_LONG_LIST = 15


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
        found, begin = Struct(), self._at
        for number, kind in self._heads():
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind)
        found.raw = self._data[begin : self._at]
        return found

    def fields(self) -> dict[int, tuple[int, bytes]]:
        """The struct that comes next: type and encoded value by field number. Raises as ``struct`` does."""
        found = {}
        for number, kind in self._heads():
            begin = self._at
            if kind not in (_TRUE, _FALSE):
                self._value(kind)
            found[number] = (kind, self._data[begin : self._at])
        return found

    def _heads(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; the value must be read before the next is asked for."""
        number = 0
        while head := self._byte():
            delta = head >> 4
            number = number + delta if delta else self._integer()
            yield number, head & 15

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7

    def _integer(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _bytes(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("a Thrift value ends after its bytes")
        return self._data[self._at - count : self._at]

    def _value(self, kind: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._integer()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            return self._list()
        return self._rare(kind)

    def _rare(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):  # in a list a truth value is a byte
            return self._byte() == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _MAP:
            return self._map()
        raise ValueError(f"Thrift has no type {kind}")

    def _list(self) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._varint() if count == _LONG_LIST else count
        return [self._value(kind) for _ in range(count)]

    def _map(self) -> list[tuple[Any, Any]]:
        count = self._varint()
        kinds = self._byte() if count else 0
        return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]


class Raw(bytes):
    """A struct that is encoded already."""


class Int32(int):
    """An integer that readers expect as i32."""


def encode_struct(fields: Mapping[int, int | bytes | Raw | list[Any]]) -> Raw:
    """A struct of integers (i64 but for Int32), texts, structs and non-empty lists of one of these kinds."""
    return _assembled({number: _Field(_kind(value), _encoded(value)) for number, value in fields.items()})


def with_fields(raw: bytes, values: Mapping[int, int | bytes | Raw | list[Any] | None]) -> Raw:
    """The encoded struct ``raw`` with other ``values`` in some fields, without those that are None."""
    fields = {number: _Field(*one) for number, one in CompactReader(raw).fields().items()}
    for number, value in values.items():
        fields.pop(number, None)
        if value is not None:
            fields[number] = _Field(_kind(value), _encoded(value))
    return _assembled(fields)


class _Field(NamedTuple):
    """A field of a struct: its type and its encoded value."""

    kind: int
    value: bytes


def _assembled(fields: Mapping[int, _Field]) -> Raw:
    found, last = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        found.append((number - last) << 4 | kind)
        found += value
        last = number
    return Raw(found + b"\0")


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
        case _:
            return _varint(value << 1 ^ value >> 63)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])

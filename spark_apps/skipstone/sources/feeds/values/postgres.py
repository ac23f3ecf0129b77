"""Values as PostgreSQL's own output functions write them, with the name that PostgreSQL has for their type.

Called by ``columns`` before a value is converted, and by readers of feeds whose messages name types so. Source:
PostgreSQL's documentation of its types, and messages of wal2json 2.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from skipstone_core.contract.feeds import NonFinite

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.sources.feeds.shapes import Raw, Semantic
from skipstone.sources.feeds.values.encodings import NotCertain, ReadAs

#: The name of a Semantic whose type is PostgreSQL's.
_POSTGRES = "postgresql"
_LIST = "[]"
_BYTES = "bytea"
_DECIMAL = re.compile(r"numeric\((\d+),(\d+)\)", re.ASCII)
_MODIFIER = re.compile(r"\([\d,-]+\)", re.ASCII)
_HEX = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)
_ITEM = re.compile(r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",{}\\]+))(?P<end>,|$)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BITS = frozenset({"bit", "bit varying"})
_FINITE = frozenset({"smallint", "integer", "bigint", "oid"})
#: Types that have NaN and infinities.
_NON_FINITE = frozenset({"real", "double precision", "numeric"})
_ADDED: Mapping[str, IcebergType] = {
    "boolean": BooleanType(),
    "smallint": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "oid": LongType(),
    "real": FloatType(),
    "double precision": DoubleType(),
    _BYTES: BinaryType(),
    "date": DateType(),
    "timestamp without time zone": TimestampType(),
    "timestamp with time zone": TimestamptzType(),
}
_MAX_DIGITS = 38
#: Whether the value of a column may be one that PostgreSQL keeps beside the row: text and numeric, which are of any
#: length, may be declared as any of these types.
_MAY_BE_LARGE = ByPrimitive(
    boolean=False,
    integer=False,
    long=False,
    float=True,
    double=True,
    decimal=True,
    date=False,
    time=False,
    timestamp=True,
    timestamptz=True,
    timestamp_ns=False,
    timestamptz_ns=False,
    string=True,
    uuid=True,
    fixed=True,
    binary=True,
    opaque=False,
)
#: What to do about text that is not a date of the years 1 to 9999.
DATES_REMEDY = (
    "set datestyle to ISO for the role that reads the slot if PostgreSQL writes dates in another way; declare the "
    "column as string if it has years before 1 or after 9999"
)


class Unquoted(str):
    """A number as it stands in JSON, with all its digits."""

    __slots__ = ()


class _NoNumber:
    """Stands for a null of JSON that may be NaN or an infinity in the database."""


NO_NUMBER = _NoNumber()


@lru_cache(maxsize=4096)
def postgres_semantic(name: str) -> Semantic:
    """Return what the type ``name`` of PostgreSQL says of a column, such as ``numeric(12,2)`` or ``text[]``."""
    item = postgres_semantic(name.removesuffix(_LIST)) if name.endswith(_LIST) else None
    return Semantic(_POSTGRES, item=item, is_bytes=name == _BYTES, type=name, optional=True)


def is_postgres(semantic: Semantic | None) -> bool:
    """Return whether ``semantic`` is of a type of PostgreSQL."""
    return semantic is not None and semantic.name == _POSTGRES


def has_non_finite(semantic: Semantic) -> bool:
    """Return whether values of the type may be NaN or an infinity."""
    return _base(semantic) in _NON_FINITE


def is_number(semantic: Semantic) -> bool:
    """Return whether JSON has values of the type as numbers."""
    return _base(semantic) in _FINITE | _NON_FINITE


def added_type(semantic: Semantic) -> IcebergType | None:
    """Return the type of a new column for values of the type; None where there is none that holds them all."""
    if semantic.item is not None:
        return None
    if decimal := _DECIMAL.fullmatch(semantic.type):
        precision, scale = int(decimal[1]), int(decimal[2])
        return DecimalType(precision, scale) if scale <= precision <= _MAX_DIGITS else None
    base = _base(semantic)
    return None if base == "numeric" else _ADDED.get(base, StringType())


def may_be_large(kind: IcebergType) -> bool:
    """Return whether PostgreSQL may keep values of a column beside the row, and not log one that an update leaves."""
    is_large = _MAY_BE_LARGE.find(kind)
    return isinstance(kind, ListType | MapType) if is_large is None else is_large


def plain_value(value: Raw, semantic: Semantic, of: ReadAs) -> Raw:
    """Return ``value`` as one that needs no type of PostgreSQL to be read. Raises NotCertain and ValueError.

    Text of arrays becomes a list, text of bytes becomes bytes, and a number becomes its text where text is read.
    """
    if value is NO_NUMBER:
        _require_null(of)
        return None
    if isinstance(of.type, StringType) and isinstance(value, int | Unquoted) and not isinstance(value, bool):
        return str(value)
    if semantic.item is not None:
        return value if not isinstance(of.type, ListType) else _items(value)
    is_binary = isinstance(of.type, BinaryType | FixedType)
    if semantic.type == _BYTES:
        if not is_binary:
            raise NotCertain("the type is bytea: declare the column as binary, or leave it out of the table")
        return _octets(value)
    if is_binary:
        raise NotCertain("only bytea is read into bytes: declare the column as string, or with the type it has")
    if _base(semantic) in _BITS and not isinstance(of.type, StringType | BooleanType):
        raise NotCertain("it is text of bits, which is not a number of decimal digits: declare the column as string")
    return value


def _require_null(of: ReadAs) -> None:
    """Raise NotCertain unless the spec says that NaN and infinities become null."""
    if of.rules.non_finite is not NonFinite.NULL:
        raise NotCertain(
            "it is null, which wal2json writes for NaN and infinities too: "
            + (
                "no key may be one"
                if of.rules.is_key
                else "set numeric-data-types-as-string of wal2json to true (since wal2json 2.6), or source.nonFinite "
                "to Null if they may become null or the database has none"
            )
        )


def _base(semantic: Semantic) -> str:
    """The name of the type without what limits its values."""
    return _MODIFIER.sub("", semantic.type)


def _octets(value: Raw) -> bytes:
    """Those of bytea, in an array with the prefix that wal2json takes off elsewhere."""
    digits = value.removeprefix("\\x") if isinstance(value, str) else ""
    if not isinstance(value, str) or not _HEX.fullmatch(digits):
        raise NotCertain("it is not hexadecimal: set bytea_output to hex for the role that reads the slot")
    return bytes.fromhex(digits)


def _items(value: Raw) -> Sequence[str | None]:
    """The items of an array's text. Raises ValueError for other text."""
    if not isinstance(value, str):
        raise TypeError(value)
    if value.startswith(("{{", "[")):
        raise NotCertain(
            "it is an array of more than one dimension, or one that does not begin at 1: declare the column as string"
        )
    if not (value.startswith("{") and value.endswith("}")):
        raise ValueError(value)
    inner, at, items = value[1:-1], 0, []
    while at < len(inner):
        match = _ITEM.match(inner, at)
        if match is None or (match["end"] and match.end() == len(inner)):
            raise ValueError(value)
        items.append(_item(match["quoted"], match["plain"]))
        at = match.end()
    return items


def _item(quoted: str | None, plain: str) -> str | None:
    if quoted is not None:
        return _ESCAPED.sub(r"\1", quoted)
    return None if plain == "NULL" else plain

"""Key values and their one order: what equals what, and what comes first.

The data plane canonicalises keys by these rules when it builds an index, probes it and merges; the array version in the
data plane is tested against this scalar definition. Must not know where a value came from.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum

Canonical = int | bytes
KeyValue = bool | int | float | Decimal | str | bytes | date | datetime

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIGN = 1 << 63
_DIGITS_IN_64_BITS = 18
_MAX_DIGITS = 38
_NAN_BITS = 0x7FF8000000000000
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


class KeyFamily(StrEnum):
    """Types whose values compare with one another. A merge key has one family on both sides."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"


_FAMILIES = {
    "boolean": KeyFamily.BOOLEAN,
    "int": KeyFamily.INTEGER,
    "long": KeyFamily.INTEGER,
    "float": KeyFamily.FLOAT,
    "double": KeyFamily.FLOAT,
    "string": KeyFamily.STRING,
    "binary": KeyFamily.BINARY,
    "uuid": KeyFamily.BINARY,
    "date": KeyFamily.DATE,
    "time": KeyFamily.TIME,
    "timestamp": KeyFamily.TIMESTAMP,
    "timestamptz": KeyFamily.TIMESTAMPTZ,
}


@dataclass(frozen=True)
class KeyType:
    """How values of one column compare.

    For decimals only: ``digits`` before and ``scale`` after the point, at which both sides are compared exactly.
    """

    family: KeyFamily
    scale: int = 0
    digits: int = 0

    @property
    def is_wide(self) -> bool:
        """Whether unscaled decimals may need more than 64 bits."""
        return self.scale + self.digits > _DIGITS_IN_64_BITS

    def common(self, other: KeyType) -> KeyType | None:
        """The type in which values of both compare exactly, None when they do not compare."""
        both = KeyType(self.family, max(self.scale, other.scale), max(self.digits, other.digits))
        if self.family is not other.family or both.scale + both.digits > _MAX_DIGITS:
            return None
        return both


def key_type(iceberg_type: str) -> KeyType | None:
    """The key type of an Iceberg type name such as ``long`` or ``decimal(9,2)``; None for nested types."""
    name = iceberg_type.strip().lower()
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal.group(1)), int(decimal.group(2))
        return KeyType(KeyFamily.DECIMAL, scale, precision - scale)
    if name.startswith("fixed["):
        return KeyType(KeyFamily.BINARY)
    family = _FAMILIES.get(name)
    return KeyType(family) if family else None


def normalize(value: KeyValue, kind: KeyType) -> Canonical:
    """Turn a value into an int or bytes with the order and equality of its family.

    Integers and booleans: themselves. Dates: days, timestamps: microseconds since 1970. Decimals: unscaled at
    ``kind.scale``. Floats: order-preserving 64-bit integer, -0.0 = 0.0, NaN = NaN and greatest. Strings: UTF-8 bytes.
    Raises ValueError for a decimal that ``kind.scale`` cannot hold and TypeError for a value of another family.
    """
    match value:
        case float() if kind.family is KeyFamily.FLOAT:
            return float_order(value)
        case bool() | int() if kind.family in (KeyFamily.BOOLEAN, KeyFamily.INTEGER, KeyFamily.TIME):
            return int(value)
        case Decimal() if kind.family is KeyFamily.DECIMAL:
            return _unscaled(value, kind.scale)
        case str() if kind.family is KeyFamily.STRING:
            return value.encode()
        case bytes() if kind.family is KeyFamily.BINARY:
            return value
        case datetime() if kind.family in (KeyFamily.TIMESTAMP, KeyFamily.TIMESTAMPTZ):
            return _microseconds(value)
        case date() if kind.family is KeyFamily.DATE and not isinstance(value, datetime):
            return (value - _EPOCH_DAY).days
        case _:
            raise TypeError(f"{type(value).__name__} is no {kind.family} key")


def float_order(value: float) -> int:
    """The signed 64-bit integer that stands for ``value`` in Spark's order of floats."""
    if math.isnan(value):
        return _NAN_BITS
    (bits,) = struct.unpack(">q", struct.pack(">d", value + 0.0))
    return int(bits) if bits >= 0 else -_SIGN - int(bits) - 1


def float_value(order: int) -> float:
    """The float that ``float_order`` mapped to ``order``."""
    bits = order if order >= 0 else -_SIGN - order - 1
    (value,) = struct.unpack(">d", struct.pack(">q", bits))
    return float(value)


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no number")
    number = int("".join(map(str, digits)) or "0")
    shift = scale + exponent
    if shift < 0:
        number, lost = divmod(number, int(10**-shift))
        if lost:
            raise ValueError(f"{value} has more than {scale} decimal places")
    else:
        number *= int(10**shift)
    return -number if sign else number


def _microseconds(value: datetime) -> int:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND

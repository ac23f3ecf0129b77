"""Key values and their one order: what equals what, and what comes first.

The data plane brings keys into one form by these rules when it builds an index, probes it and merges. Must not know
where a value came from.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from enum import StrEnum

_SIGN = 1 << 63
_DIGITS_IN_64_BITS = 18
_MAX_DIGITS = 38
_NAN_BITS = 0x7FF8000000000000
#: What is said of a column that no key of a covering index can be.
UNFIT_FOR_BUCKETS = (
    "by which rows are not divided into buckets; create the index again with columns of booleans, integers, decimals "
    "of at most 18 digits, dates, timestamps, strings or bytes"
)
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
        """Return whether unscaled decimals may need more than 64 bits."""
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


def is_bucketed(iceberg_type: str) -> bool:
    """Return whether an Iceberg type can be the key of a covering index, whose buckets are those of Spark's shuffles.

    Not floats, whose stored form is another; not UUIDs, which Spark reads as texts; not times, which it does not read;
    and not decimals of more than 64 bits.
    """
    kind = key_type(iceberg_type)
    if kind is None or kind.is_wide or iceberg_type.strip().lower() == "uuid":
        return False
    return kind.family not in (KeyFamily.FLOAT, KeyFamily.TIME)


def float_order(value: float) -> int:
    """The signed 64-bit integer that stands for ``value`` in Spark's order of floats."""
    if math.isnan(value):
        return _NAN_BITS
    (bits,) = struct.unpack(">q", struct.pack(">d", value + 0.0))
    return int(bits) if bits >= 0 else -_SIGN - int(bits) - 1

"""Keys one by one: the plain definition that the data plane's array version of keys is tested against."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from skipstone_core.keys import KeyFamily, KeyType, float_order

Canonical = int | bytes
KeyValue = bool | int | float | Decimal | str | bytes | date | datetime

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIGN = 1 << 63


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

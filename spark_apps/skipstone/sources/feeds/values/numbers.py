"""Numbers of messages: whole ones, decimals and floats, however they are written, and booleans.

Called by ``columns``. A number either survives whole or raises one of ValueError, TypeError, ArithmeticError and
LookupError.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Mapping
from decimal import Context, Decimal, localcontext
from typing import cast

import numpy as np
from pyiceberg.types import DecimalType, FloatType, IntegerType

from skipstone.sources.feeds.shapes import Raw
from skipstone.sources.feeds.values.encodings import ReadAs, content_of

#: The smallest float of 32 bits that has all digits.
_LEAST_SINGLE = 2.0**-126
_DIGITS = 40
_INTEGER = re.compile(rf"[+-]?\d{{1,{_DIGITS}}}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
#: Also as Debezium writes those of decimals.
_SPECIAL_FLOATS = {
    **dict.fromkeys(("NaN", "NAN"), float("nan")),
    **dict.fromkeys(("Infinity", "+Infinity", "POSITIVE_INFINITY"), float("inf")),
    **dict.fromkeys(("-Infinity", "NEGATIVE_INFINITY"), -float("inf")),
}
_BOOLEANS = {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False}
#: Holds every number that a decimal of 38 digits is compared with.
_WIDE = Context(prec=200)


def boolean(value: Raw, of: ReadAs) -> object:
    """True and false, also as 1 and 0, and as text where text may stand for any value."""
    if isinstance(value, str) and of.rules.text:
        return _BOOLEANS[value.lower()]
    if isinstance(value, int | Decimal) and value in (0, 1):
        return bool(value)
    raise ValueError(value)


def integer(value: Raw, of: ReadAs) -> object:
    """A whole number of 32 or 64 bits."""
    number = _whole(value, of)
    bits = 31 if isinstance(of.type, IntegerType) else 63
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(value)
    return number


def _whole(value: Raw, of: ReadAs) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    number = _exact(value, of)
    if number.adjusted() > _DIGITS or number != number.to_integral_value():  # an int of all digits may take forever
        raise ValueError(value)
    return int(number)


def floating(value: Raw, of: ReadAs) -> object:
    """The nearest number, when it is written as the value is, or has the value itself."""
    if isinstance(value, str) and value in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[value]
    is_single = isinstance(of.type, FloatType)
    if isinstance(value, float) and (not (is_single and math.isfinite(value)) or _single(value) == value):
        return value
    number = _exact(value, of)
    found = _single(float(number)) if is_single else float(number)
    if _is_short(number, is_single=is_single):
        return found
    if not math.isfinite(found) or number not in _ways_to_write(found, is_single=is_single):
        raise ValueError(value)
    return found


def _ways_to_write(value: float, *, is_single: bool) -> set[Decimal]:
    """The number itself, the shortest text that stands for it, and what writers with a number of digits write.

    The smallest numbers have fewer digits, and Java writes two of them where one would do.
    """
    shortest = str(np.float32(value)) if is_single else repr(value)
    least, most, normal = (6, 9, _LEAST_SINGLE) if is_single else (15, 17, sys.float_info.min)
    rounded = (f"{value:.{digits}g}" for digits in range(least if abs(value) >= normal else 1, most + 1))
    return {Decimal(value), Decimal(shortest), *map(Decimal, rounded)}


def _is_short(number: Decimal, *, is_single: bool) -> bool:
    """Whether a number has so few digits that floats tell it from all others that have no more."""
    digits, exponent = (6, 30) if is_single else (15, 290)
    return len(number.as_tuple().digits) <= digits and abs(number.adjusted()) < exponent


def _single(value: float) -> float:
    """The nearest number of 32 bits."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _exact(value: Raw, of: ReadAs) -> Decimal:
    """A number of any kind, whole."""
    if isinstance(value, bool):
        raise ValueError(value)
    match value:
        case Decimal():
            return _finite(value)
        case int():
            return Decimal(value)
        case float():
            return _finite(Decimal(repr(value)))
        case bytes() | str() if of.semantic is not None and of.semantic.scale is not None:
            return _unscaled(content_of(value), of.semantic.scale)
        case str() if _NUMBER.fullmatch(value):
            return Decimal(value)
        case Mapping() if set(value) == {"scale", "value"}:  # io.debezium.data.VariableScaleDecimal
            return _unscaled(content_of(value["value"]), int(value["scale"]))
    raise ValueError(value)


def is_decimal_text(text: str) -> bool:
    """Whether ``text`` is a number in decimal digits."""
    return bool(_NUMBER.fullmatch(text))


def _finite(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise ValueError(value)
    return value


def _unscaled(content: bytes, scale: int) -> Decimal:
    """From big-endian two's complement."""
    if not content or len(content) > 64:
        raise ValueError(content)
    return Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-scale, _WIDE)


def decimal(value: Raw, of: ReadAs) -> object:
    """A number of the precision and scale of the type."""
    kind = cast(DecimalType, of.type)
    number = _exact(value, of)
    with localcontext(_WIDE):
        fitted = number.quantize(Decimal(1).scaleb(-kind.scale))
    if fitted != number or len(str(abs(int(fitted.scaleb(kind.scale, _WIDE))))) > kind.precision:
        raise ValueError(value)
    return fitted

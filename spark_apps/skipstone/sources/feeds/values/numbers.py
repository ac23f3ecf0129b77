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
from skipstone.sources.feeds.values.encodings import NotCertain, ReadAs, content_of, is_scaled

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
#: Digits of whole numbers as hexadecimal shows the bytes of their text.
_HEX_OF_DIGITS = re.compile(r"(3\d)+", re.ASCII)
#: Significant digits that a float keeps of a decimal, by what schemas call it.
_KEPT_DIGITS = {"float": 6, "float32": 6, "double": 15, "float64": 15}
_MOST_KEPT = 15
#: Digits that Java before 19 writes of a float of 64 bits.
_MOST_OF_JAVA = 18
#: The digits of MySQL's BIGINT UNSIGNED.
_UNSIGNED_DIGITS = 20
#: Holds every number that a decimal of 38 digits is compared with.
_WIDE = Context(prec=200)


def boolean(value: Raw, of: ReadAs) -> object:
    """True and false, also as 1 and 0, and as text where text may stand for any value."""
    if isinstance(value, str) and of.rules.style.is_text:
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
        _refuse_hex(value, of)
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
    nearest = _single(float(number)) if is_single else float(number)
    if _is_short(number, is_single=is_single):
        return nearest
    if isinstance(value, Decimal) and not is_single:  # a number of JSON, which the writer had as a float
        number = _without_last_of_java(number)
    if not math.isfinite(nearest) or number not in _ways_to_write(nearest, is_single=is_single):
        raise ValueError(value)
    return nearest


def _without_last_of_java(number: Decimal) -> Decimal:
    """``number`` without the digit that Java before 19 may write after the 17 which tell a float of 64 bits."""
    return number.normalize(Context(prec=17)) if len(number.as_tuple().digits) == _MOST_OF_JAVA else number


def _ways_to_write(value: float, *, is_single: bool) -> set[Decimal]:
    """The number itself, the shortest text that stands for it, and what writers with a number of digits write.

    The smallest numbers have fewer digits, and Java writes two of them where one would do.
    """
    shortest = str(np.float32(value)) if is_single else repr(value)
    least, most, normal = (6, 9, _LEAST_SINGLE) if is_single else (15, 17, sys.float_info.min)
    rounded = (f"{value:.{digits}g}" for digits in range(least if abs(value) >= normal else 1, most + 1))
    return {Decimal(value), Decimal(shortest), *map(Decimal, rounded)}


def _is_short(number: Decimal, *, is_single: bool) -> bool:
    """Return whether a number has so few digits that floats tell it from all others that have no more."""
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
        case Mapping() if is_variable_scale(value):
            return _unscaled(content_of(value["value"]), int(value["scale"]))
    raise ValueError(value)


def is_decimal_text(text: str) -> bool:
    """Return whether ``text`` is a number in decimal digits."""
    return bool(_NUMBER.fullmatch(text))


def is_variable_scale(value: Raw) -> bool:
    """Return whether ``value`` is a number with its scale: io.debezium.data.VariableScaleDecimal."""
    return isinstance(value, Mapping) and set(value) == {"scale", "value"} and isinstance(value["scale"], int)


def number_text(value: Raw, of: ReadAs) -> str:
    """Return a number with its scale as text such as 1.50."""
    return format(_exact(value, of), "f")


def _refuse_hex(value: str, of: ReadAs) -> None:
    if not of.rules.style.is_text and _HEX_OF_DIGITS.fullmatch(value):
        raise NotCertain(
            "it is text that may be a number or its digits in hexadecimal (binary.handling.mode=hex): declare the "
            "column as decimal(38,0) if the database has a numeric there, else leave it out (column.exclude.list)"
        )


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
    if not of.rules.style.is_text and not is_scaled(of.semantic):
        _refuse_rounded(value, kind, of)
        _refuse_wrapped(value, kind)
    number = _exact(value, of)
    with localcontext(_WIDE):
        fitted = number.quantize(Decimal(1).scaleb(-kind.scale))
    if fitted != number or len(str(abs(int(fitted.scaleb(kind.scale, _WIDE))))) > kind.precision:
        raise ValueError(value)
    return fitted


def _refuse_rounded(value: Raw, kind: DecimalType, of: ReadAs) -> None:
    """Raise NotCertain for a float that stands for several decimals of the column's scale."""
    digits = _MOST_KEPT if of.semantic is None else _KEPT_DIGITS.get(of.semantic.type, _MOST_KEPT)
    number = Decimal(value) if isinstance(value, float | Decimal) else Decimal(0)
    if number.is_finite() and abs(number) >= Decimal(1).scaleb(digits - kind.scale):
        raise NotCertain(
            f"it is a float, which keeps {digits} digits of a {kind}: set decimal.handling.mode to string, or to "
            "precise with schemas (schemas.enable=true)"
        )


def _refuse_wrapped(value: Raw, kind: DecimalType) -> None:
    """Raise NotCertain for what Debezium's MySQL connector makes of BIGINT UNSIGNED above 9223372036854775807."""
    is_unsigned = (kind.precision, kind.scale) == (_UNSIGNED_DIGITS, 0)
    if is_unsigned and isinstance(value, int) and value < 0:
        raise NotCertain(
            "a column of decimal(20,0) holds MySQL's BIGINT UNSIGNED, of which Debezium writes a large number as a "
            "negative one: set bigint.unsigned.handling.mode to precise and let the converter write schemas "
            "(schemas.enable=true), or declare the column as long or decimal(19,0) if the database's is signed"
        )

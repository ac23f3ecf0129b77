"""Literals of Iceberg's filters, as JSON has them, in the kind of value that predicates compare with a type.

Called by ``icebergjson``. Iceberg's Java client writes dates as days, timestamps as microseconds, decimals as text and
bytes as hex; PyIceberg writes dates, times and UUIDs as ISO texts. A value is read only where both take it alike.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, localcontext
from enum import Enum
from typing import Final

from skipstone_core.language.predicates import Value

Plain = bool | int | float | str


class OutOfType(Enum):
    """Why a literal is not a value of a type: it is beyond all of them, or says nothing that is certain."""

    ABOVE = "above"
    BELOW = "below"
    UNFIT = "unfit"


_INT_BITS, _LONG_BITS = 32, 64
_EPOCH_DAY, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
#: Whole numbers up to it are floats as they are, so that rounding them in two steps changes nothing.
_EXACT_FLOATS = 1 << 53
_MOST_DIGITS = 38
_DIGITS = Context(prec=200)
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)0*(Z|[+-]\d\d:\d\d)?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_HEX = re.compile(r"([0-9a-f]{2})*", re.ASCII | re.IGNORECASE)
_LONGEST_NUMBER: Final = 400
_INFINITIES: Mapping[str, float] = {"Infinity": math.inf, "-Infinity": -math.inf}


def read_value(value: Plain | None, type_name: str) -> Value | OutOfType:
    """Read a literal that is compared with values of an Iceberg type such as ``long`` or ``decimal(9, 2)``."""
    name, _, parameters = type_name.strip().lower().replace("(", "[").partition("[")
    read = _READERS.get(name.strip())
    return OutOfType.UNFIT if read is None or value is None else read(value, parameters.rstrip(")]"))


def greatest_and_least(type_name: str) -> tuple[int, int] | None:
    """The ends of a type of whole numbers; None for other types."""
    bits = {"int": _INT_BITS, "long": _LONG_BITS}.get(type_name)
    return None if bits is None else ((1 << (bits - 1)) - 1, -1 << (bits - 1))


def has_scale(value: Plain | None, type_name: str) -> bool:
    """Return whether Iceberg's lists find ``value`` among those of a type: Java compares scales of decimals there."""
    if not isinstance(value, str) or not type_name.strip().lower().startswith("decimal"):
        return True
    scale = type_name.partition(",")[2].strip(" )")
    return _NUMBER.fullmatch(value) is not None and Decimal(value).as_tuple().exponent == -int(scale)


def _read_boolean(value: Plain, _: str) -> Value | OutOfType:
    if isinstance(value, bool):
        return value
    texts = {"true": True, "false": False}
    return texts.get(value.lower(), OutOfType.UNFIT) if isinstance(value, str) else OutOfType.UNFIT


def _whole(value: Plain, bits: int) -> int | OutOfType:
    if isinstance(value, bool | float):
        return OutOfType.UNFIT
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            return OutOfType.UNFIT
        value = int(value)
    limit = 1 << (bits - 1)
    if value >= limit:
        return OutOfType.ABOVE
    return value if value >= -limit else OutOfType.BELOW


def _read_int(value: Plain, _: str) -> Value | OutOfType:
    return _whole(value, _INT_BITS)


def _read_long(value: Plain, _: str) -> Value | OutOfType:
    return _whole(value, _LONG_BITS)


def _read_double(value: Plain, _: str) -> Value | OutOfType:
    if isinstance(value, bool):
        return OutOfType.UNFIT
    if isinstance(value, str):
        if value in _INFINITIES:
            return _INFINITIES[value]
        if len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
            return OutOfType.UNFIT
    try:
        number = float(value)
    except OverflowError:
        return OutOfType.UNFIT
    return OutOfType.UNFIT if math.isnan(number) else number


def _read_float(value: Plain, _: str) -> Value | OutOfType:
    """The nearest float; what is finite and beyond all floats says nothing, since Iceberg forgets infinities there."""
    if isinstance(value, int) and abs(value) > _EXACT_FLOATS:
        return OutOfType.UNFIT
    number = _read_double(value, "")
    if not isinstance(number, float):
        return number
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return OutOfType.UNFIT
    return float(nearest) if math.isinf(nearest) == math.isinf(number) else OutOfType.UNFIT


def _read_decimal(value: Plain, parameters: str) -> Value | OutOfType:
    scale = int(parameters.partition(",")[2] or 0)
    if isinstance(value, bool):
        return OutOfType.UNFIT
    with localcontext(_DIGITS):
        if isinstance(value, float):
            return _rounded(value, scale)
        if isinstance(value, str) and (len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value)):
            return OutOfType.UNFIT
        if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
            return OutOfType.UNFIT
        number = Decimal(value)
        if number.adjusted() >= _MOST_DIGITS:
            return OutOfType.UNFIT
        exact = _at_scale(number, max(scale, 0))
        if exact != number:
            exact = _at_scale(number, _MOST_DIGITS)
        return exact if exact == number else OutOfType.UNFIT


def _at_scale(number: Decimal, scale: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-scale))


def _rounded(value: float, scale: int) -> Value | OutOfType:
    """A double is rounded to the column's scale: Java rounds its shortest text, PyIceberg its exact value."""
    if not math.isfinite(value) or abs(value) >= 10.0**_MOST_DIGITS:
        return OutOfType.UNFIT
    step = Decimal(1).scaleb(-scale)
    by_text, by_value = (number.quantize(step, "ROUND_HALF_UP") for number in (Decimal(repr(value)), Decimal(value)))
    return by_text if by_text == by_value else OutOfType.UNFIT


def _read_string(value: Plain, _: str) -> Value | OutOfType:
    if not isinstance(value, str):
        return OutOfType.UNFIT
    try:
        value.encode()
    except UnicodeEncodeError:
        return OutOfType.UNFIT
    return value


def _read_date(value: Plain, _: str) -> Value | OutOfType:
    try:
        if isinstance(value, str):
            return date.fromisoformat(value) if _DAY.fullmatch(value) else OutOfType.UNFIT
        days = _whole(value, _INT_BITS)
        return days if isinstance(days, OutOfType) else _EPOCH_DAY + timedelta(days=days)
    except (ValueError, OverflowError):
        return OutOfType.UNFIT


def _read_timestamp(value: Plain, _: str) -> Value | OutOfType:
    moment = _moment(value, has_zone=False)
    return moment.replace(tzinfo=None) if isinstance(moment, datetime) else moment


def _read_timestamptz(value: Plain, _: str) -> Value | OutOfType:
    return _moment(value, has_zone=True)


def _moment(value: Plain, *, has_zone: bool) -> datetime | OutOfType:
    """The instant in UTC. PyIceberg writes no zone for those either, so that a text without one is in UTC."""
    try:
        if isinstance(value, str):
            match = _MOMENT.fullmatch(value)
            if not match or (match[2] and not has_zone):
                return OutOfType.UNFIT
            return datetime.fromisoformat(match[1] + (match[2] or "Z")).astimezone(UTC)
        micros = _whole(value, _LONG_BITS)
        return OutOfType.UNFIT if isinstance(micros, OutOfType) else _EPOCH + timedelta(microseconds=micros)
    except (ValueError, OverflowError):
        return OutOfType.UNFIT


def _read_uuid(value: Plain, _: str) -> Value | OutOfType:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        return OutOfType.UNFIT
    return bytes.fromhex(value.replace("-", ""))


def _read_binary(value: Plain, _: str) -> Value | OutOfType:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        return OutOfType.UNFIT
    return bytes.fromhex(value)


def _read_fixed(value: Plain, parameters: str) -> Value | OutOfType:
    read = _read_binary(value, "")
    return read if isinstance(read, bytes) and len(read) == int(parameters) else OutOfType.UNFIT


_READERS: Mapping[str, Callable[[Plain, str], Value | OutOfType]] = {
    "boolean": _read_boolean,
    "int": _read_int,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "decimal": _read_decimal,
    "string": _read_string,
    "date": _read_date,
    "timestamp": _read_timestamp,
    "timestamptz": _read_timestamptz,
    "uuid": _read_uuid,
    "binary": _read_binary,
    "fixed": _read_fixed,
}

"""Casts of expressions on Arrow arrays: by the rules of Spark's ANSI SQL, but one that would lose something fails.

Called by ``expressions``. Floats are the exception: a number that goes to one becomes the nearest. Text is cast one
value after the other, numbers and times as whole arrays. Must not know expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.language.expressions import decimal_of

from skipstone.tables.arrow import cast_decimals

#: More digits than any quotient of two decimals needs before it is rounded.
EXACT = Context(prec=160, rounding=ROUND_HALF_UP)
_ZONED = pa.timestamp("us", tz="UTC")
_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": _ZONED,
}
#: Microseconds of the first and the last moment of the years 1 to 9999, which are those that Python has.
FIRST_MOMENT, LAST_MOMENT = -62_135_596_800_000_000, 253_402_300_799_999_999
_MOST_EXPONENT = 400
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,4}))?", re.ASCII)
_NO_NUMBER = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(rf"{_DAY.pattern}(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{{1,6}})?)?(?P<zone>Z|[+-]\d\d:\d\d)?)?", re.ASCII)
_TRUE, _FALSE = frozenset({"t", "true", "y", "yes", "1"}), frozenset({"f", "false", "n", "no", "0"})


class Lossy(Exception):
    """Some value has no equal in the type that it is cast to."""


def arrow_type(type_name: str) -> pa.DataType | None:
    """The kernel type of an Iceberg type name that expressions compute with; None for others, which pass unchanged."""
    digits = decimal_of(type_name)
    return pa.decimal128(*digits) if digits else _ARROW.get(type_name)


def cast_values(values: pa.Array, into: str, zone: tzinfo) -> pa.Array:
    """``values`` as the type ``into``. Times without offset are times in ``zone``. Raises Lossy."""
    kind = arrow_type(into)
    if kind is None or values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    try:
        return _cast(values, kind, zone)
    except (pa.ArrowInvalid, InvalidOperation, ValueError, OverflowError) as error:
        raise Lossy from error


def decimals(numbers: Sequence[Decimal | None], kind: pa.Decimal128Type) -> pa.Array:
    """Numbers rounded half away from zero to the scale of ``kind``. Raises Lossy for one with too many digits."""
    step = Decimal(1).scaleb(-kind.scale)
    try:
        with localcontext(EXACT):
            return pa.array([None if number is None else number.quantize(step) for number in numbers], kind)
    except (InvalidOperation, pa.ArrowInvalid) as error:
        raise Lossy from error


def _cast(values: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    if pa.types.is_string(values.type):
        return _from_text(values, kind, zone)
    if pa.types.is_string(kind):
        return _to_text(values, zone)
    if pa.types.is_temporal(kind):
        return _moments(values, kind, zone)
    if pa.types.is_floating(kind):
        return _to_float(values, kind)
    if pa.types.is_floating(values.type):
        return _from_float(values, kind)
    return cast_decimals(values, kind) if pa.types.is_decimal(kind) else pc.cast(values, kind)


def _each(values: pa.Array, convert: Callable[[Any], object], kind: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else convert(value) for value in values.to_pylist()], kind)


def _to_float(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(values.type):
        return pc.cast(_each(values, str, pa.string()), kind)  # text is rounded once, to the nearest
    converted = pc.cast(values, kind, safe=False)
    if pa.types.is_floating(values.type) and pc.any(pc.and_(pc.is_inf(converted), pc.is_finite(values))).as_py():
        raise Lossy
    return converted


def _from_float(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        return _each(values, lambda value: _exact(Decimal(repr(value)), step), kind)
    numbers = pc.cast(values, pa.float64())
    bits = kind.bit_width - 1
    is_whole = pc.and_(
        pc.equal(pc.floor(numbers), numbers),
        pc.and_(pc.greater_equal(numbers, -(2.0**bits)), pc.less(numbers, 2.0**bits)),
    )
    if not pc.all(is_whole, min_count=0).as_py():
        raise Lossy
    return pc.cast(numbers, kind)


def _exact(number: Decimal, step: Decimal) -> Decimal:
    placed = number.quantize(step, context=EXACT)
    if placed != number:
        raise Lossy
    return placed


def _moments(values: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    if pa.types.is_date(values.type):
        values = pc.cast(values, pa.timestamp("us"))
    if pa.types.is_date(kind):
        return _midnights(local_times(values, zone), kind)
    if values.type.tz is None and kind.tz is not None:
        return _placed(values, kind, zone)
    return local_times(values, zone) if kind.tz is None else values


def _placed(values: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    """Times as clocks in ``zone`` show them; one that they skip counts from before, one that they show twice is the
    first.
    """
    _require_clocks(values, zone)
    try:
        return pc.cast(pc.assume_timezone(values, str(zone), ambiguous="earliest"), kind)
    except pa.ArrowInvalid:
        return _each(values, lambda moment: moment.replace(tzinfo=zone), kind)


def _midnights(values: pa.Array, kind: pa.DataType) -> pa.Array:
    days = pc.cast(values, kind)
    if not pc.all(pc.equal(pc.cast(days, values.type), values), min_count=0).as_py():
        raise Lossy
    return days


def local_times(values: pa.Array, zone: tzinfo) -> pa.Array:
    """Timestamps as clocks in ``zone`` show them; those without offset as they are.

    Raises Lossy for years in which the zone's clocks are not known.
    """
    if values.type.tz is None:
        return values
    _require_clocks(values, zone)
    return pc.local_timestamp(pc.cast(values, pa.timestamp("us", tz=str(zone))))


def _require_clocks(values: pa.Array, zone: tzinfo) -> None:
    """Raise Lossy for a year that Python does not have, unless in UTC: Arrow does not know the clocks of zones then."""
    if str(zone) == "UTC":
        return
    ends = pc.min_max(values.cast(pa.int64()))
    if ends["min"].is_valid and not FIRST_MOMENT <= ends["min"].as_py() <= ends["max"].as_py() <= LAST_MOMENT:
        raise Lossy


def _to_text(values: pa.Array, zone: tzinfo) -> pa.Array:
    kind = values.type
    if pa.types.is_decimal(kind):
        return _each(values, lambda value: format(value, "f"), pa.string())
    if pa.types.is_timestamp(kind):
        return _each(local_times(values, zone), _moment_text, pa.string())
    if pa.types.is_date(kind):
        return _each(values, date.isoformat, pa.string())
    return pc.cast(values, pa.string())


def _moment_text(moment: datetime) -> str:
    text = moment.isoformat(" ")
    return text.rstrip("0") if "." in text else text


def _from_text(values: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    texts = pc.utf8_trim_whitespace(values)
    if pa.types.is_floating(kind):
        return _finite(pc.cast(_each(texts, _float_text, pa.string()), kind), texts)
    if pa.types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        return _each(texts, lambda text: _exact(Decimal(_matching(_NUMBER, text)), step), kind)
    if pa.types.is_integer(kind):
        return _each(texts, lambda text: int(_matching(_WHOLE, text)), kind)
    if pa.types.is_boolean(kind):
        return _each(texts, _truth, kind)
    if pa.types.is_date(kind):
        return _each(texts, lambda text: date.fromisoformat(_matching(_DAY, text)), kind)
    return _each(texts, lambda text: _moment(text, zone if kind.tz else None), kind)


def _finite(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """``numbers``, which ``texts`` are. Raises Lossy for one that is infinite, and was written in digits."""
    digits = pc.match_substring_regex(texts, r"\d")
    if pc.any(pc.and_(digits, pc.is_inf(numbers))).as_py():
        raise Lossy
    return numbers


def _matching(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.fullmatch(text)
    if match is None or (pattern is _NUMBER and match[1] and abs(int(match[1])) > _MOST_EXPONENT):
        raise Lossy
    return text


def _float_text(text: str) -> str:
    return text if _NO_NUMBER.fullmatch(text) else _matching(_NUMBER, text)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise Lossy
    return text.lower() in _TRUE


def _moment(text: str, zone: tzinfo | None) -> datetime:
    match = _MOMENT.fullmatch(text)
    if match is None or (zone is None and match["zone"]):
        raise Lossy
    moment = datetime.fromisoformat(text)
    return moment if zone is None or moment.tzinfo else moment.replace(tzinfo=zone)

"""Values of messages in the types of the table's columns.

Called by ``batches`` for a column at a time. A value either survives whole or does not fit: nothing is rounded, cut or
guessed. What a number means is told by the message's schema; without one, by the column's type and
``source.timePrecision``. Source of the encodings: the documentation of Debezium's connectors, "Data types".
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import cast
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    TimeType,
    UUIDType,
)
from skipstone_core.contract.requests import TimePrecision

from skipstone.sources.feeds.shapes import FeedColumn, Raw, Semantic
from skipstone.sources.feeds.texts import DAY_MICROS, days, instant, moment_micros, time_micros

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_DATES = frozenset({f"{_DEBEZIUM}Date", f"{_CONNECT}Date"})
_MILLIS, _MICROS, _NANOS = TimePrecision.MILLIS, TimePrecision.MICROS, TimePrecision.NANOS
_TIME_UNITS = {f"{_DEBEZIUM}Time": _MILLIS, f"{_CONNECT}Time": _MILLIS, f"{_DEBEZIUM}MicroTime": _MICROS,
               f"{_DEBEZIUM}NanoTime": _NANOS}  # fmt: skip
_MOMENT_UNITS = {f"{_DEBEZIUM}Timestamp": _MILLIS, f"{_CONNECT}Timestamp": _MILLIS,
                 f"{_DEBEZIUM}MicroTimestamp": _MICROS, f"{_DEBEZIUM}NanoTimestamp": _NANOS}  # fmt: skip
#: Text in UTC of what has no zone.
_ISO_MOMENT = f"{_DEBEZIUM}IsoTimestamp"
#: The smallest float of 32 bits that has all digits.
_LEAST_SINGLE = 2.0**-126
#: Days, and microseconds, since 1970 of the first and the last year that Python has.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_MOMENTS = _FIRST_DAY * DAY_MICROS, (_LAST_DAY + 1) * DAY_MICROS - 1
_DIGITS = 40
_INTEGER = re.compile(rf"[+-]?\d{{1,{_DIGITS}}}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_SPECIAL_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "+Infinity": float("inf"), "-Infinity": -float("inf")}
_BOOLEANS = {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_UNFIT = (ValueError, TypeError, ArithmeticError, LookupError, struct.error, pa.ArrowException)


class UnfitValue(Exception):
    """The value at ``position`` does not fit; ``what`` says what would."""

    def __init__(self, position: int, what: str) -> None:
        """Both."""
        super().__init__(what)
        self.position = position
        self.what = what


@dataclass(frozen=True, kw_only=True)
class ValueRules:
    """``zone``: of timestamps without offset (None: UTC). ``unit``: of times in messages without schema.

    ``text``: the format has no types, so that text may stand for any value.
    """

    zone: ZoneInfo | None = None
    unit: TimePrecision | None = None
    text: bool = False


@dataclass(frozen=True)
class _Of:
    """What a value is read as."""

    type: IcebergType
    semantic: Semantic | None
    rules: ValueRules


def column_array(values: Sequence[Raw], column: FeedColumn, semantic: Semantic | None, rules: ValueRules) -> pa.Array:
    """``values`` in the kernel type of ``column``; None is null. Raises UnfitValue for the first that does not fit."""
    of = _Of(column.type, semantic, rules)
    try:
        found = _at_once(values, column, of)
    except _UNFIT:
        found = None
    return found if found is not None else _one_by_one(values, column, of)


def is_carried(kind: IcebergType) -> bool:
    """Whether feeds can carry ``kind``: all but structs, and lists and maps of other than plain values."""
    match kind:
        case ListType():
            return isinstance(kind.element_type, _IN_LISTS)
        case MapType():
            return isinstance(kind.key_type, StringType) and isinstance(kind.value_type, _IN_LISTS)
    return type(kind) in _CONVERT


def require_years(array: pa.Array) -> pa.Array:
    """``array``; raises ValueError for a date or timestamp in a year that Python does not have."""
    if pa.types.is_date32(array.type):
        _within(array.cast(pa.int32()), _FIRST_DAY, _LAST_DAY)
    if pa.types.is_timestamp(array.type):
        _within(array.cast(pa.int64()), *_MOMENTS)
    return array


def _at_once(values: Sequence[Raw], column: FeedColumn, of: _Of) -> pa.Array | None:
    """All values in one step of Arrow's, where all are of the one Python type that needs no look at each."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values), column.arrow)
    match of.type:
        case StringType() if kinds == {str} and not _is_scaled(of.semantic):
            return pa.array(values, column.arrow)
        case BooleanType() if kinds == {bool}:
            return pa.array(values, column.arrow)
        case IntegerType() | LongType() if kinds == {int}:
            return pa.array(values, column.arrow)
        case DateType() if kinds == {int} and _is_day(of.semantic):
            return _within(pa.array(values, pa.int32()), _FIRST_DAY, _LAST_DAY).view(column.arrow)
        case TimestampType() if kinds == {int}:
            return _moments(values, _unit(of, _MOMENT_UNITS)).view(column.arrow)
        case TimestamptzType() if kinds == {int} and of.rules.zone is None:
            return _moments(values, _unit(of, _MOMENT_UNITS)).view(column.arrow)
    return None


def _moments(values: Sequence[Raw], unit: TimePrecision) -> pa.Array:
    numbers = pa.array(values, pa.int64())
    if unit is _MILLIS:
        numbers = pc.multiply_checked(numbers, 1000)
    elif unit is _NANOS:
        micros = pc.divide(numbers, 1000)
        if not pc.all(pc.equal(pc.multiply(micros, 1000), numbers)).as_py():
            raise ValueError(unit)
        numbers = micros
    return _within(numbers, *_MOMENTS)


def _within(numbers: pa.Array, first: int, last: int) -> pa.Array:
    bounds = pc.min_max(numbers)
    if numbers.null_count < len(numbers) and not first <= bounds["min"].as_py() <= bounds["max"].as_py() <= last:
        raise ValueError(last)
    return numbers


def _one_by_one(values: Sequence[Raw], column: FeedColumn, of: _Of) -> pa.Array:
    found: list[object] = []
    for position, value in enumerate(values):
        try:
            found.append(None if value is None else _converted(value, of))
        except _UNFIT as error:
            raise UnfitValue(position, _what(value, of)) from error
    return pa.array(found, column.arrow)


def _converted(value: Raw, of: _Of) -> object:
    return _CONVERT[type(of.type)](value, of)


def _what(value: Raw, of: _Of) -> str:
    """What would fit, for people. It does not show ``value``."""
    base = f"a value of type {of.type}"
    if isinstance(of.type, TimestampType) and of.semantic is None and isinstance(value, str) and _has_offset(value):
        told = f"{base}, but text with an offset from UTC: declare the column as timestamptz"
        untold = (
            ", or, if it is of a timestamp without time zone, let the converter write schemas (schemas.enable=true)"
        )
        return told if of.rules.text else told + untold
    if isinstance(of.type, TimeType | TimestampType | TimestamptzType) and of.semantic is None and not of.rules.unit:
        return (
            f"{base}, or a number of unknown unit: set source.timePrecision to it, or let the converter write schemas "
            "(schemas.enable=true)"
        )
    if isinstance(of.type, DecimalType) and of.semantic is None and not of.rules.text:
        return (
            f"{base} without loss, or bytes of unknown scale: let the converter write schemas (schemas.enable=true), "
            "or set decimal.handling.mode to string"
        )
    return f"{base} without loss"


def _has_offset(text: str) -> bool:
    try:
        return moment_micros(text)[1] is not None
    except _UNFIT:
        return False


def _boolean(value: Raw, of: _Of) -> object:
    if isinstance(value, str) and of.rules.text:
        return _BOOLEANS[value.lower()]
    if isinstance(value, int | Decimal) and value in (0, 1):
        return bool(value)
    raise ValueError(value)


def _integer(value: Raw, of: _Of) -> object:
    number = _whole(value, of)
    bits = 31 if isinstance(of.type, IntegerType) else 63
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(value)
    return number


def _whole(value: Raw, of: _Of) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    number = _exact(value, of)
    if number.adjusted() > _DIGITS or number != number.to_integral_value():  # an int of all digits may take forever
        raise ValueError(value)
    return int(number)


def _floating(value: Raw, of: _Of) -> object:
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


def _exact(value: Raw, of: _Of) -> Decimal:
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
            return _unscaled(_content(value), of.semantic.scale)
        case str() if _NUMBER.fullmatch(value):
            return Decimal(value)
        case Mapping() if set(value) == {"scale", "value"}:  # io.debezium.data.VariableScaleDecimal
            return _unscaled(_content(value["value"]), int(value["scale"]))
    raise ValueError(value)


def _finite(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise ValueError(value)
    return value


def _unscaled(content: bytes, scale: int) -> Decimal:
    """From big-endian two's complement."""
    if not content or len(content) > 64:
        raise ValueError(content)
    return Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-scale, _WIDE)


def _decimal(value: Raw, of: _Of) -> object:
    kind = cast(DecimalType, of.type)
    number = _exact(value, of)
    with localcontext(_WIDE):
        fitted = number.quantize(Decimal(1).scaleb(-kind.scale))
    if fitted != number or len(str(abs(int(fitted.scaleb(kind.scale, _WIDE))))) > kind.precision:
        raise ValueError(value)
    return fitted


def _string(value: Raw, of: _Of) -> object:
    if isinstance(value, Mapping | list):  # Maxwell writes columns of JSON so
        return _json_text(value)
    if not isinstance(value, str) or _is_scaled(of.semantic):
        raise TypeError(value)
    value.encode()  # refuses half a character
    return value


def _json_text(value: Raw) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(k)}:{_json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def _content(value: Raw) -> bytes:
    """Bytes, as they are or in base64."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(value)
    return base64.b64decode(value, validate=True)


def _binary(value: Raw, of: _Of) -> object:
    if isinstance(value, str) and of.rules.text:
        raise ValueError(value)  # whether it is in base64 or hexadecimal is not told
    content = _content(value)
    if isinstance(of.type, FixedType) and len(content) != len(of.type):
        raise ValueError(value)
    return content


def _uuid(value: Raw, _of: _Of) -> object:
    if isinstance(value, bytes) and len(value) == 16:
        return value
    if isinstance(value, str) and _UUID.fullmatch(value):
        return uuid.UUID(value).bytes
    raise ValueError(value)


def _is_scaled(semantic: Semantic | None) -> bool:
    """Whether text is that of a decimal's bytes."""
    return semantic is not None and semantic.scale is not None


def _is_day(semantic: Semantic | None) -> bool:
    return semantic is None or semantic.name in _DATES


def _date(value: Raw, of: _Of) -> object:
    if isinstance(value, str):
        return days(value)
    if not isinstance(value, int) or isinstance(value, bool) or not _is_day(of.semantic):
        raise TypeError(value)
    return _bounded(value, _FIRST_DAY, _LAST_DAY)


def _time(value: Raw, of: _Of) -> object:
    if isinstance(value, str):
        return time_micros(value)
    return _bounded(_micros(value, _unit(of, _TIME_UNITS)), 0, DAY_MICROS - 1)


def _timestamp(value: Raw, of: _Of) -> object:
    if isinstance(value, str):
        micros, offset = moment_micros(value)
        if offset is not None and not (offset == 0 and of.semantic is not None and of.semantic.name == _ISO_MOMENT):
            raise ValueError(value)
        return micros
    return _moment(value, of)


def _timestamptz(value: Raw, of: _Of) -> object:
    if isinstance(value, str):
        micros, offset = moment_micros(value)
        found = instant(micros, of.rules.zone) if offset is None else micros - offset * 1_000_000
    else:
        found = instant(_moment(value, of), of.rules.zone)
    return _bounded(found, *_MOMENTS)


def _moment(value: Raw, of: _Of) -> int:
    if of.semantic is not None and of.semantic.name in _DATES and isinstance(value, int):
        micros = value * DAY_MICROS
    else:
        micros = _micros(value, _unit(of, _MOMENT_UNITS))
    return _bounded(micros, *_MOMENTS)


def _unit(of: _Of, units: Mapping[str, TimePrecision]) -> TimePrecision:
    unit = of.rules.unit if of.semantic is None else units.get(of.semantic.name)
    if unit is None:
        raise ValueError("a number without unit")
    return unit


def _micros(value: Raw, unit: TimePrecision) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    if unit is _NANOS:
        if value % 1000:
            raise ValueError(value)
        return value // 1000
    return value * 1000 if unit is _MILLIS else value


def _bounded(value: int, first: int, last: int) -> int:
    if not first <= value <= last:
        raise ValueError(value)
    return value


def _list(value: Raw, of: _Of) -> object:
    if not isinstance(value, list):
        raise TypeError(value)
    kind = cast(ListType, of.type)
    item = _Of(kind.element_type, _item(of), of.rules)
    return [_inner(one, item, required=kind.element_required) for one in value]


def _map(value: Raw, of: _Of) -> object:
    kind = cast(MapType, of.type)
    if isinstance(value, str):  # hstore.handling.mode=json
        value = json.loads(value, parse_float=Decimal)
    if not isinstance(value, Mapping):
        raise TypeError(value)
    item = _Of(kind.value_type, _item(of), of.rules)
    return [(_string(key, of), _inner(one, item, required=kind.value_required)) for key, one in value.items()]


def _inner(value: Raw, of: _Of, *, required: bool) -> object:
    if value is None and not required:
        return None
    return _converted(value, of)


def _item(of: _Of) -> Semantic | None:
    return None if of.semantic is None else (of.semantic.item or Semantic())


#: Holds every number that a decimal of 38 digits is compared with.
_WIDE = Context(prec=200)
_CONVERT: Mapping[type[IcebergType], Callable[[Raw, _Of], object]] = {
    BooleanType: _boolean,
    IntegerType: _integer,
    LongType: _integer,
    FloatType: _floating,
    DoubleType: _floating,
    DecimalType: _decimal,
    StringType: _string,
    BinaryType: _binary,
    FixedType: _binary,
    UUIDType: _uuid,
    DateType: _date,
    TimeType: _time,
    TimestampType: _timestamp,
    TimestamptzType: _timestamptz,
    ListType: _list,
    MapType: _map,
}
_IN_LISTS = (BooleanType, IntegerType, LongType, FloatType, DoubleType, DecimalType, StringType, BinaryType, DateType,
             TimestampType, TimestamptzType)  # fmt: skip

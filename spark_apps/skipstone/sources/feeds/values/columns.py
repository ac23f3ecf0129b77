"""Values of messages in the types of the table's columns.

Called by ``batches`` for a column at a time. A value either survives whole or does not fit: nothing is rounded, cut or
guessed. What a number means is told by the message's schema; without one, by the column's type and
``source.timePrecision``. Source of the encodings: the documentation of Debezium's connectors, "Data types".
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, cast

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.sources.feeds.shapes import FeedColumn, Raw, Semantic
from skipstone.sources.feeds.values.encodings import NotCertain, ReadAs, ValueRules, is_bytes, is_plain_text
from skipstone.sources.feeds.values.infinities import infinite_sign, is_non_finite, stored_as
from skipstone.sources.feeds.values.numbers import boolean, decimal, floating, integer, is_decimal_text
from skipstone.sources.feeds.values.opaque import binary, refuse_bits
from skipstone.sources.feeds.values.postgres import DATES_REMEDY, is_postgres, plain_value
from skipstone.sources.feeds.values.strings import refuse_java_text, string
from skipstone.sources.feeds.values.times import (
    all_days,
    all_moments,
    day,
    has_offset,
    local_moment,
    moment_with_zone,
    refuse_cut_times,
    refuse_moved_day,
    time_of_day,
)

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
#: MySQL's SET: text of its members, which have no comma.
_SET = "io.debezium.data.EnumSet"
#: A date or a time of day as text.
_SHOWN_TIME = re.compile(r"[+-]?\d+-\d\d-\d\d|24:00", re.ASCII)
#: Spans of time as numbers.
_INTERVAL = "io.debezium.time.MicroDuration"
#: How MySQL writes that a date or a timestamp is not known.
_ZERO_DATE = "0000-00-00"
_TIMES = (TimeType, TimestampType, TimestamptzType)
_UNFIT = (ValueError, TypeError, ArithmeticError, LookupError, struct.error, pa.ArrowException)


class UnfitValue(Exception):
    """The value at ``position`` does not fit; ``what`` says what would."""

    def __init__(self, position: int, what: str) -> None:
        """Both."""
        super().__init__(what)
        self.position = position
        self.what = what


class _UnfitItem(ValueError):
    """An item of a list or a value of a map that does not fit; the text says what would, or which setting stores it."""


def column_array(values: Sequence[Raw], column: FeedColumn, semantic: Semantic | None, rules: ValueRules) -> pa.Array:
    """``values`` in the kernel type of ``column``; None is null. Raises UnfitValue for the first that does not fit."""
    of = ReadAs(column.type, semantic, rules)
    try:
        array = _at_once(values, column, of)
    except _UNFIT:
        array = None
    return array if array is not None else _one_by_one(values, column, of)


def is_carried(kind: IcebergType) -> bool:
    """Return whether feeds can carry ``kind``: all but structs, and lists and maps of other than plain values."""
    match kind:
        case ListType():
            return _is_item(kind.element_type)
        case MapType():
            return isinstance(kind.key_type, StringType) and _is_item(kind.value_type)
    return _CARRIED.find(kind) is not None


def _is_item(kind: IcebergType) -> bool:
    carried = _CARRIED.find(kind)
    return carried is not None and carried.is_item


def _at_once(values: Sequence[Raw], column: FeedColumn, of: ReadAs) -> pa.Array | None:
    """All values in one step of Arrow's, where all are of the one Python type that needs no look at each."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values), column.arrow)
    match of.type:
        case StringType() if kinds == {str} and is_plain_text(of.semantic):
            return pa.array(values, column.arrow)
        case BooleanType() if kinds == {bool}:
            return pa.array(values, column.arrow)
        case IntegerType() | LongType() if kinds == {int}:
            return pa.array(values, column.arrow)
        case DateType() if kinds == {int} and (days := all_days(values, of)) is not None:
            return days.view(column.arrow)
        case TimestampType() if kinds == {int}:
            return all_moments(values, of).view(column.arrow)
        case TimestamptzType() if kinds == {int} and of.rules.zone is None:
            return all_moments(values, of).view(column.arrow)
    return None


def _one_by_one(values: Sequence[Raw], column: FeedColumn, of: ReadAs) -> pa.Array:
    converted: list[object] = []
    for position, value in enumerate(values):
        try:
            converted.append(None if value is None else _converted(value, of))
        except NotCertain as error:
            raise UnfitValue(position, f"certain to be the database's: {error}") from error
        except _UnfitItem as error:
            raise UnfitValue(position, f"a value of type {of.type}, but one with {error}") from error
        except _UNFIT as error:
            what = _what_of_postgres(value, of) if is_postgres(of.semantic) else _what(value, of)
            raise UnfitValue(position, what) from error
    return pa.array(converted, column.arrow)


def _converted(value: Raw, of: ReadAs) -> object:
    if of.semantic is not None and is_postgres(of.semantic):
        value = plain_value(value, of.semantic, of)
        if value is None:
            return None
        return _stored(value, of)
    refuse_bits(of.semantic)
    is_base64 = isinstance(value, str) and is_bytes(of.semantic) and not isinstance(of.type, BinaryType | FixedType)
    is_raw = isinstance(value, bytes) and isinstance(of.type, StringType) and is_plain_text(of.semantic)
    if is_base64 or is_raw:
        raise NotCertain(
            "the schema says bytes: declare the column as binary, or leave it out (column.exclude.list); "
            "binary.handling.mode=hex writes them as text on purpose"
        )
    return _stored(value, of)


def _stored(value: Raw, of: ReadAs) -> object:
    stored = stored_as(value, of)
    converted = _plainly(value, of) if stored is None else stored.value
    if of.rules.style.moves_days:
        refuse_moved_day(converted, of.type, of.rules.style.moves_days)
    return converted


def _plainly(value: Raw, of: ReadAs) -> object:
    match of.type:
        case ListType():
            return _list(value, of)
        case MapType():
            return _map(value, of)
    carried = _CARRIED.find(of.type)
    if carried is None:
        raise TypeError(value)
    return carried.convert(value, of)


def _what(value: Raw, of: ReadAs) -> str:
    """What would fit, for people. It does not show ``value``."""
    base, style = f"a value of type {of.type}", of.rules.style
    if not style.is_text and (special := _what_special(value, of)):
        return f"{base}, but {special}"
    if isinstance(value, str) and value.startswith(_ZERO_DATE) and style.is_text:
        return f"{base}, but the zero date of MySQL: {style.zero_date_remedy}"
    if isinstance(of.type, BinaryType | FixedType) and isinstance(value, str) and style.octets is None:
        return f"{base}, or is written in a way that is not told: {style.bytes_remedy}"
    if isinstance(of.type, TimestampType) and of.semantic is None and isinstance(value, str) and has_offset(value):
        text = f"{base}, but text with an offset from UTC: declare the column as timestamptz"
        not_told = (
            ", or, if it is of a timestamp without time zone, let the converter write schemas (schemas.enable=true)"
        )
        return text if of.rules.style.is_text else text + not_told
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and isinstance(of.type, _TIMES) and of.semantic is None and not of.rules.unit:
        return (
            f"{base}, but a number of unknown unit: set source.timePrecision or source.columnTimePrecisions to it, or "
            "let the converter write schemas (schemas.enable=true)"
        )
    if is_number and isinstance(of.type, StringType) and of.semantic is None and not of.rules.style.is_text:
        return (
            f"{base}, but a number: name its unit in source.columnTimePrecisions if it is a time of day, else merge "
            "into a table whose column has a type of numbers"
        )
    may_be_bytes = isinstance(value, str) and not is_decimal_text(value)
    if may_be_bytes and isinstance(of.type, DecimalType) and of.semantic is None and not of.rules.style.is_text:
        return (
            f"{base}, or bytes of unknown scale: let the converter write schemas (schemas.enable=true), or set "
            "decimal.handling.mode to string"
        )
    return f"{base} without loss{_remedy(value, of)}"


def _what_of_postgres(value: Raw, of: ReadAs) -> str:
    """The same where the value's type in PostgreSQL is told."""
    base = f"a value of type {of.type}"
    if special := _what_special(value, of):
        return f"{base}, but {special}"
    if isinstance(of.type, TimestampType) and isinstance(value, str) and has_offset(value):
        return f"{base}, but text with an offset from UTC: declare the column as timestamptz"
    if isinstance(of.type, DateType | TimestampType | TimestamptzType):
        return f"{base}: {DATES_REMEDY}"
    remedy = _remedy(value, of) or (
        ": declare the column as boolean"
        if isinstance(value, bool)
        else ": declare the column as string, which keeps the text that PostgreSQL shows"
    )
    return f"{base} without loss{remedy}"


def _remedy(value: Raw, of: ReadAs) -> str:
    """How a value fits that a type lacks or that has too many digits, or nothing."""
    is_number = isinstance(value, int | float | Decimal) or (isinstance(value, str) and is_decimal_text(value))
    if isinstance(of.type, DecimalType) and is_number:
        return ": declare the column with more digits, or round the values in the source"
    carried = _CARRIED.find(of.type)
    if is_number and carried is not None and carried.wider:
        return f": declare the column as {carried.wider}"
    if of.rules.style.is_text:
        return ""
    return _remedy_of_times(value, of) or _remedy_of_text(value, of)


def _remedy_of_times(value: Raw, of: ReadAs) -> str:
    is_shown = isinstance(value, int) or (isinstance(value, str) and bool(_SHOWN_TIME.match(value)))
    if is_shown and isinstance(of.type, DateType | TimestampType | TimestamptzType):
        return ", which has the years 1 to 9999: change the row, or leave the column out (column.exclude.list)"
    if is_shown and isinstance(of.type, TimeType):
        return ", which ends before 24:00: declare the column as string"
    return ""


def _remedy_of_text(value: Raw, of: ReadAs) -> str:
    if isinstance(of.type, StringType) and isinstance(value, float | Decimal):
        return ": set decimal.handling.mode to string, or declare the column as double"
    if isinstance(of.type, StringType) and of.semantic is not None and of.semantic.name == _INTERVAL:
        return ": set interval.handling.mode to string, or declare the column as long for microseconds"
    return ""


def _what_special(value: Raw, of: ReadAs) -> str:
    """What ``value`` is and which setting stores it, if no type of Iceberg has it."""
    if is_non_finite(value, of):
        text, setting = "NaN or an infinity, which decimals do not have", "source.nonFinite to Null"
    elif infinite_sign(value, of):
        text, setting = "infinity, which Iceberg does not have", "source.infinity to Null or Max"
    else:
        return ""
    return f"{text}, and no key may stand for it: change the row" if of.rules.is_key else f"{text}: set {setting}"


def _uuid(value: Raw, _of: ReadAs) -> object:
    if isinstance(value, bytes) and len(value) == 16:
        return value
    if isinstance(value, str) and _UUID.fullmatch(value):
        return uuid.UUID(value).bytes
    raise ValueError(value)


def _list(value: Raw, of: ReadAs) -> object:
    kind = cast(ListType, of.type)
    is_set = of.semantic is not None and of.semantic.name == _SET and isinstance(kind.element_type, StringType)
    if isinstance(value, str) and is_set:
        return value.split(",") if value else []
    if not isinstance(value, list):
        raise TypeError(value)
    refuse_java_text(value)
    refuse_cut_times(of)
    item = ReadAs(kind.element_type, _item(of), of.rules)
    return [_inner(element, item, required=kind.element_required) for element in value]


def _map(value: Raw, of: ReadAs) -> object:
    kind = cast(MapType, of.type)
    if isinstance(value, str):  # hstore.handling.mode=json
        value = json.loads(value, parse_float=Decimal)
    if not isinstance(value, Mapping):
        raise TypeError(value)
    item = ReadAs(kind.value_type, _item(of), of.rules)
    text = ReadAs(kind.key_type, None, of.rules)
    return [(string(key, text), _inner(entry, item, required=kind.value_required)) for key, entry in value.items()]


def _inner(value: Raw, of: ReadAs, *, required: bool) -> object:
    try:
        converted = _converted(value, of) if value is not None else None
    except NotCertain:
        raise
    except _UNFIT as error:
        special = _what_special(value, of)
        if is_postgres(of.semantic) and not special:
            raise
        raise _UnfitItem(special or _what_item(value, of)) from error
    if converted is None and required:
        raise ValueError(value)
    return converted


def _what_item(value: Raw, of: ReadAs) -> str:
    if isinstance(of.type, StringType) and isinstance(value, int) and of.semantic is None:
        return "a number: declare the column as a list of long, or keep the items as text in the database"
    return f"an item that is not {_what(value, of)}"


def _item(of: ReadAs) -> Semantic | None:
    return None if of.semantic is None else (of.semantic.item or Semantic())


class _Carried(NamedTuple):
    """How feeds carry values of a type.

    ``is_item``: in lists and maps too. ``wider``: the type that holds a number which this one does not hold.
    """

    convert: Callable[[Raw, ReadAs], object]
    is_item: bool = True
    wider: str = ""


#: None: of types that feeds do not carry.
_CARRIED: ByPrimitive[_Carried | None] = ByPrimitive(
    boolean=_Carried(boolean, wider="int"),
    integer=_Carried(integer, wider="long if it is whole, else as decimal or double"),
    long=_Carried(integer, wider="decimal(20,0) if it is whole, else as decimal or double"),
    float=_Carried(floating, wider="double"),
    double=_Carried(floating),
    decimal=_Carried(decimal),
    date=_Carried(day),
    time=_Carried(time_of_day, is_item=False),
    timestamp=_Carried(local_moment),
    timestamptz=_Carried(moment_with_zone),
    timestamp_ns=None,
    timestamptz_ns=None,
    string=_Carried(string),
    uuid=_Carried(_uuid),
    fixed=_Carried(binary, is_item=False),
    binary=_Carried(binary),
    opaque=None,
)

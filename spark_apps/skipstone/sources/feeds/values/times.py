"""Dates, times and timestamps of messages, as text or as numbers since 1970.

Called by ``columns`` and ``dms``. What a number means is told by the message's schema; without one, by
``source.timePrecision``. One that does not fit raises ValueError, TypeError, OverflowError or an error of Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DateType, IcebergType, TimestampType
from skipstone_core.contract.feeds import TimePrecision

from skipstone.sources.feeds.shapes import Raw, Semantic
from skipstone.sources.feeds.values.encodings import NotCertain, ReadAs
from skipstone.sources.feeds.values.texts import DAY_MICROS, days, instant, moment_micros, time_micros

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_DATES = frozenset({f"{_DEBEZIUM}Date", f"{_CONNECT}Date"})
_MILLIS, _MICROS, _NANOS = TimePrecision.MILLIS, TimePrecision.MICROS, TimePrecision.NANOS
_TIME_UNITS = {f"{_DEBEZIUM}Time": _MILLIS, f"{_CONNECT}Time": _MILLIS, f"{_DEBEZIUM}MicroTime": _MICROS,
               f"{_DEBEZIUM}NanoTime": _NANOS}  # fmt: skip
_MOMENT_UNITS = {f"{_DEBEZIUM}Timestamp": _MILLIS, f"{_CONNECT}Timestamp": _MILLIS,
                 f"{_DEBEZIUM}MicroTimestamp": _MICROS, f"{_DEBEZIUM}NanoTimestamp": _NANOS}  # fmt: skip
#: What time.precision.mode=connect cuts to milliseconds.
_CUT = frozenset({f"{_CONNECT}Time", f"{_CONNECT}Timestamp"})
#: What Debezium writes items of arrays of times as, which it cuts to milliseconds whatever the mode.
_CUT_ITEMS = frozenset({f"{_DEBEZIUM}MicroTime", f"{_DEBEZIUM}NanoTime", f"{_DEBEZIUM}IsoTime"})
#: Text in UTC of what has no zone.
_ISO_MOMENT = f"{_DEBEZIUM}IsoTimestamp"
#: Days, and microseconds, since 1970 of the first and the last year that Python has.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
#: 1582-10-15 to 1582-10-24.
_MOVED_DAYS = range(-141_427, -141_417)
MOMENTS = FIRST_DAY * DAY_MICROS, (LAST_DAY + 1) * DAY_MICROS - 1


def _is_day(semantic: Semantic | None) -> bool:
    return semantic is None or semantic.name in _DATES


def day(value: Raw, of: ReadAs) -> object:
    """Days since 1970."""
    if isinstance(value, str):
        return days(value)
    if not isinstance(value, int) or isinstance(value, bool) or not _is_day(of.semantic):
        raise TypeError(value)
    return _bounded(value, FIRST_DAY, LAST_DAY)


def time_of_day(value: Raw, of: ReadAs) -> object:
    """Microseconds of the day."""
    if isinstance(value, str):
        return time_micros(value)
    return _bounded(_micros(value, _unit(of, _TIME_UNITS)), 0, DAY_MICROS - 1)


def is_time_of_day(of: ReadAs) -> bool:
    """Return whether the schema, or without one the spec, says that numbers in a column of text are times of day."""
    return of.rules.is_column_unit if of.semantic is None else of.semantic.name in _TIME_UNITS


def time_text(value: int, of: ReadAs) -> str:
    """A number that is a time of day as text such as 10:00:00.500000; MySQL's may be negative, or have more hours."""
    unit = _unit(of, _TIME_UNITS)
    nanos = abs(value) * (1 if unit is _NANOS else 1000 if unit is _MICROS else 1_000_000)
    seconds, fraction = divmod(nanos, 1_000_000_000)
    digits = f"{fraction:09}".removesuffix("000")
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{digits.ljust(6, '0')}"
    return f"-{shown}" if value < 0 else shown


def refuse_cut_times(of: ReadAs) -> None:
    """Raise NotCertain for a list of times of day, whose items Debezium cuts to milliseconds."""
    if of.semantic is not None and of.semantic.item is not None and of.semantic.item.name in _CUT_ITEMS:
        raise NotCertain(
            "it is an array of times of day, which Debezium cuts to milliseconds: leave the column out "
            "(column.exclude.list), or keep it as text[] in the database"
        )


def local_moment(value: Raw, of: ReadAs) -> object:
    """Microseconds since 1970 as a clock without zone shows them."""
    if isinstance(value, str):
        micros, offset = moment_micros(value)
        if offset is not None and not (offset == 0 and of.semantic is not None and of.semantic.name == _ISO_MOMENT):
            raise ValueError(value)
        return micros
    return _moment(value, of)


def moment_with_zone(value: Raw, of: ReadAs) -> object:
    """Microseconds since 1970 in UTC."""
    if isinstance(value, str):
        micros, offset = moment_micros(value)
        moment = instant(micros, of.rules.zone) if offset is None else micros - offset * 1_000_000
    else:
        moment = instant(_moment(value, of), of.rules.zone)
    return _bounded(moment, *MOMENTS)


def _moment(value: Raw, of: ReadAs) -> int:
    if of.semantic is not None and of.semantic.name in _DATES and isinstance(value, int):
        micros = value * DAY_MICROS
    else:
        micros = _micros(value, _unit(of, _MOMENT_UNITS))
    return _bounded(micros, *MOMENTS)


def moment_unit(of: ReadAs) -> TimePrecision | None:
    """The unit of numbers that are timestamps; None when nothing tells it."""
    return of.rules.unit if of.semantic is None else _MOMENT_UNITS.get(of.semantic.name)


def _unit(of: ReadAs, units: Mapping[str, TimePrecision]) -> TimePrecision:
    if of.semantic is not None and of.semantic.name in _CUT and of.rules.unit is not _MILLIS:
        raise NotCertain(
            "it is of Kafka Connect's own type, which cuts times to milliseconds (time.precision.mode=connect): set "
            "time.precision.mode to adaptive, or source.timePrecision to Millis if the database has no more digits"
        )
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


def all_days(values: Sequence[Raw], of: ReadAs) -> pa.Array | None:
    """Whole numbers as dates, in one step; None when numbers are not dates here."""
    return _within(pa.array(values, pa.int32()), FIRST_DAY, LAST_DAY) if _is_day(of.semantic) else None


def all_moments(values: Sequence[Raw], of: ReadAs) -> pa.Array:
    """Whole numbers as microseconds since 1970, in one step."""
    unit = _unit(of, _MOMENT_UNITS)
    numbers = pa.array(values, pa.int64())
    if unit is _MILLIS:
        numbers = pc.multiply_checked(numbers, 1000)
    elif unit is _NANOS:
        micros = pc.divide(numbers, 1000)
        if not pc.all(pc.equal(pc.multiply(micros, 1000), numbers)).as_py():
            raise ValueError(unit)
        numbers = micros
    return _within(numbers, *MOMENTS)


def _within(numbers: pa.Array, first: int, last: int) -> pa.Array:
    bounds = pc.min_max(numbers)
    if numbers.null_count < len(numbers) and not first <= bounds["min"].as_py() <= bounds["max"].as_py() <= last:
        raise ValueError(last)
    return numbers


def require_years(array: pa.Array) -> pa.Array:
    """``array``; raises ValueError for a date or timestamp in a year that Python does not have."""
    if pa.types.is_date32(array.type):
        _within(array.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    if pa.types.is_timestamp(array.type):
        _within(array.cast(pa.int64()), *MOMENTS)
    return array


def refuse_moved_day(value: object, kind: IcebergType, tool: str) -> None:
    """Raise NotCertain for a day that may be one of 1582-10-05 to 14, which ``tool`` shows ten days later, as Java's
    calendar does.
    """
    size = 1 if isinstance(kind, DateType) else DAY_MICROS
    if isinstance(kind, DateType | TimestampType) and isinstance(value, int) and value // size in _MOVED_DAYS:
        raise NotCertain(
            f"it is a day of 1582-10-15 to 24, and {tool} writes 1582-10-05 to 14 so too: keep such days as text in "
            "the database"
        )


def has_offset(text: str) -> bool:
    """Return whether ``text`` is a timestamp that says how far it is from UTC."""
    try:
        return moment_micros(text)[1] is not None
    except (ValueError, OverflowError):
        return False

"""Values that PostgreSQL has and no type of Iceberg: NaN and infinities of decimals, infinite dates and timestamps.

Called by ``columns`` before a value is converted. Which of them are stored, and as what, the spec says
(``source.nonFinite``, ``source.infinity``). Source: messages of Debezium 3.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from pyiceberg.types import DateType, DecimalType, TimestampType, TimestamptzType
from skipstone_core.contract.feeds import Infinity, NonFinite, TimePrecision

from skipstone.sources.feeds.shapes import Raw
from skipstone.sources.feeds.values.encodings import ReadAs
from skipstone.sources.feeds.values.times import FIRST_DAY, LAST_DAY, MOMENTS, moment_unit

_NON_FINITE = frozenset({"NaN", "Infinity", "+Infinity", "-Infinity", "NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY"})
#: Text that Debezium writes for timestamps with time zone, and with time.precision.mode=isostring for others: the years
#: of its infinities are none that PostgreSQL has. Those of dates are from its snapshots, then from its stream.
_WORDS = {
    **dict.fromkeys(("infinity", "+294247-01-10T04:00:25.2Z", "+292278994-08-16Z", "-5877611-06-21Z"), 1),
    **dict.fromkeys(("-infinity", "-290308-12-21T19:59:27.6Z", "+292269055-12-02Z", "-5877611-06-22Z"), -1),
}
#: Days by which it tells infinite dates, likewise.
_DAYS = {-622191234: 1, -2147472692: 1, -625821272: -1, -2147472691: -1}
#: Numbers by which it tells infinite timestamps, by unit: as nanoseconds the last ones of 64 bits.
_MOMENTS = {
    TimePrecision.MICROS: {9223372036825200000: 1, -9223372036832400000: -1},
    TimePrecision.MILLIS: {9223372036825200: 1, -9223372036832400: -1},
    TimePrecision.NANOS: {(1 << 63) - 1: 1, -(1 << 63): -1},
}


@dataclass(frozen=True)
class StoredAs:
    """What is stored in the place of a value."""

    value: int | None


def stored_as(value: Raw, of: ReadAs) -> StoredAs | None:
    """What the spec lets stand for ``value``; None for a finite value, and where it names nothing."""
    rules = of.rules
    if rules.non_finite is NonFinite.NULL and is_non_finite(value, of):
        return StoredAs(None)
    if rules.infinity not in (Infinity.NULL, Infinity.MAX):
        return None
    sign = infinite_sign(value, of)
    if not sign:
        return None
    if rules.infinity is Infinity.NULL:
        return StoredAs(None)
    first, last = (FIRST_DAY, LAST_DAY) if isinstance(of.type, DateType) else MOMENTS
    return StoredAs(last if sign > 0 else first)


def is_non_finite(value: Raw, of: ReadAs) -> bool:
    """Return whether ``value`` is NaN or an infinity where a decimal is read."""
    if not isinstance(of.type, DecimalType):
        return False
    if isinstance(value, str):
        return value in _NON_FINITE
    return isinstance(value, float | Decimal) and not Decimal(value).is_finite()


def infinite_sign(value: Raw, of: ReadAs) -> int:
    """Return 1 for the infinity of a date or timestamp, -1 for the negative one, else 0."""
    if not isinstance(of.type, DateType | TimestampType | TimestamptzType):
        return 0
    if isinstance(value, str):
        return _WORDS.get(value, 0)
    if not isinstance(value, int):
        return 0
    if isinstance(of.type, DateType):
        return _DAYS.get(value, 0)
    unit = moment_unit(of)
    return _MOMENTS[unit].get(value, 0) if unit in _MOMENTS else 0

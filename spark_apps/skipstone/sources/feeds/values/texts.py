"""Dates, times and timestamps as text: those of ISO 8601 and of SQL.

Called by ``times``, and by ``dms`` for the times of files. Nothing is rounded or cut: digits below a microsecond must
be zeros.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

DAY_MICROS = 86_400_000_000
#: Seconds; that of ISO 8601 in Java, which writes most feeds.
_MOST_OFFSET = 18 * 60 * 60
_EPOCH = date(1970, 1, 1)
_DAY = r"(\d{4})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,12}))?)?"
_OFFSET = r"(Z|[+-]\d\d(?::?\d\d)?(?::?\d\d)?)?"
_MOMENT = re.compile(rf"{_DAY}(?:[T ]{_CLOCK})? ?{_OFFSET}", re.ASCII)
_TIME = re.compile(rf"{_CLOCK}(Z?)", re.ASCII)
_DATE = re.compile(rf"{_DAY}Z?", re.ASCII)
_OFFSET_PARTS = re.compile(r"([+-])(\d\d):?(\d\d)?:?(\d\d)?", re.ASCII)


def days(text: str) -> int:
    """Days since 1970 of a date such as 2013-01-31. Raises ValueError."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return _days(match[1], match[2], match[3])


def time_micros(text: str) -> int:
    """Microseconds of the day of a time such as 10:00:00.5, in UTC when it says so. Raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return _clock(match[1], match[2], match[3], match[4])


def moment_micros(text: str) -> tuple[int, int | None]:
    """Microseconds since 1970 as the clock shows, and the seconds that it is ahead of UTC (None: not told).

    Raises ValueError.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    clock = _clock(match[4], match[5], match[6], match[7]) if match[4] else 0
    return _days(match[1], match[2], match[3]) * DAY_MICROS + clock, _seconds(match[8])


def instant(micros: int, zone: ZoneInfo | None) -> int:
    """Microseconds since 1970 at which clocks of ``zone`` (None: UTC) show ``micros``; the first of two such times.

    Raises ValueError or OverflowError for a year that Python does not have.
    """
    if zone is None:
        return micros
    wall = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    offset = wall.replace(tzinfo=zone).utcoffset() or timedelta()
    return micros - (offset // timedelta(microseconds=1))


def _days(year: str, month: str, day: str) -> int:
    return (date(int(year), int(month), int(day)) - _EPOCH).days


def _clock(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise ValueError(hour)
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise ValueError(fraction)
    return ((int(hour) * 60 + int(minute)) * 60 + int(second or 0)) * 1_000_000 + int(digits[:6])


def _seconds(offset: str | None) -> int | None:
    if offset is None:
        return None
    match = _OFFSET_PARTS.fullmatch(offset)
    if match is None:
        return 0
    hours, minutes, seconds = int(match[2]), int(match[3] or 0), int(match[4] or 0)
    size = (hours * 60 + minutes) * 60 + seconds
    if max(minutes, seconds) > 59 or size > _MOST_OFFSET:
        raise ValueError(offset)
    return -size if match[1] == "-" else size

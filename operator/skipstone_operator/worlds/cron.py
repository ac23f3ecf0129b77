"""The times of a cron expression in a time zone.

Used by the decider of schedules. CronSim knows the calendar; what it makes of summer time is Debian cron's: a time of
day that the clocks skip is taken right after, one that they repeat is taken once, and steps such as ``*/20`` go on by
the real minutes. Reads no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
#: Longer than any change of the clocks: what comes out must not depend on where the search begins.
_RUN_UP = timedelta(hours=3)
#: How far back the latest time is looked for, step by step: minutes are dense, 29 February is not.
_SPANS = tuple(timedelta(days=days) for days in (0.1, 2, 62, 800, 8 * 366 + 2))


@dataclass(frozen=True)
class Cron:
    """An expression that is known to have times. Times come out in UTC, at whole minutes, in order, each once."""

    expression: str
    zone: ZoneInfo

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The times with ``after`` < time <= ``until``."""
        return takewhile(lambda moment: moment <= until, self._from(after))

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after ``moment``, or None when there is none in the next 50 years."""
        return next(self._from(moment), None)

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """The last time with ``after`` < time <= ``until``."""
        for span in _SPANS:
            start = max(after, until - span)
            times = deque(self.between(start, until), maxlen=1)
            if times or start == after:
                break
        return times[0] if times else None

    def _from(self, after: datetime) -> Iterator[datetime]:
        start = (after - _RUN_UP).astimezone(self.zone)
        last = after
        for moment in CronSim(self.expression, start):
            utc = moment.astimezone(UTC)
            if utc > last:
                last = utc
                yield utc


def read_cron(schedule: str, time_zone: str) -> Cron:
    """The times of ``schedule``. Raises BadSpec naming ``spec.schedule`` or ``spec.timeZone``."""
    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError) as error:
        message = f"{time_zone!r} is not a time zone of the IANA database: write one such as Europe/Berlin"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.timeZone") from error
    cron = Cron(_MACROS.get(schedule, schedule), zone)
    try:
        first = cron.next_after(datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        message = f"{schedule!r} is no cron expression ({error}): write five fields such as '*/15 * * * *'"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.schedule") from error
    if first is None:
        message = f"{schedule!r} names no day that ever comes: write another"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.schedule")
    return cron

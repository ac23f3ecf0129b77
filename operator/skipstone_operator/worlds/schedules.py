"""A MergeSchedule with the times of its expression: what is settled, due, missed, and when to look again.

Used by the decider of schedules. Pure: the time of the pass is in the world.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from propcache.api import cached_property
from skipstone_core.ids import scheduled_minute

from skipstone_operator.conditions import COMPLETE, FAILED, is_true
from skipstone_operator.worlds.cron import Cron
from skipstone_operator.worlds.subjects import MergeJobSubject
from skipstone_operator.worlds.times import CLOCKS, past_time
from skipstone_operator.worlds.worlds import ScheduleWorld

#: More missed times than this are not counted.
MAX_MISSED = 100
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Missed:
    """Times that are given up: how many (more than 100 are not counted), and the latest of them."""

    count: int
    latest: datetime


@dataclass(frozen=True)
class Timetable:
    """What a pass over a schedule judges."""

    world: ScheduleWorld
    cron: Cron

    @property
    def now(self) -> datetime:
        """The time of this pass."""
        return self.world.setting.now

    @cached_property
    def recorded(self) -> datetime:
        """Up to here the status knows that every time has its MergeJob or was given up."""
        status, meta = self.world.schedule.status, self.world.schedule.meta
        texts = (meta.creation_timestamp, status.last_schedule_time, status.last_missed_time)
        return max((moment for text in texts if (moment := past_time(text, self.now)) is not None), default=self.now)

    @cached_property
    def settled(self) -> datetime:
        """The same, with the MergeJobs that the status does not know yet: the operator may have died in between."""
        return max([self.recorded, *(moment for moment in self._created if moment <= self.now + CLOCKS)])

    @cached_property
    def latest(self) -> datetime | None:
        """The latest time that passed and is not settled; None while suspended."""
        return None if self.world.schedule.spec.suspend else self.cron.latest(self.settled, self.now)

    @property
    def deadline(self) -> datetime | None:
        """Until when a MergeJob may be created for the latest time; None is for ever."""
        limit = self.world.schedule.spec.starting_deadline_seconds
        return None if limit is None or self.latest is None else self.latest + timedelta(seconds=limit)

    @property
    def due(self) -> datetime | None:
        """The time to create a MergeJob for."""
        return self.latest if self.deadline is None or self.now <= self.deadline else None

    @cached_property
    def following(self) -> datetime | None:
        """The next time to come; None while suspended."""
        suspended = self.world.schedule.spec.suspend
        return None if suspended else self.cron.next_after(max(self.settled, self.now))

    @cached_property
    def missed(self) -> Missed | None:
        """Times without a MergeJob that are given up in this pass: a later one was created, or they are too late."""
        if self.settled > self.recorded:
            return self._count(self.recorded, self.settled - _SECOND)
        if self.latest is not None and self.due is None:
            return self._count(self.recorded, self.latest)
        return None

    @cached_property
    def active(self) -> tuple[MergeJobSubject, ...]:
        """MergeJobs that have not ended, oldest first."""
        return tuple(job for job in self._by_age if not _is_one(job, COMPLETE) and not _is_one(job, FAILED))

    @cached_property
    def succeeded(self) -> tuple[MergeJobSubject, ...]:
        """MergeJobs that are Complete, oldest first."""
        return tuple(job for job in self._by_age if _is_one(job, COMPLETE))

    @cached_property
    def failed(self) -> tuple[MergeJobSubject, ...]:
        """MergeJobs that Failed, oldest first."""
        return tuple(job for job in self._by_age if _is_one(job, FAILED))

    @property
    def wait(self) -> float | None:
        """Seconds until something is to be done although nothing is seen."""
        late = self.deadline + _SECOND if self.deadline is not None else None
        moments = [moment for moment in (self.following, late) if moment is not None and moment > self.now]
        return min(((moment - self.now).total_seconds() for moment in moments), default=None)

    @cached_property
    def _by_age(self) -> list[MergeJobSubject]:
        return sorted(self.world.jobs, key=lambda job: job.age)

    @cached_property
    def _created(self) -> frozenset[datetime]:
        name = self.world.schedule.meta.name
        minutes = (scheduled_minute(name, job.meta.name) for job in self.world.jobs)
        return frozenset(datetime.fromtimestamp(60 * minute, UTC) for minute in minutes if minute is not None)

    def _count(self, after: datetime, until: datetime) -> Missed | None:
        times = islice(self.cron.between(after, until), MAX_MISSED + len(self._created) + 1)
        missed = [moment for moment in times if moment not in self._created]
        if len(missed) <= MAX_MISSED:
            return Missed(len(missed), missed[-1]) if missed else None
        return Missed(len(missed), self.cron.latest(after, until) or missed[-1])


def _is_one(job: MergeJobSubject, type_: str) -> bool:
    return is_true(job.status.conditions, type_)

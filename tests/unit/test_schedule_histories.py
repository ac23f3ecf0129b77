"""Random lives of a schedule: the operator dies, sleeps and is refused, jobs end or hang, clocks change.

Never two MergeJobs for one minute, and none is lost that was within its deadline when the operator looked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.ids import scheduled_minute
from skipstone_operator.ports import Key, Ports, Refused
from skipstone_operator.reconcilers import reconcile
from skipstone_operator.worlds.cron import read_cron

from tests.examples import cases
from tests.unit import objects
from tests.unit.kube_double import Crash, ManualClock, MemoryKube
from tests.unit.operator_double import DEFAULTS, RecordingEvents, RecordingRuns, run_now

KEY = Key("MergeSchedule", "lake", "hourly")
STARTS = ("2026-03-28T22:00", "2026-10-24T22:00", "2026-03-07T23:00", "2026-11-01T02:00", "2026-07-14T09:59")


def nothing(_obj: Any) -> None:
    """Refuse nothing."""


def full(obj: dict[str, Any]) -> Refused | None:
    """Refuse MergeJobs."""
    return Refused(403, "Forbidden", "exceeded quota") if obj["kind"] == "MergeJob" else None


@dataclass
class Life:
    """A schedule in an API server in memory, and all that was ever created for it."""

    cron: str
    zone: str
    start: datetime
    spec: dict[str, Any]
    created: Counter[str] = field(default_factory=Counter)
    asleep: bool = False

    def __post_init__(self) -> None:
        """Apply the schedule."""
        self.kube = MemoryKube(clock=ManualClock(self.start))
        self.kube.created = lambda obj: self.created.update([obj["metadata"]["name"]])
        self.kube.add(objects.schedule(cron=self.cron, timeZone=self.zone, **self.spec))
        self.times = read_cron(self.cron, self.zone)
        self.events = RecordingEvents()

    @property
    def now(self) -> datetime:
        return self.kube.clock.now()

    def work(self, deaths: frozenset[tuple[int, str]] = frozenset()) -> float | None:
        """Reconcile until there is nothing to do; the operator dies at these writes and comes back."""
        first = len(self.kube.writes)
        self.kube.crash = lambda number, moment: (number - first, moment) in deaths
        ports = Ports(
            kube=self.kube,
            clock=self.kube.clock,
            events=self.events,
            meter=RecordingRuns(),
            defaults=DEFAULTS,
            namespaces=("lake",),
        )
        for _ in range(60):
            try:
                answer = run_now(reconcile(KEY, ports))
            except Crash:
                continue
            if answer.after is None or answer.after > 0:
                return answer.after
        raise AssertionError(f"never rests: {self.kube.writes[-8:]}")

    def end_jobs(self, *, well: bool) -> None:
        condition = {"type": "Complete" if well else "Failed", "status": "True", "reason": "Committed"}
        stamp = {"lastTransitionTime": self.kube.clock.text(), "observedGeneration": 1, "message": ""}
        for job in list(self.kube.find("MergeJob")):
            if not job.get("status"):
                status = {"conditions": [{**condition, **stamp}], "completionTime": self.kube.clock.text()}
                self.kube.edit("MergeJob", job["metadata"]["name"], lambda o, status=status: o.update(status=status))

    def created_times(self) -> set[datetime]:
        minutes = [scheduled_minute("hourly", name) for name in self.created]
        return {datetime.fromtimestamp(60 * minute, UTC) for minute in minutes if minute is not None}


@st.composite
def lives(draw: st.DrawFn) -> Life:
    zone = draw(st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]))
    local = datetime.fromisoformat(draw(st.sampled_from(STARTS))).replace(tzinfo=ZoneInfo(zone))
    cron = draw(st.sampled_from(["*/10 * * * *", "0 * * * *", "30 2 * * *", "15,45 1-3 * * *", "* * * * *"]))
    policy = draw(st.sampled_from(["Allow", "Forbid", "Replace"]))
    spec: dict[str, Any] = {"concurrencyPolicy": policy}
    if (deadline := draw(st.sampled_from([None, 30, 600, 7200]))) is not None:
        spec["startingDeadlineSeconds"] = deadline
    limits = draw(st.sampled_from([(3, 1), (0, 0)]))
    spec |= {"successfulJobsHistoryLimit": limits[0], "failedJobsHistoryLimit": limits[1]}
    return Life(cron, zone, local.astimezone(UTC), spec)


deaths = st.frozensets(st.tuples(st.integers(0, 4), st.sampled_from(["before", "landed"])), max_size=3)
moves = st.tuples(
    st.sampled_from(["wake", "wake", "skip", "suspend", "refuse"]),
    st.integers(1, 4 * 3600),
    st.sampled_from(["none", "well", "ill"]),
    deaths,
)


def must_be_created(life: Life) -> datetime | None:
    """The latest time, when nothing excuses the operator from having created its MergeJob by now."""
    latest = life.times.latest(life.start, life.now)
    deadline = life.spec.get("startingDeadlineSeconds")
    late = latest is not None and deadline is not None and (life.now - latest).total_seconds() > deadline
    active = [job for job in life.kube.find("MergeJob") if not job.get("status")]
    return None if late or (active and life.spec["concurrencyPolicy"] == "Forbid") else latest


@settings(deadline=None, max_examples=cases(50, 150))
@given(lives(), st.lists(moves, min_size=1, max_size=12))
def test_no_minute_is_served_twice_and_none_within_its_deadline_is_lost(life: Life, steps: list[Any]) -> None:
    wait = life.work()
    for what, seconds, ends, dying in steps:
        asked = min(wait, 86400.0) if what == "wake" and wait is not None else float(seconds)
        life.kube.clock.time += timedelta(seconds=asked)
        if ends != "none":
            life.end_jobs(well=ends == "well")
        life.kube.edit(*KEY_OF, lambda o, on=what == "suspend": o["spec"].update(suspend=on))
        life.kube.refuse = full if what == "refuse" else nothing
        wait = life.work(dying)
        assert max(life.created.values(), default=1) == 1
        wanted = must_be_created(life)
        if what in ("wake", "skip") and wanted is not None:
            assert wanted in life.created_times()
        assert life.created_times() <= set(life.times.between(life.start, life.now))


KEY_OF = ("MergeSchedule", "hourly")


@settings(deadline=None, max_examples=cases(15, 30))
@given(lives(), st.lists(deaths, min_size=20, max_size=20))
def test_an_operator_that_wakes_when_it_asked_to_serves_every_time(life: Life, dying: list[Any]) -> None:
    wait = life.work()
    for deaths_now in dying:
        if wait is None or life.now - life.start > timedelta(days=3):
            break
        life.kube.clock.time += timedelta(seconds=wait)
        life.end_jobs(well=True)
        wait = life.work(deaths_now)
        life.end_jobs(well=True)
        life.work()
    assert life.created_times() == set(life.times.between(life.start, life.now))
    assert set(life.created.values()) <= {1}
    assert not {"RunMissed", "TooManyMissed"} & set(life.events.reasons())
    limit = life.spec["successfulJobsHistoryLimit"]
    assert len(list(life.kube.find("MergeJob"))) <= limit
    status = life.kube.status("MergeSchedule", "hourly")
    if life.created:
        assert status["lastScheduleTime"] == max(life.created_times()).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert status["lastSuccessfulTime"]

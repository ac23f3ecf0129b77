"""The kept drivers of a Warehouse and the runs that were assigned to them: facts, and which driver takes a run next.

Gathered for Tables, whose jobs are assigned, and for the Warehouse, which keeps the drivers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from skipstone_core.contract.keeping import IDLE_VARIABLE, READY_REPORT
from skipstone_core.contract.requests import RunKind
from skipstone_core.ids import REPORT_ANNOTATION

from skipstone_operator import labels
from skipstone_operator.ports import Timing
from skipstone_operator.worlds.nodes import find_silence_end, is_stuck
from skipstone_operator.worlds.pods import PodFacts, read_pod
from skipstone_operator.worlds.times import parse_time

Raw = Mapping[str, Any]
#: The label of a kept driver's operation, which is not a run.
KEEP_OPERATION = "Keep"
#: Runs that a kept driver takes.
KEPT_KINDS = frozenset({RunKind.LOAD, RunKind.MERGE, RunKind.DRY_RUN})
_KEPT_OPERATIONS = frozenset(kind.value for kind in KEPT_KINDS)
#: Runs that may wait in line behind the one that a kept driver has.
MAX_WAITING = 3
#: A run that has taken longer than this is not a small one: nothing waits behind it.
SMALL_RUN = timedelta(seconds=10)


@dataclass(frozen=True)
class KeptDriver:
    """One kept driver as its pod shows it. ``hash``: over the manifest that it was made from.

    ``is_marked``: it has said that it takes runs; ``idle_seconds``: how long it stays without one, None for ever.
    """

    pod: PodFacts
    hash: str
    is_marked: bool
    idle_seconds: int | None = None

    @property
    def name(self) -> str:
        """The name of its pod."""
        return self.pod.name

    @property
    def takes_runs(self) -> bool:
        """Return whether it is there, has said that it is ready, and stays."""
        up = self.pod.started is not None and not self.pod.terminal and self.pod.unanswered is None
        return up and self.is_marked and not self.pod.deleting

    def is_lost(self, now: datetime, timing: Timing) -> bool:
        """Return whether nothing that was assigned to it will be run or told of any more."""
        silence = find_silence_end(self.pod, timing)
        return self.pod.terminal or is_stuck(self.pod, now) or (silence is not None and now >= silence)


@dataclass(frozen=True)
class KeptRun:
    """A run that was assigned and has not ended."""

    pod: PodFacts
    raw: Raw


@dataclass(frozen=True, kw_only=True)
class KeptDrivers:
    """The kept drivers of a Warehouse. ``runs``: those assigned; ``cold``: how many others of KEPT_KINDS are live.

    ``last_end``: when a run of KEPT_KINDS ended last, as far as pods still tell.
    """

    drivers: tuple[KeptDriver, ...] = ()
    runs: tuple[KeptRun, ...] = ()
    cold: int = 0
    last_end: datetime | None = None

    def runs_of(self, driver: KeptDriver) -> tuple[KeptRun, ...]:
        """The runs that ``driver`` has, in the order in which they were assigned."""
        mine = self.runs_by(driver.pod.uid)
        return tuple(sorted(mine, key=lambda run: (format_created(run.pod), run.pod.name)))

    def runs_by(self, uid: str) -> tuple[KeptRun, ...]:
        """The runs of the kept driver whose pod has this uid."""
        return tuple(run for run in self.runs if run.pod.kept_by == uid)


def format_created(pod: PodFacts) -> str:
    """When the pod was created, in a form that sorts."""
    return pod.created.isoformat() if pod.created is not None else ""


def read_kept_drivers(pods: Iterable[Raw]) -> KeptDrivers:
    """The facts of all driver pods of one Warehouse. Pods that have ended are not looked into: they may be many."""
    drivers: list[KeptDriver] = []
    runs: list[KeptRun] = []
    cold, ends = 0, [""]
    for raw in pods:
        operation = (raw["metadata"].get("labels") or {}).get(labels.OPERATION_LABEL)
        if operation == KEEP_OPERATION:
            drivers.append(_read_driver(raw))
        elif operation in _KEPT_OPERATIONS and _has_ended(raw):
            ends.append(_end_of(raw))
        elif operation in _KEPT_OPERATIONS:
            pod = read_pod(dict(raw))
            cold += not pod.kept_by
            runs += [KeptRun(pod, raw)] if pod.kept_by else []
    return KeptDrivers(drivers=tuple(drivers), runs=tuple(runs), cold=cold, last_end=parse_time(max(ends)))


def _read_driver(raw: Raw) -> KeptDriver:
    annotations = raw["metadata"].get("annotations") or {}
    is_marked = annotations.get(REPORT_ANNOTATION) == READY_REPORT
    manifest_hash = str(annotations.get(labels.MANIFEST_HASH_ANNOTATION, ""))
    return KeptDriver(read_pod(dict(raw)), manifest_hash, is_marked, _read_idle(raw))


def _read_idle(raw: Raw) -> int | None:
    variables = ((raw.get("spec") or {}).get("containers") or [{}])[0].get("env") or ()
    values = (str(variable.get("value")) for variable in variables if variable.get("name") == IDLE_VARIABLE)
    return next((int(value) for value in values if value.isdecimal()), None)


def _has_ended(raw: Raw) -> bool:
    return (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _end_of(raw: Raw) -> str:
    statuses = (raw.get("status") or {}).get("containerStatuses") or ()
    ends = (((each.get("state") or {}).get("terminated") or {}).get("finishedAt") or "" for each in statuses)
    return max((str(end) for end in ends), default="")


def choose_driver(kept: KeptDrivers, manifest_hash: str, now: datetime) -> KeptDriver | str:
    """The driver that takes the next run: the one with the fewest; or why none does, in words."""
    ready = [driver for driver in kept.drivers if driver.takes_runs and driver.hash == manifest_hash]
    if not ready:
        return "no kept driver is ready"
    free = [driver for driver in ready if _has_room(kept.runs_of(driver), now)]
    if not free:
        return "all kept drivers are busy"
    return min(free, key=lambda driver: (len(kept.runs_of(driver)), driver.name))


def can_take(kept: KeptDrivers, uid: str, now: datetime) -> bool:
    """Return whether the kept driver whose pod has this uid is there and has room for one more run."""
    driver = next((driver for driver in kept.drivers if driver.pod.uid == uid), None)
    return driver is not None and driver.takes_runs and _has_room(kept.runs_of(driver), now)


def _has_room(runs: tuple[KeptRun, ...], now: datetime) -> bool:
    long = any(run.pod.started is not None and now - run.pod.started > SMALL_RUN for run in runs)
    return not runs or (len(runs) <= MAX_WAITING and not long)

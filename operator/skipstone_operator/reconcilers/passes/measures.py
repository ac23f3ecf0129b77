"""Which numbers a status write is worth: read off by comparing the old status with the new one.

Called by ``perform`` after a write that landed. Pure but for the meter that it feeds.
"""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_core.contract.requests import RunKind

from skipstone_operator.conditions import read_reason
from skipstone_operator.ports import Meter
from skipstone_operator.worlds.subjects import Raw
from skipstone_operator.worlds.times import parse_time

CURRENT = ("currentRun", "observeRun")
LAST = ("lastRun", "lastObserveRun")


def publish_measures(obj: Raw, status: Raw, meter: Meter) -> None:
    """Tell ``meter`` of runs that ended, of launches that got on, and of an index's lag."""
    before = _part(obj, "status")
    for current, last in zip(CURRENT, LAST, strict=True):
        _run_finished(_part(before, current), _part(before, last), _part(status, last), meter)
    for name in CURRENT:
        _launched(_part(before, name), _part(status, name), meter)
    if obj.get("kind") == "SecondaryIndex":
        metadata = obj["metadata"]
        meter.index_lag(metadata["namespace"], metadata["name"], int((status.get("segments") or {}).get("missing", 0)))


def _part(of: Raw, name: str) -> Raw:
    # Users write statuses too.
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}


def _run_finished(current: Raw, before: Raw, after: Raw, meter: Meter) -> None:
    if not after or (after.get("id"), after.get("completionTime")) == (before.get("id"), before.get("completionTime")):
        return
    spent = _seconds(after.get("startTime"), after.get("completionTime")) or 0.0
    meter.run_finished(RunKind(after["kind"]), read_reason(after["reason"]), seconds=spent)
    worked = _seconds(current.get("runningTime"), after.get("completionTime"))
    if worked is not None and current.get("id") == after.get("id"):
        meter.launch_latency("run", worked)


def _launched(before: Raw, after: Raw, meter: Meter) -> None:
    known = before if before.get("id") == after.get("id") else {}
    for phase, start, end in (("submit", "startTime", "launchTime"), ("schedule", "launchTime", "runningTime")):
        spent = _seconds(after.get(start), after.get(end))
        if spent is not None and not known.get(end):
            meter.launch_latency(phase, spent)


def _seconds(start: str | None, end: str | None) -> float | None:
    begun, ended = parse_time(start), parse_time(end)
    return max(0.0, (ended - begun).total_seconds()) if begun is not None and ended is not None else None

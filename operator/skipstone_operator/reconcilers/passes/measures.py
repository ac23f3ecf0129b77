"""Which numbers a status write is worth: read off by comparing the old status with the new one.

Called by ``perform`` after a write that landed. Pure but for the meter that it feeds.
"""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_core.contract.requests import RunKind

from skipstone_operator.conditions import read_reason
from skipstone_operator.ports import HealthMeter, Meter
from skipstone_operator.worlds.subjects import Raw
from skipstone_operator.worlds.times import parse_time

CURRENT = ("currentRun", "observeRun", "maintainRun")
LAST = ("lastRun", "lastObserveRun", "lastMaintainRun")


def publish_measures(obj: Raw, status: Raw, meter: Meter) -> None:
    """Tell ``meter`` of runs that ended, of launches that got on, of an index's lag and of a table's health."""
    before = _part(obj, "status")
    for current, last in zip(CURRENT, LAST, strict=True):
        _run_finished(_part(before, current), _part(before, last), _part(status, last), meter)
    for name in CURRENT:
        _launched(_part(before, name), _part(status, name), meter)
    if obj.get("kind") == "Table":
        _maintained(obj["metadata"], before, status, meter)
    if obj.get("kind") == "SecondaryIndex":
        metadata = obj["metadata"]
        meter.index_lag(metadata["namespace"], metadata["name"], int((status.get("segments") or {}).get("missing", 0)))


def publish_health(metadata: Raw, status: Raw, meter: HealthMeter) -> None:
    """Tell ``meter`` how a table is, and when each step of its maintenance was last done."""
    place = (metadata["namespace"], metadata["name"])
    if health := _part(status, "health"):
        meter.table_health(*place, {name: value for name, value in health.items() if isinstance(value, int)})
    for step, result in _results(status).items():
        moment = parse_time(result.get("time"))
        if result.get("done") and moment is not None:
            meter.maintained(*place, step, moment.timestamp())


def _maintained(metadata: Raw, before: Raw, after: Raw, meter: Meter) -> None:
    publish_health(metadata, after, meter)
    known = _results(before)
    for step, result in _results(after).items():
        if result.get("run") != known.get(step, {}).get("run"):
            meter.maintenance_work(step, _part(result, "counts"))


def _results(status: Raw) -> dict[str, Raw]:
    found = status.get("lastMaintenance") or ()
    return {str(one.get("step")): one for one in found if isinstance(one, Mapping)}


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

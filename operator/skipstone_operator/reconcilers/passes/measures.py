"""Which numbers a status write is worth: read off by comparing the old status with the new one.

Called by ``perform`` after a write that landed. Pure but for the meter that it feeds.
"""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_core.contract.requests import RunKind

from skipstone_operator.conditions import COMPLETE, read_reason
from skipstone_operator.ports import Meter
from skipstone_operator.resources.common import RunResult
from skipstone_operator.worlds.subjects import Raw
from skipstone_operator.worlds.times import parse_time

CURRENT = ("currentRun", "observeRun", "maintainRun")
LAST = ("lastRun", "lastObserveRun", "lastMaintainRun")
JOBS = ("LoadJob", "MergeJob")
#: A run that is lost to the cluster or stopped on purpose is no failure of what it does.
FAILED_RESULTS = (RunResult.FAILED.value, RunResult.UNKNOWN.value)


def publish_measures(obj: Raw, status: Raw, meter: Meter) -> None:
    """Tell ``meter`` of runs that ended, of launches that got on, of work that was done."""
    before = _part(obj, "status")
    for current, last in zip(CURRENT, LAST, strict=True):
        _run_finished(_part(before, current), _part(before, last), _part(status, last), meter)
    for name in CURRENT:
        _launched(_part(before, name), _part(status, name), meter)
    if obj.get("kind") == "Table":
        _maintained(before, status, meter)
    dry = _part(obj, "spec").get("dryRun") is True
    if obj.get("kind") in JOBS and not dry and _is_complete(status) and not _is_complete(before):
        table = str(_part(_part(obj, "spec"), "tableRef").get("name", ""))
        meter.job_committed(str(obj["metadata"]["namespace"]), table, _count(status))


def _is_complete(status: Raw) -> bool:
    conditions = status.get("conditions") or ()
    return any(each.get("type") == COMPLETE and each.get("status") == "True" for each in conditions)


def _count(status: Raw) -> dict[str, int]:
    """The rows and files of a job that committed, by the names under which they are measured."""
    rows, files = _part(status, "rows"), _part(status, "files")
    total = int(files.get("total") or 0)
    return {
        "rowsLoaded": int(status.get("rowsLoaded") or 0),
        "rowsUpdated": int(rows.get("updated") or 0),
        "rowsDeleted": int(rows.get("deleted") or 0),
        "rowsInserted": int(rows.get("inserted") or 0),
        "rowsRejected": int(status.get("rowsRejected") or 0) + int(rows.get("rejected") or 0),
        "rowsWaiting": int(rows.get("waiting") or 0),
        "rowsUnmatchedDeletes": int(rows.get("unmatchedDeletes") or 0),
        "rowsUnmatchedUpdates": int(rows.get("unmatchedUpdates") or 0),
        "valuesIgnored": sum(int(column.get("rows") or 0) for column in _listed(status, "unusedColumns")),
        "filesTotal": total,
        "filesPruned": total - int(files.get("candidate") or 0),
    }


def _maintained(before: Raw, after: Raw, meter: Meter) -> None:
    known = _results(before)
    for step, result in _results(after).items():
        if result.get("run") != known.get(step, {}).get("run"):
            meter.maintenance_work(step, _part(result, "counts"))


def _listed(of: Raw, name: str) -> list[Raw]:
    entries = of.get(name)
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list | tuple) else []


def _results(status: Raw) -> dict[str, Raw]:
    results = status.get("lastMaintenance") or ()
    return {str(result.get("step")): result for result in results if isinstance(result, Mapping)}


def _part(of: Raw, name: str) -> Raw:
    # Users write statuses too.
    part = of.get(name)
    return part if isinstance(part, Mapping) else {}


def _run_finished(current: Raw, before: Raw, after: Raw, meter: Meter) -> None:
    if not after or (after.get("id"), after.get("completionTime")) == (before.get("id"), before.get("completionTime")):
        return
    spent = _seconds(after.get("startTime"), after.get("completionTime")) or 0.0
    kind, reason = RunKind(after["kind"]), read_reason(after["reason"])
    meter.run_finished(kind, reason, seconds=spent)
    if after.get("result") in FAILED_RESULTS:
        meter.run_failed(kind, reason)
    meter.run_stages(kind, {stage: ms / 1000 for stage, ms in _part(after, "stagesMs").items()})
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

"""Which numbers one object is worth: read off its spec and status, as the API gave them.

Called for each change that is seen. Users write statuses too: what is no number or no time is left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from skipstone_core.errors import BadSpec
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import COMPLETE, FAILED, HEALTHY, PROGRESSING, READY, STALLED, SYNCED, read_reason
from skipstone_operator.measuring.families import HEALTH
from skipstone_operator.worlds.cron import read_cron
from skipstone_operator.worlds.times import parse_time, past_time

JsonMap = Mapping[str, Any]
JOB_KINDS = ("LoadJob", "MergeJob")
STEPS = frozenset(step.value for step in MaintenanceStep)
#: Fields of a status that count failed runs in a row.
FAILURES = ("failedAttempts", "failedObserves", "failedMaintains")


@dataclass(frozen=True)
class Measurement:
    """One number. ``since``: it is the seconds that have passed since ``value``, which is in seconds since 1970."""

    family: str
    labels: tuple[str, ...]
    value: float
    since: bool = False


@dataclass(frozen=True)
class JobMeasurement:
    """A job: the Table that it is for, its state, and when it ended, in seconds since 1970."""

    kind: str
    namespace: str
    table: str
    state: str
    ended: float | None


@dataclass(frozen=True)
class Measurements:
    """All of one object at one resourceVersion."""

    version: str
    numbers: tuple[Measurement, ...]
    job: JobMeasurement | None = None


def read(obj: JsonMap, now: datetime) -> Measurements:
    """The numbers of ``obj``, which is of one of our kinds."""
    version = str(obj["metadata"].get("resourceVersion", ""))
    stuck = tuple(_read_stuck(obj))
    if obj["kind"] == "MergeJob" and _part(obj, "spec").get("dryRun") is True:
        # Neither its end nor its rows are those of a merge.
        return Measurements(version, stuck)
    if obj["kind"] in JOB_KINDS:
        return Measurements(version, (*_read_job(obj), *stuck), _job(obj))
    special = _SPECIAL.get(str(obj["kind"]))
    more = special(obj, now) if special is not None else ()
    return Measurements(version, (*_read_any(obj), *more, *stuck))


def _read_stuck(obj: JsonMap) -> Iterator[Measurement]:
    if _condition(_part(obj, "status"), PROGRESSING).get("reason") == Reason.DRIVER_STUCK:
        yield Measurement("resource_driver_stuck", (str(obj["kind"]), *_place(obj)), 1.0)


def _read_any(obj: JsonMap) -> Iterator[Measurement]:
    place, status = (str(obj["kind"]), *_place(obj)), _part(obj, "status")
    yield Measurement("resource_ready", place, float(_holds(status, READY)))
    yield Measurement("resource_stalled", place, float(_holds(status, STALLED)))
    yield Measurement("resource_failed_runs", place, sum(_number(status, name) or 0.0 for name in FAILURES))


def _read_index(obj: JsonMap, _now: datetime) -> Iterator[Measurement]:
    place, status, spec = _place(obj), _part(obj, "status"), _part(obj, "spec")
    yield Measurement("index_lag_segments", place, _number(_part(status, "segments"), "missing") or 0.0)
    catches_up = spec.get("maintenance") != "Manual" and not spec.get("suspend")
    labels = (*place, "true" if catches_up else "false")
    synced = _condition(status, SYNCED)
    behind = None if synced.get("status") == "True" else _moment(synced, "lastTransitionTime")
    if behind is not None:
        yield Measurement("index_lag_seconds", labels, behind, since=True)
    elif synced:
        yield Measurement("index_lag_seconds", labels, 0.0)
    rows = _part(status, "rows")
    yield from _numbers(rows, place, {"live": "index_rows", "covered": "index_covered_rows"})
    yield from _numbers(status, place, {"bytes": "index_bytes"})
    yield from _moments(status, place, {"lastSyncTime": "index_last_sync_timestamp_seconds"})


def _read_table(obj: JsonMap, _now: datetime) -> Iterator[Measurement]:
    place, status = _place(obj), _part(obj, "status")
    yield from _numbers(status, place, {"rows": "table_rows", "files": "table_files", "bytes": "table_bytes"})
    yield from _numbers(_part(status, "segments"), place, {"total": "table_segments"})
    if (healthy := _condition(status, HEALTHY)).get("status") in ("True", "False"):
        yield Measurement("table_healthy", place, float(healthy.get("status") == "True"))
        since = _moment(healthy, "lastTransitionTime") if healthy.get("status") == "False" else None
        yield Measurement("table_unhealthy_seconds", place, since or 0.0, since=since is not None)
    if health := _part(status, "health"):
        for field, (family, _) in HEALTH.items():
            yield Measurement(family, place, _number(health, field) or 0.0)
    for result in _items(status, "lastMaintenance"):
        moment = _moment(result, "time")
        if result.get("done") and moment is not None and result.get("step") in STEPS:
            yield Measurement("table_maintained_timestamp_seconds", (*place, str(result["step"])), moment)


def _read_warehouse(obj: JsonMap, _now: datetime) -> Iterator[Measurement]:
    if planning := _part(_part(obj, "status"), "planning"):
        for field, family in {"replicas": "replicas", "readyReplicas": "ready_replicas"}.items():
            yield Measurement(f"planning_server_{family}", _place(obj), _number(planning, field) or 0.0)
    if kept := _part(_part(obj, "status"), "warmDrivers"):
        for field, family in {"wanted": "kept_drivers", "ready": "kept_drivers_ready"}.items():
            yield Measurement(family, _place(obj), _number(kept, field) or 0.0)


def _read_schedule(obj: JsonMap, now: datetime) -> Iterator[Measurement]:
    place, status = _place(obj), _part(obj, "status")
    yield Measurement("schedule_active_jobs", place, _number(status, "active") or 0.0)
    gone = status.get("goneColumns")
    yield Measurement("schedule_gone_columns", place, float(len(gone)) if isinstance(gone, list) else 0.0)
    yield from _moments(status, place, {"lastSuccessfulTime": "schedule_last_success_timestamp_seconds"})
    due = _first_due(obj, now)
    if due is None:
        yield Measurement("schedule_delay_seconds", place, 0.0)
    else:
        yield Measurement("schedule_delay_seconds", place, due.timestamp(), since=True)


def _first_due(obj: JsonMap, now: datetime) -> datetime | None:
    """The first time, past or to come, that has no MergeJob and was not given up."""
    spec, status, metadata = _part(obj, "spec"), _part(obj, "status"), _part(obj, "metadata")
    if spec.get("suspend") or metadata.get("deletionTimestamp"):
        return None
    if _is_on_time(metadata, status) and (following := parse_time(_text(status.get("nextScheduleTime")))) is not None:
        return following
    texts = (metadata.get("creationTimestamp"), status.get("lastScheduleTime"), status.get("lastMissedTime"))
    settled = max((moment for text in texts if (moment := past_time(_text(text), now)) is not None), default=None)
    try:
        cron = read_cron(str(spec.get("schedule", "")), str(spec.get("timeZone", "UTC")))
    except BadSpec:
        return None
    return None if settled is None else cron.next_after(settled)


def _is_on_time(metadata: JsonMap, status: JsonMap) -> bool:
    """Return whether no time was due and waiting when the status was written: the next one is the first then.

    To ask the cron expression takes milliseconds.
    """
    waits = _condition(status, PROGRESSING).get("reason") == Reason.PREVIOUS_JOB_ACTIVE
    judged = status.get("observedGeneration") == metadata.get("generation", 0)
    return judged and _holds(status, READY) and not waits


def _read_job(obj: JsonMap) -> Iterator[Measurement]:
    place, status = (str(obj["kind"]), *_place(obj)), _part(obj, "status")
    if _holds(status, FAILED):
        if (ended := _moment(status, "completionTime")) is not None:
            reason = read_reason(str(_condition(status, FAILED).get("reason"))).value
            yield Measurement("job_failed_timestamp_seconds", (*place, _table_of(obj), reason), ended)
    elif not _holds(status, COMPLETE) and (failures := _number(status, "failedAttempts")):
        yield Measurement("resource_failed_runs", place, failures)


def _job(obj: JsonMap) -> JobMeasurement:
    status = _part(obj, "status")
    if _holds(status, COMPLETE):
        state = "Complete"
    elif _holds(status, FAILED):
        state = "Failed"
    else:
        state = "Running" if _part(status, "currentRun").get("launchTime") else "Waiting"
    return JobMeasurement(
        kind=str(obj["kind"]),
        namespace=_place(obj)[0],
        table=_table_of(obj),
        state=state,
        ended=_moment(status, "completionTime"),
    )


_SPECIAL = {
    "Warehouse": _read_warehouse,
    "SecondaryIndex": _read_index,
    "Table": _read_table,
    "MergeSchedule": _read_schedule,
}


def _place(obj: JsonMap) -> tuple[str, str]:
    return str(obj["metadata"].get("namespace", "")), str(obj["metadata"]["name"])


def _table_of(obj: JsonMap) -> str:
    return str(_part(_part(obj, "spec"), "tableRef").get("name", ""))


def _part(of: JsonMap, name: str) -> JsonMap:
    part = of.get(name)
    return part if isinstance(part, Mapping) else {}


def _items(of: JsonMap, name: str) -> Iterator[JsonMap]:
    items = of.get(name)
    yield from (each for each in items if isinstance(each, Mapping)) if isinstance(items, list) else ()


def _condition(status: JsonMap, type_: str) -> JsonMap:
    return next((each for each in _items(status, "conditions") if each.get("type") == type_), {})


def _holds(status: JsonMap, type_: str) -> bool:
    return _condition(status, type_).get("status") == "True"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(of: JsonMap, name: str) -> float | None:
    value = of.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _moment(of: JsonMap, name: str) -> float | None:
    moment = parse_time(_text(of.get(name)))
    return None if moment is None else moment.timestamp()


def _numbers(of: JsonMap, place: tuple[str, ...], families: Mapping[str, str]) -> Iterator[Measurement]:
    numbers = ((family, _number(of, field)) for field, family in families.items())
    yield from (Measurement(family, place, value) for family, value in numbers if value is not None)


def _moments(of: JsonMap, place: tuple[str, ...], families: Mapping[str, str]) -> Iterator[Measurement]:
    moments = ((family, _moment(of, field)) for field, family in families.items())
    yield from (Measurement(family, place, value) for family, value in moments if value is not None)

"""The few numbers of each kind that ``status`` shows beside its state.

Names are those of the JSON output. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skipstone_cli.kinds import INDEX, LOAD_JOB, MERGE_JOB, SCHEDULE, TABLE, WAREHOUSE, ResourceKind
from skipstone_cli.reading import JsonObject, field_of, is_dry_run, is_set, number_of, text_of
from skipstone_cli.views.standings import conditions_of

Detail = str | int | bool | None
BAD_ENDS = ("Failed", "Unknown", "Lost")


def find_details(kind: ResourceKind, obj: JsonObject) -> Mapping[str, Detail]:
    """The details of an object that are known, in the order in which they are shown."""
    return {name: value for name, value in _BY_KIND[kind](obj).items() if value not in (None, "")}


def last_error(obj: JsonObject, run: str = "lastRun") -> str:
    """Why the run that ended last did not succeed: reason and message; empty when it did."""
    if text_of(obj, "status", run, "result") not in BAD_ENDS:
        return ""
    parts = (text_of(obj, "status", run, "reason"), text_of(obj, "status", run, "message"))
    return ": ".join(part for part in parts if part)


def _warehouse(obj: JsonObject) -> dict[str, Detail]:
    return {
        "catalog": text_of(obj, "status", "catalog"),
        "storage": text_of(obj, "status", "storage"),
        "tables": number_of(obj, "status", "tables"),
        "planning": _replicas(obj),
        "planningUrl": text_of(obj, "status", "planning", "url"),
    }


def _replicas(obj: JsonObject) -> str:
    """Ready replicas of the planning server, of all that are wanted."""
    wanted = number_of(obj, "status", "planning", "replicas")
    ready = number_of(obj, "status", "planning", "readyReplicas") or 0
    return "" if wanted is None else f"{ready}/{wanted}"


def _table(obj: JsonObject) -> dict[str, Detail]:
    healthy = conditions_of(obj).get("Healthy")
    writer = f"{text_of(obj, 'status', 'writer', 'kind')} {text_of(obj, 'status', 'writer', 'name')}".strip()
    return {
        "rows": number_of(obj, "status", "rows"),
        "files": number_of(obj, "status", "files"),
        "healthy": healthy.status if healthy is not None else None,
        "health": healthy.reason if healthy is not None else None,
        "writer": writer,
    }


def _index(obj: JsonObject) -> dict[str, Detail]:
    return {
        "synced": text_of(obj, "status", "synced"),
        "missing": text_of(obj, "status", "missing"),
        "lagSegments": number_of(obj, "status", "segments", "missing"),
        "covered": text_of(obj, "status", "covered"),
        "lastError": last_error(obj),
    }


def _job(obj: JsonObject) -> dict[str, Detail]:
    return {
        "attempts": number_of(obj, "status", "attempts"),
        "duration": text_of(obj, "status", "duration"),
        "progress": text_of(obj, "status", "currentRun", "progress"),
        "lastError": last_error(obj),
    }


def _load(obj: JsonObject) -> dict[str, Detail]:
    return {"rowsLoaded": number_of(obj, "status", "rowsLoaded"), **_job(obj)}


def _merge(obj: JsonObject) -> dict[str, Detail]:
    dry = True if is_dry_run(obj) else None
    return {"dryRun": dry, "pruned": text_of(obj, "status", "pruned"), **_job(obj)}


def _schedule(obj: JsonObject) -> dict[str, Detail]:
    return {
        "schedule": text_of(obj, "spec", "schedule"),
        "suspended": True if is_set(obj, "spec", "suspend") else None,
        "next": text_of(obj, "status", "nextScheduleTime"),
        "last": text_of(obj, "status", "lastScheduleTime"),
        "active": number_of(obj, "status", "active"),
    }


_BY_KIND: Mapping[ResourceKind, Callable[[JsonObject], dict[str, Detail]]] = {
    WAREHOUSE: _warehouse,
    TABLE: _table,
    INDEX: _index,
    LOAD_JOB: _load,
    MERGE_JOB: _merge,
    SCHEDULE: _schedule,
}


def is_running(obj: JsonObject) -> bool:
    """Return whether a run of the object is intended or in progress."""
    return isinstance(field_of(obj, "status", "currentRun"), dict)

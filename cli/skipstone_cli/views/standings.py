"""How an object stands, out of its conditions: ready, in progress, waiting or failed.

Called by the tree, by ``why`` and by ``--wait``. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.reasons import Reason

from skipstone_cli.kinds import JOB_KINDS, ResourceKind
from skipstone_cli.reading import JsonObject, entries_of, field_of, number_of, text_of


class State(StrEnum):
    """How an object stands, in one word."""

    READY = "Ready"
    COMPLETE = "Complete"
    RUNNING = "Running"
    WAITING = "Waiting"
    FAILED = "Failed"
    DELETING = "Deleting"
    UNKNOWN = "Unknown"


#: Reasons of a Ready condition that is not True while nothing has failed: something else comes first, or time.
PENDING = frozenset(
    {
        Reason.WAREHOUSE_NOT_FOUND, Reason.WAREHOUSE_NOT_READY, Reason.TABLE_NOT_FOUND, Reason.TABLE_NOT_READY,
        Reason.CHECK_PENDING, Reason.NOT_BUILT, Reason.WAITING_FOR_TABLE, Reason.WAITING_FOR_TURN,
        Reason.WAITING_FOR_QUOTA, Reason.WAITING_FOR_WAREHOUSE, Reason.SUSPENDED, Reason.RUN_INTENDED,
        Reason.DRIVER_PENDING, Reason.DRIVER_RUNNING, Reason.RETRYING, Reason.CONFIRMING, Reason.IDLE, Reason.DELETING,
        Reason.SEGMENTS_MISSING, Reason.APPLIED,
    }
)  # fmt: skip
#: Reasons by which an index or the health of a table has failed, and not only something to do.
BROKEN = frozenset({Reason.SEGMENTS_FAILED, Reason.INDEX_DAMAGED, Reason.MAINTENANCE_FAILED, Reason.INVALID_SPEC})
FINISHED = (State.COMPLETE, State.FAILED)
NEW = "the operator has not looked at it yet"


@dataclass(frozen=True)
class Seen:
    """One condition."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class Assessment:
    """How an object stands, and the condition that says most about it."""

    state: State
    reason: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Return whether somebody has to act."""
        return self.state is State.FAILED


def conditions_of(obj: JsonObject) -> dict[str, Seen]:
    """The conditions by type."""
    conditions = (
        Seen(text_of(entry, "type"), text_of(entry, "status"), text_of(entry, "reason"), text_of(entry, "message"))
        for entry in entries_of(obj, "status", "conditions")
    )
    return {condition.type: condition for condition in conditions}


def is_stale(obj: JsonObject) -> bool:
    """Return whether the spec has changed since the operator judged it."""
    generation = number_of(obj, "metadata", "generation") or 0
    return (number_of(obj, "status", "observedGeneration") or 0) < generation


def is_deleting(obj: JsonObject) -> bool:
    """Return whether the object is being deleted."""
    return bool(text_of(obj, "metadata", "deletionTimestamp"))


def judge(kind: ResourceKind, obj: JsonObject) -> Assessment:
    """How the object stands."""
    conditions = conditions_of(obj)
    if is_deleting(obj):
        progress = conditions.get("Progressing")
        return Assessment(State.DELETING, Reason.DELETING, progress.message if progress else "")
    if not conditions:
        return Assessment(State.UNKNOWN, "", NEW)
    judged = _judge_job(obj, conditions) if kind in JOB_KINDS else _judge_lasting(obj, conditions)
    stalled = conditions.get("Stalled")
    if stalled is None or stalled.status != "True" or judged.state in (State.COMPLETE, State.FAILED):
        return judged
    return Assessment(State.FAILED, stalled.reason, stalled.message)


def _judge_job(obj: JsonObject, conditions: dict[str, Seen]) -> Assessment:
    for name, state in (("Failed", State.FAILED), ("Complete", State.COMPLETE)):
        if (ended := conditions.get(name)) is not None and ended.status == "True":
            return Assessment(state, ended.reason, ended.message)
    progress = conditions.get("Progressing")
    if progress is None:
        return Assessment(State.UNKNOWN, text_of(obj, "status", "reason"), "")
    running = progress.status == "True" and bool(field_of(obj, "status", "currentRun"))
    return Assessment(State.RUNNING if running else State.WAITING, progress.reason, progress.message)


def _judge_lasting(obj: JsonObject, conditions: dict[str, Seen]) -> Assessment:
    """A kind that stays: Warehouse, Table, SecondaryIndex, MergeSchedule."""
    ready = conditions.get("Ready")
    if ready is not None and ready.status != "True" and ready.reason not in PENDING:
        return Assessment(State.FAILED, ready.reason, ready.message)
    if (degraded := conditions.get("Degraded")) is not None and degraded.status == "True":
        return Assessment(State.FAILED, degraded.reason, degraded.message)
    lasting = ("Healthy", "Synced", "PlanningReady", "WarmDriversReady")
    behind = [
        condition for name in lasting if (condition := conditions.get(name)) is not None and condition.status == "False"
    ]
    for condition in behind:
        if condition.reason in BROKEN:
            return Assessment(State.FAILED, condition.reason, condition.message)
    if ready is None:
        return Assessment(State.UNKNOWN, "", NEW)
    if ready.status != "True":
        running = bool(field_of(obj, "status", "currentRun"))
        return Assessment(State.RUNNING if running else State.WAITING, ready.reason, ready.message)
    telling = behind[0] if behind else ready
    return Assessment(State.READY, telling.reason, telling.message)

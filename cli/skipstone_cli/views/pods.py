"""Which driver pod is meant, and what keeps one from starting.

Called by ``logs`` and ``why``. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_core.ids import DRIVER_SUFFIX, MAX_NAME, bounded_name

from skipstone_cli.kinds import (
    DRIVER_CONTAINER,
    JOB_KINDS,
    OPERATION_LABEL,
    RUN_ID_LABEL,
    SERVER_CONTAINER,
    ResourceKind,
)
from skipstone_cli.reading import JsonObject, entries_of, field_of, name_of, number_of, text_of
from skipstone_cli.views.standings import FINISHED, State, judge

#: Runs of a job that do not do its work.
ASIDE = ("Confirm",)
#: Fields of a status that hold a run.
RUNNING = ("currentRun", "maintainRun", "observeRun")
ENDED = ("lastRun", "lastMaintainRun", "lastObserveRun")


def attempt_of(pod: JsonObject) -> int:
    """The number of the attempt, which ends the name of its run; 0 when it does not."""
    number = text_of(pod, "metadata", "labels", RUN_ID_LABEL).rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def operation_of(pod: JsonObject) -> str:
    """Return the operation of the run, such as Merge."""
    return text_of(pod, "metadata", "labels", OPERATION_LABEL)


def choose_driver(kind: ResourceKind, pods: Sequence[JsonObject], attempt: int | None = None) -> JsonObject | None:
    """The newest driver pod, of that attempt if one is given. Of a job, one that does its work comes first."""
    fitting = [pod for pod in pods if attempt is None or attempt_of(pod) == attempt]
    if kind in JOB_KINDS:
        fitting = [pod for pod in fitting if operation_of(pod) not in ASIDE] or fitting
    return max(fitting, key=lambda pod: (text_of(pod, "metadata", "creationTimestamp"), attempt_of(pod)), default=None)


def guess_driver(obj: JsonObject, attempt: int | None = None) -> JsonObject | None:
    """The driver pod that the status of ``obj`` names, for users who may not list pods; whether it exists is not known.

    A run in progress comes first, then the one that began last.
    """
    runs = [(name in RUNNING, run) for name in (*RUNNING, *ENDED) for run in [field_of(obj, "status", name)]]
    fitting = [
        (running, text_of(run, "startTime"), run)
        for running, run in runs
        if text_of(run, "id") and attempt in (None, number_of(run, "attempt"))
    ]
    chosen = max(fitting, key=lambda candidate: candidate[:2], default=None)
    return _named_pod(chosen[2]) if chosen is not None else None


def _named_pod(run: object) -> JsonObject:
    name = bounded_name(text_of(run, "id"), MAX_NAME - len(DRIVER_SUFFIX)) + DRIVER_SUFFIX
    labels = {RUN_ID_LABEL: text_of(run, "id"), OPERATION_LABEL: text_of(run, "kind")}
    started = {"name": DRIVER_CONTAINER, "state": {"running": {}}}
    return {"metadata": {"name": name, "labels": labels}, "status": {"containerStatuses": [started]}}


def describe(pod: JsonObject) -> str:
    """The pod, its operation and its attempt."""
    return f"{name_of(pod)} ({operation_of(pod) or 'unknown operation'}, attempt {attempt_of(pod)})"


def has_started(pod: JsonObject) -> bool:
    """Return whether the container of the driver runs or ran, so that it has a log."""
    state = _container_state(pod)
    return any(isinstance(field_of(state, name), dict) for name in ("running", "terminated"))


def has_ended(pod: JsonObject) -> bool:
    """Return whether nothing more happens in the pod."""
    return text_of(pod, "status", "phase") in ("Succeeded", "Failed")


def started_time(pod: JsonObject) -> str:
    """When the container of the driver started; empty when it has not."""
    state = _container_state(pod)
    times = (text_of(field_of(state, name), "startedAt") for name in ("running", "terminated"))
    return next(filter(None, times), "")


def is_ready(pod: JsonObject) -> bool:
    """Return whether the pod takes requests."""
    ready = (entry for entry in entries_of(pod, "status", "conditions") if text_of(entry, "type") == "Ready")
    return any(text_of(condition, "status") == "True" for condition in ready)


def is_awaited(kind: ResourceKind, obj: JsonObject, driver: JsonObject | None) -> bool:
    """Return whether a driver is still to come: a run in progress, or a job that has not ended, has no pod."""
    run = "" if text_of(obj, "status", "currentRun", "kind") in ASIDE else text_of(obj, "status", "currentRun", "id")
    if driver is None:
        return bool(run) or (kind in JOB_KINDS and judge(kind, obj).state not in (*FINISHED, State.DELETING))
    return bool(run) and has_ended(driver) and text_of(driver, "metadata", "labels", RUN_ID_LABEL) != run


def find_obstacle(pod: JsonObject) -> str:
    """Return the reason why the pod does not start; empty when it is unknown."""
    waiting = field_of(_container_state(pod), "waiting")
    reason = _joined(text_of(waiting, "reason"), text_of(waiting, "message"))
    if reason:
        return reason
    for entry in entries_of(pod, "status", "conditions"):
        if text_of(entry, "type") == "PodScheduled" and text_of(entry, "status") == "False":
            return _joined(text_of(entry, "reason"), text_of(entry, "message"))
    return _joined(text_of(pod, "status", "reason"), text_of(pod, "status", "message"))


def _container_state(pod: JsonObject) -> object:
    for entry in entries_of(pod, "status", "containerStatuses"):
        if text_of(entry, "name") in (DRIVER_CONTAINER, SERVER_CONTAINER):
            return field_of(entry, "state")
    return None


def _joined(reason: str, message: str) -> str:
    return ": ".join(part for part in (reason, message) if part)

"""What a driver pod says about its run: facts read out of a Pod object.

Reconcilers gather Pods, ``read_pod`` makes facts of them, ``verdicts`` judge them. Pure.

Any account that may patch pods may write labels and annotations. Hence a pod is known by its name, which never changes;
only the termination message of its driver is a report; and the annotation counts as far as that message vouches for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from skipstone_core.contract.keeping import kept_driver_uid
from skipstone_core.contract.reports import JobReport, RunOutcome, report_digest
from skipstone_core.errors import ContractViolation
from skipstone_core.ids import DRIVER_SUFFIX, REPORT_ANNOTATION, is_run_of
from skipstone_core.reasons import Reason

from skipstone_operator import labels
from skipstone_operator.conditions import shorten
from skipstone_operator.worlds.times import parse_time

JsonObject = Mapping[str, Any]

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
#: The reason of a failed pod that tells of the run. All others are the cluster's: a container that fails leaves it out.
_DEADLINE = "DeadlineExceeded"
#: The reason of a container that a node lost: it started again, and does not know how the container ended.
_LOST_CONTAINER = "ContainerStatusUnknown"


@dataclass(frozen=True)
class Wait:
    """Why a pod has not started, and whether a deadline runs for it."""

    reason: Reason
    message: str
    bounded: bool = True


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """One driver or executor pod. ``exit_code`` is that of the driver container, None while it has not ended.

    ``node`` is empty for a pod that no node has taken. ``leaves``: when a deleted pod should be gone, its grace
    included. ``unanswered``: since when the cluster does not hear of the pod's node; ``limit``: when the kubelet should
    have ended the pod, by its own deadline. ``given_up``: it should have gone too long ago to be waited for.
    ``kept_by``: the uid of the kept driver that runs it, empty for a pod that a node runs. ``warehouse_uid``: the
    Warehouse that it says it uses.
    ``waits`` tells what a pod that has not started waits for; ``text`` is the termination message as found;
    ``report`` is the one in it; ``states`` is the annotation that it vouches for. ``underway`` is what the annotation
    of a pod that has not ended says: for people, never a proof. ``owner_uid`` is empty when the pod's name tells of
    another owner.
    """

    name: str
    namespace: str
    uid: str
    run_id: str
    operation: str
    owner_uid: str
    created: datetime | None
    kept_by: str = ""
    warehouse_uid: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    node: str = ""
    deleting: bool = False
    leaves: datetime | None = None
    finalizers: tuple[str, ...] = ()
    unanswered: datetime | None = None
    limit: datetime | None = None
    given_up: bool = False
    terminal: bool = False
    exit_code: int | None = None
    end_reason: str = ""
    disrupted: bool = False
    deadline_passed: bool = False
    waits: Wait | None = None
    report: JobReport | None = None
    states: JobReport | None = None
    underway: JobReport | None = None
    text: str = ""

    @property
    def progress(self) -> str:
        """What the driver says that it is doing."""
        return (self.underway.progress or "") if self.underway is not None else ""

    @property
    def live(self) -> bool:
        """Return whether the run may still be running, and is waited for."""
        return not self.terminal and not self.given_up

    @property
    def attempt(self) -> int:
        """The number at the end of the run's name."""
        tail = self.run_id.rpartition("-")[2]
        return int(tail) if tail.isdigit() else 0

    @property
    def succeeded(self) -> bool:
        """Return whether the driver container ended with exit code 0."""
        return self.exit_code == 0


def read_pod(pod: JsonObject) -> PodFacts:
    """The facts of a Pod as the API server gave it."""
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    pod_labels = metadata.get("labels") or {}
    container = _driver_container(status)
    state = container.get("state") or {}
    ended = state.get("terminated") or {}
    running = state.get("running") or ended
    phase = status.get("phase", "Pending")
    run_id, owner_uid = _identity(metadata)
    started = parse_time(running.get("startedAt"))
    text = ended.get("message") or ""
    report = _parse_report(text, run_id) if not container.get("restartCount") else None
    details = (metadata.get("annotations") or {}).get(REPORT_ANNOTATION) or ""
    terminal = bool(ended) or phase in ("Succeeded", "Failed")
    return PodFacts(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        run_id=run_id,
        operation=pod_labels.get(labels.OPERATION_LABEL, ""),
        owner_uid=owner_uid,
        created=parse_time(metadata.get("creationTimestamp")),
        kept_by=kept_driver_uid(pod),
        warehouse_uid=pod_labels.get(labels.WAREHOUSE_UID_LABEL, ""),
        started=started,
        ended=parse_time(ended.get("finishedAt")),
        node=(pod.get("spec") or {}).get("nodeName") or "",
        deleting=bool(metadata.get("deletionTimestamp")),
        leaves=parse_time(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers") or ()),
        unanswered=None if terminal else _find_unanswered(status),
        limit=None if terminal else _find_limit(pod),
        terminal=terminal,
        exit_code=ended.get("exitCode"),
        end_reason=status.get("reason") or ended.get("reason") or "",
        disrupted=_is_disrupted(status, ended),
        deadline_passed=status.get("reason") == _DEADLINE,
        waits=None if terminal or started else _find_kept_wait(pod) or find_wait(status),
        report=report,
        states=_parse_report(details, run_id) if report is not None and _vouches(report, details) else None,
        underway=None if terminal else _parse_progress(details, run_id),
        text=text or status.get("message") or "",
    )


def _identity(metadata: JsonObject) -> tuple[str, str]:
    """The run that a driver pod is, and its owner's uid, as far as the pod's own name agrees."""
    name = str(metadata.get("name", ""))
    run_id = name.removesuffix(DRIVER_SUFFIX) if name.endswith(DRIVER_SUFFIX) else ""
    owner_uid = str((metadata.get("labels") or {}).get(labels.OWNER_UID_LABEL, ""))
    return run_id, owner_uid if is_run_of(run_id, owner_uid) else ""


def _driver_container(status: JsonObject) -> Mapping[str, Any]:
    drivers = (c for c in status.get("containerStatuses") or () if c.get("name") == labels.DRIVER_CONTAINER)
    return next(drivers, {})


def _vouches(report: JobReport, annotation: str) -> bool:
    return bool(annotation) and report.annotation_sha256 == report_digest(annotation)


def _parse_progress(text: str, run_id: str) -> JobReport | None:
    report = _parse_report(text, run_id)
    return report if report is not None and report.outcome is RunOutcome.RUNNING else None


def _parse_report(text: str, run_id: str) -> JobReport | None:
    # The termination message may hold log lines instead of a report, and any user may edit an annotation.
    if not text.startswith("{"):
        return None
    try:
        report = JobReport.from_json(text)
    except ContractViolation:
        return None
    return report if report.run_id == run_id else None


def _is_disrupted(status: JsonObject, ended: JsonObject) -> bool:
    """Return whether the cluster ended the pod, or its node refused it, as with ``OutOfcpu``; not the run."""
    targeted = _conditions(status).get("DisruptionTarget", {}).get("status") == "True"
    by_cluster = status.get("phase") == "Failed" and status.get("reason") not in (None, "", _DEADLINE)
    return targeted or by_cluster or ended.get("reason") == _LOST_CONTAINER


def _find_unanswered(status: JsonObject) -> datetime | None:
    """Since when the cluster does not hear of the node: it then takes Ready back, and leaves ContainersReady as it is.

    A kubelet never writes that but for readiness gates, which our pods do not have.
    """
    conditions = _conditions(status)
    ready, containers = conditions.get("Ready", {}), conditions.get("ContainersReady", {})
    lost = ready.get("status") == "False" and containers.get("status") == "True"
    return parse_time(ready.get("lastTransitionTime")) if lost or status.get("phase") == "Unknown" else None


def _find_limit(pod: JsonObject) -> datetime | None:
    seconds = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    taken = parse_time((pod.get("status") or {}).get("startTime"))
    return None if seconds is None or taken is None else taken + timedelta(seconds=seconds)


def _conditions(status: JsonObject) -> dict[str, JsonObject]:
    return {str(condition.get("type")): condition for condition in status.get("conditions") or ()}


def _find_kept_wait(pod: JsonObject) -> Wait | None:
    if not kept_driver_uid(pod):
        return None
    name = ((pod.get("metadata") or {}).get("labels") or {}).get(labels.KEPT_DRIVER_LABEL, "")
    return Wait(Reason.DRIVER_PENDING, f"the kept driver {name} takes the run next")


def find_wait(status: JsonObject) -> Wait:
    """What a pod that has not started waits for."""
    waiting = (_driver_container(status).get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason", ""), shorten(waiting.get("message", ""))
    if reason in _IMAGE:
        return Wait(Reason.IMAGE_PULL_FAILED, message or f"the image cannot be pulled: {reason}")
    if reason in _CONFIG:
        return Wait(Reason.CONTAINER_CONFIG_ERROR, message or f"the container cannot be made: {reason}")
    return _scheduling_wait(_conditions(status))


def _scheduling_wait(conditions: Mapping[str, JsonObject]) -> Wait:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        message = shorten(scheduled.get("message", "no node can take the pod"))
        volume = "persistentvolume" in message.lower()
        return Wait(Reason.VOLUME_UNAVAILABLE if volume else Reason.UNSCHEDULABLE, message)
    mounted = conditions.get("PodReadyToStartContainers") or {}
    if scheduled.get("status") == "True" and mounted.get("status") == "True":
        # Volumes are mounted and the sandbox stands: only the pull of a large image is left, which may take its time.
        return Wait(Reason.DRIVER_PENDING, "the image is being pulled", bounded=False)
    if scheduled.get("status") == "True":
        return Wait(Reason.DRIVER_PENDING, "the node is preparing the volumes of the driver pod")
    return Wait(Reason.DRIVER_PENDING, "the driver pod waits for the scheduler")

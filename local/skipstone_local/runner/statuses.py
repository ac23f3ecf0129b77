"""The status of a pod as kubelet writes it. Pure: what became of its process in, a status out.

A time of a condition is kept while the condition stays as it is, so a status that says nothing new is equal to the one
before and is not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skipstone_local.runner.environment import ADDRESS, JsonObject

#: What a kubelet takes of a termination message, and of a log that stands for one.
MAX_MESSAGE_BYTES, MAX_TAIL_BYTES, MAX_TAIL_LINES = 4096, 2048, 80
TERMINAL = ("Succeeded", "Failed")
KILLED = 137


@dataclass(frozen=True)
class NotStarted:
    """The process has not started. ``volume``: what is missing is a claim, so no node takes the pod."""

    reason: str
    message: str
    volume: bool = False


@dataclass(frozen=True)
class Running:
    """The process runs since ``started``."""

    started: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The process has ended. ``pod_reason`` and ``pod_message`` say it if not the process but the machine ended it."""

    started: str
    finished: str
    exit_code: int
    message: str = ""
    reason: str = ""
    pod_reason: str = ""
    pod_message: str = ""


State = NotStarted | Running | Ended


def build_status(pod: JsonObject, state: State, now: str) -> dict[str, Any]:
    """The status of ``pod``, whose process is in ``state``; ``now`` as Kubernetes writes times."""
    before = pod.get("status") or {}
    status: dict[str, Any] = {
        "phase": _phase(state),
        "conditions": _conditions(before, state, now),
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "qosClass": "Burstable",
    }
    if not (isinstance(state, NotStarted) and state.volume):
        status["startTime"] = before.get("startTime") or getattr(state, "started", "") or now
        status["containerStatuses"] = [_container(pod, state)]
    if isinstance(state, Ended) and state.pod_reason:
        status |= {"reason": state.pod_reason, "message": state.pod_message}
    return status


def has_status(pod: JsonObject, status: Mapping[str, Any]) -> bool:
    """Return whether the pod's status says all of ``status`` already."""
    before = pod.get("status") or {}
    return all(before.get(name) == value for name, value in status.items())


def fit_message(content: bytes) -> str:
    """Return a termination message, cut to its limit."""
    return content[:MAX_MESSAGE_BYTES].decode(errors="replace")


def fit_tail(content: bytes) -> str:
    """Return the part of a log that replaces a termination message; ``content`` is its end."""
    text = content[-MAX_TAIL_BYTES:].decode(errors="replace")
    return "".join(text.splitlines(keepends=True)[-MAX_TAIL_LINES:])


def _phase(state: State) -> str:
    if isinstance(state, NotStarted):
        return "Pending"
    if isinstance(state, Running):
        return "Running"
    return "Succeeded" if state.exit_code == 0 and not state.pod_reason else "Failed"


def _container(pod: JsonObject, state: State) -> dict[str, Any]:
    container, uid = pod["spec"]["containers"][0], pod["metadata"]["uid"]
    status = {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": 0,
        "ready": isinstance(state, Running),
        "started": isinstance(state, Running),
        "state": _container_state(state, uid),
    }
    return status if isinstance(state, NotStarted) else {**status, "containerID": _identify(uid)}


def _container_state(state: State, uid: str) -> dict[str, Any]:
    match state:
        case NotStarted(reason, message):
            return {"waiting": {"reason": reason, "message": message}}
        case Running(started):
            return {"running": {"startedAt": started}}
        case Ended():
            ended: dict[str, Any] = {
                "containerID": _identify(uid),
                "exitCode": state.exit_code,
                "reason": state.reason or ("Error" if state.exit_code else "Completed"),
                "startedAt": state.started,
                "finishedAt": state.finished,
            }
            return {"terminated": {**ended, "message": state.message} if state.message else ended}


def _identify(uid: str) -> str:
    return f"process://{uid}"


@dataclass(frozen=True)
class _Condition:
    type: str
    status: str
    reason: str = ""
    message: str = ""


def _conditions(before: JsonObject, state: State, now: str) -> list[dict[str, Any]]:
    by_type = {condition["type"]: condition for condition in before.get("conditions") or ()}
    return [_tell(wanted, by_type.get(wanted.type, {}), now) for wanted in _judge(state)]


def _judge(state: State) -> tuple[_Condition, ...]:
    if isinstance(state, NotStarted) and state.volume:
        return (_Condition("PodScheduled", "False", state.reason, state.message),)
    if isinstance(state, Running):
        ready, why, done = "True", "", ""
    elif isinstance(state, Ended):
        done = "PodCompleted" if _phase(state) == "Succeeded" else ""
        ready, why = "False", done or "PodFailed"
    else:
        ready, why, done = "False", "ContainersNotReady", ""
    return (
        _Condition("PodReadyToStartContainers", ready),
        _Condition("Initialized", "True", done),
        _Condition("Ready", ready, why),
        _Condition("ContainersReady", ready, why),
        _Condition("PodScheduled", "True"),
    )


def _tell(wanted: _Condition, before: JsonObject, now: str) -> dict[str, Any]:
    changed = before.get("lastTransitionTime", now) if before.get("status") == wanted.status else now
    given = {"reason": wanted.reason, "message": wanted.message}
    return {
        "type": wanted.type,
        "status": wanted.status,
        "lastTransitionTime": changed,
        **{name: text for name, text in given.items() if text},
    }

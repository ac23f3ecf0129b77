"""The status of a pod that was assigned, as a node writes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skipstone.keeping.assigned import AssignedRun

JsonObject = dict[str, Any]
#: What a node takes of a termination message, and of a log that stands for one.
MAX_MESSAGE_BYTES, MAX_TAIL_BYTES, MAX_TAIL_LINES = 4096, 2048, 80
OUT_OF_MEMORY = "OOMKilled"
DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How a run's process ended. ``pod_reason`` and ``pod_message``: if not the process but somebody else ended it."""

    exit_code: int
    message: str = ""
    out_of_memory: bool = False
    pod_reason: str = ""
    pod_message: str = ""


def running_status(run: AssignedRun, started: str) -> JsonObject:
    """The status of a run that begins."""
    state = {"running": {"startedAt": started}}
    return {"phase": "Running", "startTime": started, "containerStatuses": [_container(run, state, alive=True)]}


def ended_status(run: AssignedRun, end: RunEnd, started: str, finished: str) -> JsonObject:
    """The status of a run that has ended, from which its pod never comes back."""
    ordinary = "Error" if end.exit_code else "Completed"
    state = {
        "terminated": {
            "exitCode": end.exit_code,
            "reason": OUT_OF_MEMORY if end.out_of_memory else ordinary,
            "startedAt": started,
            "finishedAt": finished,
            **({"message": end.message} if end.message else {}),
        }
    }
    good = end.exit_code == 0 and not end.pod_reason
    status = {"phase": "Succeeded" if good else "Failed", "containerStatuses": [_container(run, state, alive=False)]}
    return {**status, "reason": end.pod_reason, "message": end.pod_message} if end.pod_reason else status


def refused_status(run_name: str, message: str) -> JsonObject:
    """The status of a pod that this driver cannot run: nothing was begun, which counts as a loss."""
    return {"phase": "Failed", "reason": "KeptDriverUnfit", "message": f"{run_name}: {message}"}


def fit_message(content: bytes) -> str:
    """Return a termination message, cut to its limit."""
    return content[:MAX_MESSAGE_BYTES].decode(errors="replace")


def fit_tail(content: bytes) -> str:
    """Return the part of a log that stands for a termination message; ``content`` is its end."""
    text = content[-MAX_TAIL_BYTES:].decode(errors="replace")
    return "".join(text.splitlines(keepends=True)[-MAX_TAIL_LINES:])


def _container(run: AssignedRun, state: JsonObject, *, alive: bool) -> JsonObject:
    return {
        "name": run.container,
        "image": run.image,
        "imageID": "",
        "containerID": f"skipstone://{run.uid}",
        "restartCount": 0,
        "ready": alive,
        "started": alive,
        "state": state,
    }

"""Brings one pod and its process together: what is due is found in the pod's folder, so whoever comes next goes on.

Every call looks at what there is and takes one step; a runner that is killed between two steps has lost nothing.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from skipstone_core.ids import REPORT_ANNOTATION
from skipstone_operator.manifests.shape import SCRATCH

from skipstone_local.places import RootFolder
from skipstone_local.runner.api import MERGE_PATCH, Answer, ApiError, Client
from skipstone_local.runner.environment import CannotMake, JsonObject, resolve
from skipstone_local.runner.folders import PodFolder, Stage
from skipstone_local.runner.plane.dataplane import DataPlane
from skipstone_local.runner.statuses import (
    KILLED,
    TERMINAL,
    Ended,
    NotStarted,
    Running,
    State,
    build_status,
    has_status,
)
from skipstone_local.runner.supervise import Order, timestamp
from skipstone_local.runner.volumes import ClaimMissing, PodVolumes, remove_folder

NODE = "local"
#: Seconds until something that is missing, or an API server that did not answer, is tried again.
RETRY_SECONDS = 1.0
DEFAULT_GRACE = 30
DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
LOST_REASON = "ContainerStatusUnknown"
LOST_MESSAGE = "The container could not be located when the pod was terminated"


@dataclass
class PodWork:
    """The pods of one machine and their processes. ``started``: supervisors that this process has started."""

    root: RootFolder
    client: Client
    plane: DataPlane
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)

    def step(self, pod: JsonObject) -> JsonObject | None:
        """Do what is due for ``pod``; the pod as it is then, None when it is gone. Raises ApiError."""
        uid = pod["metadata"]["uid"]
        folder = PodFolder(self.root.pod(uid), uid)
        if not pod["spec"].get("nodeName"):
            return self._bind(pod)
        if pod["spec"]["nodeName"] != NODE:
            return pod
        if is_terminal(pod):
            return self._remove(pod, folder) if _is_deleting(pod) else pod
        match folder.find_stage():
            case Stage.NEW:
                return self._begin(pod, folder)
            case Stage.RUNNING:
                return self._keep(pod, folder)
            case Stage.LOST:
                folder.bury()
        return self._end(pod, folder)

    def is_live(self, pod: JsonObject) -> bool:
        """Return whether the pod's process runs, or is about to."""
        uid = pod["metadata"]["uid"]
        stage, supervisor = PodFolder(self.root.pod(uid), uid).find_stage(), self.started.get(uid)
        return stage is Stage.RUNNING or (stage is Stage.NEW and supervisor is not None and supervisor.poll() is None)

    def stop(self, pod: JsonObject, grace: float, reason: str, message: str) -> bool:
        """Ask the pod's process to end because this machine wants it to; False as long as it could not be asked."""
        uid = pod["metadata"]["uid"]
        return PodFolder(self.root.pod(uid), uid).stop(min(grace, _grace(pod)), reason, message)

    def forget(self, uid: str) -> bool:
        """End what is left of a pod that is gone, and remove its folder; False as long as it has not ended."""
        folder = PodFolder(self.root.pod(uid), uid)
        if not folder.path.exists():
            return True
        match folder.find_stage():
            case Stage.NEW if not folder.give_up():
                return False
            case Stage.RUNNING:
                folder.stop(0)
                return False
            case Stage.LOST:
                folder.bury()
        self._reap(uid)
        self._asked.pop(uid, None)
        remove_folder(folder.path)
        return True

    def _bind(self, pod: JsonObject) -> JsonObject | None:
        """Take the pod: from here on it goes only when its process has ended."""
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        answer = self.client.request("POST", f"{_path(pod)}/binding", binding)
        if not answer.ok and answer.status not in (404, 409):
            raise _unexpected(answer, pod)
        return self._read(pod)

    def _begin(self, pod: JsonObject, folder: PodFolder) -> JsonObject | None:
        supervisor = self.started.get(folder.uid)
        if supervisor is not None and supervisor.poll() is None:
            return pod
        if _is_deleting(pod):
            return self._remove(pod, folder) if folder.give_up() else pod
        if self.started.pop(folder.uid, None) is not None:
            # It is started again at the next look.
            return self._tell(pod, NotStarted("RunContainerError", folder.read_complaint()))
        try:
            order = self._prepare(pod, folder)
        except CannotMake as error:
            return self._tell(pod, NotStarted("CreateContainerConfigError", str(error)))
        except ClaimMissing as error:
            return self._tell(pod, NotStarted("Unschedulable", str(error), volume=True))
        self.started[folder.uid] = folder.start(order)
        return pod

    def _prepare(self, pod: JsonObject, folder: PodFolder) -> Order:
        """Make the folder of the pod. Raises CannotMake, ClaimMissing and ApiError."""
        containers = pod["spec"]["containers"]
        if len(containers) != 1 or pod["spec"].get("initContainers"):
            raise CannotMake("only pods with one container are run here")
        (container,) = containers
        command = self.plane.command(container)
        volumes = PodVolumes(self.root, pod, self.plane.interpreters)
        mounts = volumes.locate(container)
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)

        def look_up(kind: str, name: str) -> JsonObject | None:
            plural = {"Secret": "secrets", "ConfigMap": "configmaps"}[kind]
            obj = self.client.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/{plural}/{name}")
            return None if obj is None else {**obj, "kind": kind}

        volumes.make(mounts, look_up)
        variables = {
            variable.name: mounts.map_variable(variable.name, variable.value) if variable.literal else variable.value
            for variable in resolve(container, pod, look_up)
        }
        scratch = volumes.find(mounts, SCRATCH)
        return Order(
            command=command,
            environment=self.plane.environment(folder, scratch, variables),
            directory=str(volumes.find(mounts, container.get("workingDir") or SCRATCH)),
            deadline=_deadline(pod),
            grace=_grace(pod),
        )

    def _keep(self, pod: JsonObject, folder: PodFolder) -> JsonObject | None:
        process = folder.read_process()
        if not process:
            return pod
        written = self._tell(pod, Running(process["startedAt"]))
        if written is None:
            return None
        written = self._carry(written, folder)
        if written is not None and _is_deleting(written):
            self._ask(folder, float(written["metadata"].get("deletionGracePeriodSeconds") or 0))
        return written

    def _ask(self, folder: PodFolder, grace: float) -> None:
        """Ask the process to end; once, or once more if it is given less time than before."""
        if self._asked.get(folder.uid, math.inf) > grace and folder.stop(grace):
            self._asked[folder.uid] = grace

    def _end(self, pod: JsonObject, folder: PodFolder) -> JsonObject | None:
        self._reap(folder.uid)
        carried = self._carry(pod, folder)
        written = None if carried is None else self._tell(carried, read_end(carried, folder))
        folder.shed()
        if written is not None and _is_deleting(written):
            return self._remove(written, folder)
        return written

    def _carry(self, pod: JsonObject, folder: PodFolder) -> JsonObject | None:
        """Put what the process has told last into the annotation of its pod."""
        report = folder.read_report()
        annotations = pod["metadata"].get("annotations") or {}
        if report is None or annotations.get(REPORT_ANNOTATION) == report:
            return pod
        change = {"metadata": {"uid": folder.uid, "annotations": {REPORT_ANNOTATION: report}}}
        return self._patch(pod, _path(pod), change)

    def _tell(self, pod: JsonObject, state: State) -> JsonObject | None:
        status = build_status(pod, state, timestamp())
        if has_status(pod, status):
            return pod
        return self._patch(pod, f"{_path(pod)}/status", {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status})

    def _patch(self, pod: JsonObject, path: str, change: Mapping[str, Any]) -> JsonObject | None:
        answer = self.client.request("PATCH", path, change, MERGE_PATCH)
        if answer.ok:
            return answer.body
        if answer.status in (404, 409):
            return self._read(pod)
        raise _unexpected(answer, pod)

    def _remove(self, pod: JsonObject, folder: PodFolder) -> JsonObject | None:
        """Let the object go: nothing of its process lives any more."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": folder.uid},
        }
        answer = self.client.request("DELETE", _path(pod), options)
        if not answer.ok and answer.status not in (404, 409):
            raise _unexpected(answer, pod)
        return self._read(pod)

    def _read(self, pod: JsonObject) -> JsonObject | None:
        current = self.client.get(_path(pod))
        return current if current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"] else None

    def _reap(self, uid: str) -> None:
        supervisor = self.started.pop(uid, None)
        if supervisor is not None:
            supervisor.wait()


def read_end(pod: JsonObject, folder: PodFolder) -> Ended:
    """How the process of ``pod`` ended."""
    process, end, stop = folder.read_process(), folder.read_end(), folder.read_stop()
    code = int(end.get("exitCode", KILLED))
    policy = pod["spec"]["containers"][0].get("terminationMessagePolicy", "File")
    lost, late = bool(end.get("lost")), bool(end.get("deadlineExceeded"))
    if stop.get("reason"):
        policy = "File"  # what the log ends with says nothing about why it ends
    finished = end.get("finishedAt", "")
    return Ended(
        started=process.get("startedAt") or finished,
        finished=finished,
        exit_code=code,
        message=folder.read_message(code, policy) or (LOST_MESSAGE if lost else ""),
        reason=LOST_REASON if lost else "",
        pod_reason=DEADLINE_REASON if late else stop.get("reason", ""),
        pod_message=DEADLINE_MESSAGE if late else stop.get("message", ""),
    )


def _path(pod: JsonObject) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _is_deleting(pod: JsonObject) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_terminal(pod: JsonObject) -> bool:
    """Return whether the pod's status says how it ended."""
    return (pod.get("status") or {}).get("phase") in TERMINAL


def _grace(pod: JsonObject) -> float:
    return float(pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE))


def _deadline(pod: JsonObject) -> float | None:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    if seconds is None:
        return None
    since = (pod.get("status") or {}).get("startTime")
    begun = datetime.fromisoformat(since) if since else datetime.now(UTC)
    return begun.timestamp() + float(seconds)


def _unexpected(answer: Answer, pod: JsonObject) -> ApiError:
    return ApiError(f"pod {pod['metadata']['name']}: {answer.status} {answer.body.get('message', '')}")

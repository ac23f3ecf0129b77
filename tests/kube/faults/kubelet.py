"""A kubelet without containers: moves driver pods through their phases while a process does the driver's real work.

It also watches what must never happen: two live drivers of one owner. Talks to the API server directly, not through
the proxy, as an administrator.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
from skipstone_core.contract.keeping import FILES_VARIABLE, READY_REPORT, kept_driver_uid

from tests.kube.access import Access

JsonObject = dict[str, Any]
MANAGED = "app.kubernetes.io/managed-by=skipstone-operator"
REPORT = "skipstone.dev/report"
LOOK_SECONDS = 0.2
TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class Driven:
    """What a driver left behind."""

    exit_code: int
    message: str
    annotation: str


Drive = Callable[[str, str], Driven]


#: The node of pods whose node dies as soon as they run; all others have none.
DEAD_NODE = "worker-7"


@dataclass
class SimulatedKubelet:
    """Drives the pods of one namespace; ``drive(request, root)`` runs in ``pool``.

    ``dies`` chooses pods that start on DEAD_NODE, of which nothing is heard from then on.
    """

    upstream: str
    access: Access
    namespace: str
    pool: Executor
    drive: Drive
    root: str
    dies: Callable[[JsonObject], bool] = lambda _pod: False
    violations: list[str] = field(default_factory=list)
    driven: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _running: asyncio.Task[None] | None = None
    _stopping: bool = False
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        """Look for new pods five times a second until ``stop``."""
        self._running = asyncio.create_task(self._run())

    def check(self) -> None:
        """Raise what ended this kubelet, if anything did: nobody moves the pods any more."""
        if self._running is not None and self._running.done():
            self._running.result()

    async def stop(self) -> None:
        """Let drivers that are running finish; raises what ended this kubelet before, if anything did."""
        # Between two requests: one that is cut off leaves its socket to the garbage collector.
        self._stopping = True
        self._stirred.set()
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        async with aiohttp.ClientSession(self.upstream) as self._session, asyncio.TaskGroup() as drivers:
            while not self._stopping:
                await self._look(drivers)
                await _within(LOOK_SECONDS, self._stirred)

    def stir(self) -> None:
        """Look for new pods at once."""
        self._stirred.set()

    async def moves(self, seconds: float) -> None:
        """Wait until a pod has moved, at most ``seconds``."""
        await _within(seconds, self._moved)

    async def _look(self, drivers: asyncio.TaskGroup) -> None:
        pods = (await self._call("GET", f"{self._pods}?labelSelector={MANAGED}"))["items"]
        self._judge(pods)
        for pod in pods:
            if pod["metadata"]["uid"] not in self._known:
                self._known.add(pod["metadata"]["uid"])
                drivers.create_task(self._drive_pod(pod))

    def _judge(self, pods: list[JsonObject]) -> None:
        live: dict[str, str] = {}
        for pod in pods:
            if (
                pod["status"].get("phase") in TERMINAL
                or pod["spec"].get("nodeName") == DEAD_NODE
                or is_kept_driver(pod)
            ):
                continue
            owner = pod["metadata"]["labels"]["skipstone.dev/owner-uid"]
            if owner in live:
                self.violations.append(f"two live drivers: {live[owner]} and {pod['metadata']['name']}")
            live[owner] = pod["metadata"]["name"]

    async def _drive_pod(self, pod: JsonObject) -> None:
        name = pod["metadata"]["name"]
        if self.dies(pod):
            target = {"apiVersion": "v1", "kind": "Node", "name": DEAD_NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await self._call("POST", f"{self._pods}/{name}/binding", binding)
        start = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        await self._status(name, "Running", {"running": {"startedAt": start}})
        if self.dies(pod):
            return
        if is_kept_driver(pod):
            await self._call("PATCH", f"{self._pods}/{name}", {"metadata": {"annotations": {REPORT: READY_REPORT}}})
            return
        request = await self._request_of(pod)
        if not request:  # deleted, and the pod with it
            return
        if self._stopping:  # nobody waits for it, and whoever lends the pool may take it back
            return
        left = await asyncio.get_running_loop().run_in_executor(self.pool, self.drive, request, self.root)
        self.driven.append(name)
        if kept_driver_uid(pod) and await self._is_over(name):
            return  # a kept driver leaves what the operator has ended
        annotation = {"metadata": {"annotations": {REPORT: left.annotation}}}
        await self._call("PATCH", f"{self._pods}/{name}", annotation)
        end = {"exitCode": left.exit_code, "message": left.message, "startedAt": start, "finishedAt": start}
        phase = "Failed" if left.exit_code else "Succeeded"
        await self._status(
            name, phase, {"terminated": {**end, "reason": "Completed" if not left.exit_code else "Error"}}
        )

    async def _is_over(self, name: str) -> bool:
        found = await self._call("GET", f"{self._pods}/{name}")
        return not found or found["status"].get("phase") in TERMINAL

    async def _request_of(self, pod: JsonObject) -> str:
        """The request of a run: in its ConfigMap, or in the pod itself if a kept driver runs it."""
        if kept_driver_uid(pod):
            variables = {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}
            return str(json.loads(variables[FILES_VARIABLE])["request.json"])
        config = next(v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v)
        found = await self._call("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{config}")
        return str(found["data"]["request.json"]) if found else ""

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def _status(self, name: str, phase: str, state: JsonObject) -> None:
        container = {"name": "spark-kubernetes-driver", "image": "i", "imageID": "", "restartCount": 0, "state": state}
        status = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "containerStatuses": [{**container, "ready": phase == "Running"}],
        }
        await self._call("PATCH", f"{self._pods}/{name}/status", {"status": status})
        self._moved.set()

    async def _call(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        patch = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        headers = {**patch, **self.access.headers}
        async with self._session.request(method, path, json=body, headers=headers, ssl=self.access.tls) as answer:
            if answer.status == 404:
                return {}
            answer.raise_for_status()
            found: JsonObject = await answer.json()
            return found


def is_kept_driver(pod: JsonObject) -> bool:
    """Whether a pod is a kept driver, which is no run."""
    return bool(pod["metadata"]["labels"]["skipstone.dev/operation"] == "Keep")


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for the event, at most ``seconds``, and take it back."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    event.clear()

"""Reconcilers on a real API server: one namespace, a simulated kubelet, drivers that work on a lake in memory.

Every status that is written is compared with what the API server stored: a field that the CRD does not know is pruned
in silence, and the operator would write it again for ever.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from skipstone_core.contract.requests import JobRequest
from skipstone_operator.adapters.connection import connect
from skipstone_operator.adapters.kube import KubeClient
from skipstone_operator.ports import JsonObject, Key, KubeApi, Ports, RunDefaults, Timing, UpdateAnswer, Updated
from skipstone_operator.reconcilers import reconcile

from tests.cluster.controlplane import ControlPlane
from tests.kube.access import admin_access
from tests.kube.faults.kubelet import Driven, SimulatedKubelet
from tests.unit.lake_double import Lake, message_of
from tests.unit.operator_double import RecordingEvents, RecordingRuns

Obj = dict[str, Any]
KEY_KINDS = ("Warehouse", "Table", "SecondaryIndex", "MergeSchedule")
JOB_KINDS = ("LoadJob", "MergeJob")
DEADLINE = 300.0
ACCOUNT = "skipstone-spark"


class CheckedKube(KubeClient):
    """Counts writes and finds pruned fields."""

    writes: list[str]

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        answer = await super().replace_status(obj)
        self.writes.append(f"status {obj['kind']}")
        if isinstance(answer, Updated):
            assert answer.object["status"] == obj["status"], "the CRD pruned or changed a field of the status"
        return answer

    async def replace(self, obj: JsonObject) -> UpdateAnswer:
        self.writes.append(f"update {obj['kind']}")
        return await super().replace(obj)

    async def create(self, obj: JsonObject) -> Any:
        self.writes.append(f"create {obj['kind']}")
        return await super().create(obj)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> Any:
        self.writes.append(f"delete {kind}")
        return await super().delete(kind, namespace, name, uid=uid)


@dataclass
class UtcClock:
    """The machine's time, put forward by ``ahead``."""

    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class Site:
    """One namespace with reconcilers in progress."""

    namespace: str
    kube: CheckedKube
    kubelet: SimulatedKubelet
    lake: Lake = field(default_factory=Lake)
    events: RecordingEvents = field(default_factory=RecordingEvents)
    meter: RecordingRuns = field(default_factory=RecordingRuns)
    clock: UtcClock = field(default_factory=UtcClock)
    #: The kubelet starts every pod, if late: no driver is given up because the machine is busy.
    timing: Timing = field(default_factory=lambda: Timing(backoff_base=0.2, quota_poll=0.2, pending_deadline=36000))
    cached: KubeApi | None = None
    _due: dict[Key, float] = field(default_factory=dict)

    async def apply(self, *objects: Obj) -> None:
        for obj in objects:
            placed = {**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}}
            answer = await KubeClient.create(self.kube, placed)
            assert hasattr(answer, "object"), answer

    async def get(self, kind: str, name: str) -> Obj | None:
        return await self.kube.get(kind, self.namespace, name)

    async def status(self, kind: str, name: str) -> Obj:
        found = await self.get(kind, name)
        return dict((found or {}).get("status") or {})

    async def condition(self, kind: str, name: str, type_: str) -> tuple[str, str]:
        for found in (await self.status(kind, name)).get("conditions", ()):
            if found["type"] == type_:
                return found["status"], found["reason"]
        return "", ""

    async def edit(self, kind: str, name: str, change: Callable[[Obj], None]) -> None:
        """Change spec or metadata as a user does, again when somebody else was faster."""
        while True:
            found = await self.get(kind, name)
            assert found is not None
            change(found)
            if isinstance(await KubeClient.replace(self.kube, found), Updated):
                return

    async def remove(self, kind: str, name: str) -> None:
        found = await self.get(kind, name)
        assert found is not None
        await KubeClient.delete(self.kube, kind, self.namespace, name, uid=found["metadata"]["uid"])

    async def holds(self, kind: str, name: str, type_: str) -> None:
        await self.until(lambda: self._is(kind, name, type_, "True"), f"{kind} {name} {type_}")

    async def shows(self, kind: str, name: str, type_: str, reason: str) -> None:
        async def shown() -> bool:
            return (await self.condition(kind, name, type_))[1] == reason

        await self.until(shown, f"{kind} {name} {type_} {reason}")

    async def gone(self, kind: str, name: str) -> None:
        async def absent() -> bool:
            return await self.get(kind, name) is None

        await self.until(absent, f"{kind} {name} gone")

    async def _is(self, kind: str, name: str, type_: str, status: str) -> bool:
        return (await self.condition(kind, name, type_))[0] == status

    async def until(self, done: Callable[[], Awaitable[bool]], what: str, seconds: float = DEADLINE) -> None:
        """Reconcile round after round until ``done``."""
        end = time.monotonic() + seconds
        while not await done():
            self.kubelet.check()
            assert time.monotonic() < end, f"{what} was not reached in {seconds:.0f} s; {await self._told()}"
            written = len(self.kube.writes)
            await self.round()
            has_written = len(self.kube.writes) > written
            if has_written:
                self.kubelet.stir()
            # What others change, controllers and the test itself, is looked for four times a second.
            await self.kubelet.moves(0.05 if has_written else 0.25)

    async def round(self) -> None:
        """Every key once, and again as long as it wants to go on."""
        for key in await self._keys():
            for _ in range(50):
                answer = await reconcile(key, self._ports())
                if answer.after != 0:
                    break

    async def _keys(self) -> list[Key]:
        found: set[Key] = set()
        for kind in KEY_KINDS:
            found |= {Key(kind, self.namespace, o["metadata"]["name"]) for o in await self._list(kind)}
        for kind in JOB_KINDS:
            found |= {Key("Table", self.namespace, o["spec"]["tableRef"]["name"]) for o in await self._list(kind)}
        return sorted(found)

    async def _list(self, kind: str) -> tuple[Obj, ...]:
        return await self.kube.list(kind, self.namespace)

    def _ports(self) -> Ports:
        return Ports(
            kube=self.kube,
            clock=self.clock,
            events=self.events,
            meter=self.meter,
            defaults=RunDefaults(image="localhost/spark:none", service_account=ACCOUNT),
            namespaces=(self.namespace,),
            timing=self.timing,
            cached=self.cached,
        )

    async def _told(self) -> dict[str, Any]:
        objects = [o for kind in (*KEY_KINDS, *JOB_KINDS) for o in await self._list(kind)]
        return {f"{o['kind']}/{o['metadata']['name']}": (o.get("status") or {}).get("conditions") for o in objects}


Scenario = Callable[[Site], Awaitable[None]]


def run_scenario(plane: ControlPlane, namespace: str, scenario: Scenario) -> None:
    """Run ``scenario`` with a kubelet beside it. KUBECONFIG must name the API server."""
    asyncio.run(_run(plane, namespace, scenario))
    gc.collect()  # what was left open is told here, not in a later test


async def _run(plane: ControlPlane, namespace: str, scenario: Scenario) -> None:
    connection = await connect()
    lake = Lake()
    with ThreadPoolExecutor(1) as pool:
        kubelet = SimulatedKubelet(plane.url, admin_access(plane), namespace, pool, _Driver(lake), "")
        kube = CheckedKube(connection)
        object.__setattr__(kube, "writes", [])
        site = Site(namespace, kube, kubelet, lake)
        for name in (ACCOUNT, f"{ACCOUNT}-local"):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            assert (await connection.request("POST", path, body={"metadata": {"name": name}})).ok
        kubelet.start()
        try:
            await scenario(site)
        finally:
            try:
                await kubelet.stop()
            finally:
                await connection.close()
    assert kubelet.violations == []


@dataclass(frozen=True)
class _Driver:
    lake: Lake

    def __call__(self, request: str, _root: str) -> Driven:
        code, report, _ = self.lake.run(JobRequest.from_json(request))
        if report is None:
            return Driven(code, "killed", "{}")
        return Driven(code, message_of(report), report.to_json())

"""The operator as a process before a real API server, with simulated drivers: the second half of `make bench-operator`.

One operator works through the cases in turn; CPU and memory are those of its process, requests those of its user agent
in the API server's audit log.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skipstone_core.contract.requests import JobRequest
from skipstone_operator.adapters.connection import connect
from skipstone_operator.adapters.kube import KubeClient, path_of
from skipstone_operator.ports import Created, JsonObject
from skipstone_operator.runtime.resync import ResyncTiming

from tests.bench.audit import Audit
from tests.cluster.controlplane import ControlPlane
from tests.kube.access import admin_access
from tests.kube.faults.kubelet import Driven, SimulatedKubelet
from tests.ports import free_port
from tests.unit import objects
from tests.unit.lake_double import Lake, message_of

NAMESPACE = "control"
TABLES = 100
LAUNCHES = 300
#: Jobs are made a little faster than the goal asks for.
PACE = 0.95
REST_OBJECTS = 2000
START_OBJECTS = 5000
TIME = "2026-01-01T12:00:00Z"
PATIENCE = 600.0
Line = dict[str, Any]


@dataclass
class Operator:
    """The process and what it cost so far."""

    plane: ControlPlane
    log: Path
    metrics: int = field(default_factory=free_port)
    probe: int = field(default_factory=free_port)

    def start(self) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.plane.kubeconfig_admin),
            "POD_NAME": "bench",
            "SKIPSTONE_NAMESPACES": NAMESPACE,
            "SKIPSTONE_OPERATOR_NAMESPACE": NAMESPACE,
            "SKIPSTONE_SPARK_IMAGE": "localhost/spark:none",
            "SKIPSTONE_PROBE_PORT": str(self.probe),
            "SKIPSTONE_METRICS_PORT": str(self.metrics),
        }
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "skipstone_operator"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def metric(self, name: str) -> float:
        """The sum of one metric over its labels; 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return 0.0
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    def reconciles(self) -> float:
        return self.metric("skipstone_reconcile_seconds_count")


@dataclass
class Bench:
    """The operator, the API server beside it, and the simulated kubelet."""

    plane: ControlPlane
    kube: KubeClient
    operator: Operator
    audit: Audit
    made: int = 0

    async def create(self, obj: JsonObject) -> JsonObject:
        placed = {**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}}
        answer = await self.kube.create(placed)
        assert isinstance(answer, Created), answer
        self.made += 1
        return answer.object

    async def until(self, done: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not await done():
            assert time.monotonic() < end, f"{what} was not reached; see {self.operator.log}"
            await asyncio.sleep(0.1)

    async def with_condition(self, kind: str, type_: str, status: str | None = None) -> int:
        found = await self.kube.list(kind, NAMESPACE)
        return sum(_has(obj, type_, status) for obj in found)

    async def quiet(self, seconds: float = 5.0) -> None:
        """Wait until nothing was reconciled for so long."""
        last, since = -1.0, time.monotonic()
        while time.monotonic() - since < seconds:
            now = self.operator.reconciles()
            if now != last:
                last, since = now, time.monotonic()
            await asyncio.sleep(0.5)


async def measure(plane: ControlPlane, folder: Path, only: str | None = None) -> AsyncGenerator[Line, None]:
    """All cases, or one of ``CASES``, each as a line with its goal."""
    plane.kubectl("create", "namespace", NAMESPACE)
    async with _bench(plane, folder) as bench:
        bench.operator.start()
        try:
            await _prepare(bench)
            for name in CASES if only is None else (only,):
                yield await CASES[name](bench)
        finally:
            bench.operator.stop()
        if only is not None:
            return
        await _fill(bench, START_OBJECTS)
        try:
            yield await _start(bench)
        finally:
            bench.operator.stop()


@asynccontextmanager
async def _bench(plane: ControlPlane, folder: Path) -> AsyncIterator[Bench]:
    connection = await connect()
    connection.client.user_agent = "bench"
    lake = Lake()

    def drive(request: str, _root: str) -> Driven:
        code, report, _ = lake.run(JobRequest.from_json(request))
        assert report is not None
        return Driven(code, message_of(report), report.to_json())

    with ThreadPoolExecutor(1) as pool:
        kubelet = SimulatedKubelet(plane.url, admin_access(plane), NAMESPACE, pool, drive, "")
        kubelet.start()
        try:
            yield Bench(plane, KubeClient(connection), Operator(plane, folder / "operator.log"), Audit(plane.audit_log))
        finally:
            await kubelet.stop()
            await connection.close()
    assert kubelet.violations == []


async def _prepare(bench: Bench) -> None:
    for name in ("skipstone-spark", "skipstone-spark-local"):
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        assert (await bench.kube.connection.request("POST", path, body={"metadata": {"name": name}})).ok
    claim = objects.claim()
    claim["spec"] |= {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    await bench.create(claim)
    await bench.create(objects.warehouse(maxConcurrentRuns=1000))
    for number in range(TABLES):
        identifier = {"namespace": "air", "name": f"t{number}"}
        await bench.create(objects.table(f"t{number}", identifier=identifier, refreshIntervalSeconds=0))

    async def ready() -> bool:
        return await bench.with_condition("Table", "Ready", "True") == TABLES

    await bench.until(ready, "Tables that are ready")
    await bench.quiet()


async def _launches(bench: Bench) -> Line:
    """LoadJobs at a steady pace over all Tables."""
    uids: dict[str, str] = {}
    cpu, asked, begun = bench.operator.cpu(), Counter(bench.audit.read().asked), time.monotonic()
    for number in range(LAUNCHES):
        await asyncio.sleep(max(0.0, begun + number * 60 / LAUNCHES * PACE - time.monotonic()))
        job = await bench.create(objects.load(f"run-{number}", tableRef={"name": f"t{number % TABLES}"}))
        uids[job["metadata"]["name"]] = job["metadata"]["uid"].partition("-")[0]

    async def launched() -> bool:
        return set(uids.values()) <= bench.audit.read().pods.keys()

    await bench.until(launched, "a pod for every job")
    made, seen = bench.audit.jobs, bench.audit.pods
    waits = sorted(seen[uid] - made[name] for name, uid in uids.items())
    span = max(seen[uid] for uid in uids.values()) - min(made[name] for name in uids)
    rate, p99 = LAUNCHES / span * 60, waits[int(len(waits) * 0.99) - 1]
    await bench.quiet()
    return {
        "case": "launches",
        "launches_per_minute": round(rate),
        "p50_s": round(statistics.median(waits), 2),
        "p99_s": round(p99, 2),
        "cpu_ms_per_launch": round(1000 * (bench.operator.cpu() - cpu) / LAUNCHES, 1),
        "requests_per_launch": round((bench.audit.read().asked - asked).total() / LAUNCHES, 1),
        "requests": dict((bench.audit.asked - asked).most_common()),
    }


async def _suspended(bench: Bench) -> Line:
    begun = time.monotonic()
    await _all(bench.create(_suspended_load(f"paused-{number}")) for number in range(200))
    made = time.monotonic() - begun

    async def told() -> bool:
        found = await bench.kube.list("LoadJob", NAMESPACE, fields={"spec.tableRef.name": "t0"})
        return sum(_has(o, "Progressing", None) for o in found if o["metadata"]["name"].startswith("paused")) == 200

    await bench.until(told, "a condition on every job")
    seconds = time.monotonic() - begun
    await bench.quiet()
    return {
        "case": "200 jobs of one Table",
        "created_s": round(made, 1),
        "seconds": round(seconds, 1),
    }


def _suspended_load(name: str) -> JsonObject:
    return objects.load(name, tableRef={"name": "t0"}, suspend=True)


async def _invalid(bench: Bench) -> Line:
    """A Table that the schema lets pass and the operator refuses, beside 200 suspended jobs."""
    columns = [{"name": "id", "type": "long"}, {"name": "ID", "type": "long"}]
    begun = time.monotonic()
    await bench.create(objects.table("twins", identifier={"namespace": "air", "name": "twins"}, columns=columns))

    async def told() -> bool:
        found = await bench.kube.get("Table", NAMESPACE, "twins")
        return found is not None and _has(found, "Ready", "False")

    await bench.until(told, "what is wrong")
    seconds = time.monotonic() - begun
    return {"case": "invalid manifest", "seconds": round(seconds, 2)}


async def _at_rest(bench: Bench) -> Line:
    """One interval of the resync, with everything done."""
    await _fill(bench, REST_OBJECTS)
    window = ResyncTiming().interval
    await asyncio.sleep(45)
    await bench.quiet()
    cpu, requests, begun = bench.operator.cpu(), bench.audit.read().requests, time.monotonic()
    passes = bench.operator.reconciles()
    await asyncio.sleep(window)
    minutes = (time.monotonic() - begun) / 60
    share = (bench.operator.cpu() - cpu) / (minutes * 60)
    rate = (bench.audit.read().requests - requests) / minutes
    return {
        "case": "at rest",
        "objects": bench.made,
        "requests_per_minute": round(rate, 1),
        "passes_per_minute": round((bench.operator.reconciles() - passes) / minutes),
        "cpu_percent": round(100 * share, 2),
    }


#: What the running operator is measured in, in this order.
CASES: dict[str, Callable[[Bench], Awaitable[Line]]] = {
    "launches": _launches,
    "jobs": _suspended,
    "invalid": _invalid,
    "rest": _at_rest,
}


async def _start(bench: Bench) -> Line:
    """From the start of the process to the end of the first pass over every key."""
    begun = time.monotonic()
    bench.operator.start()
    tables = TABLES + 2

    async def settled() -> bool:
        return bench.operator.reconciles() >= tables and bench.operator.metric("skipstone_queue_depth") == 0

    await bench.until(settled, "the first pass over every key")
    seconds = time.monotonic() - begun
    await asyncio.sleep(40)
    peak = bench.operator.peak_mib()
    return {
        "case": "start",
        "objects": bench.made,
        "seconds": round(seconds, 1),
        "peak_mib": round(peak),
    }


async def _fill(bench: Bench, total: int) -> None:
    """Finished jobs over all Tables, until there are ``total`` objects."""
    first = bench.made
    await _all(_finished(bench, number) for number in range(first, total))


def finished_status(number: int) -> JsonObject:
    """The status of a load that is complete."""
    done = {"reason": "Committed", "message": "", "lastTransitionTime": TIME, "observedGeneration": 1}
    conditions = [
        {**done, "type": "Complete", "status": "True"},
        {**done, "type": "Failed", "status": "False"},
        {**done, "type": "Progressing", "status": "False", "reason": "Idle"},
    ]
    last = {"id": f"l{number}", "kind": "Load", "result": "Succeeded", "reason": "Committed", "message": "m" * 200}
    ended = {"conditions": conditions, "observedGeneration": 1, "completionTime": TIME}
    return {**ended, "attempts": 1, "lastRun": last, "rowsLoaded": 10**6}


async def _finished(bench: Bench, number: int) -> None:
    """A job that is finished when the operator sees it first: suspended, then written as an old release left it."""
    job = await bench.create(objects.load(f"done-{number}", tableRef={"name": f"t{number % TABLES}"}, suspend=True))
    path = path_of("LoadJob", NAMESPACE, job["metadata"]["name"], "status")
    merge = "application/merge-patch+json"
    answer = await bench.kube.connection.request(
        "PATCH", path, body={"status": finished_status(number)}, headers={"Content-Type": merge}
    )
    assert answer.ok, answer


def _has(obj: Mapping[str, Any], type_: str, status: str | None) -> bool:
    conditions = (obj.get("status") or {}).get("conditions", ())
    return any(each["type"] == type_ and status in (None, each["status"]) for each in conditions)


async def _all(calls: Iterable[Any]) -> None:
    room = asyncio.Semaphore(16)

    async def run(call: Any) -> None:
        async with room:
            await call

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(run(call))

"""What a pass of the operator costs beside many finished jobs: `make bench-operator`.

Starts a kube-apiserver, stores Tables and finished LoadJobs, and reconciles one quiet Table again and again; then what
a minute at rest asks for: one LIST of everything and a pass over every Table. ``selected`` is the operator as it is;
``listed`` reads whole namespaces and leaves out what does not fit, as a client without selectable fields has to.
``control`` then measures the operator as a process against its goals. Writes build/bench/operator.jsonl.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from skipstone_operator.adapters.clock import SystemClock
from skipstone_operator.adapters.connection import Answer, Connection, connect
from skipstone_operator.adapters.kube import KubeClient
from skipstone_operator.ports import JsonObject, Key, Ports, Requeue
from skipstone_operator.reconcilers import reconcile
from skipstone_operator.resources.kinds import KINDS

from tests.bench.control import CASES, finished_status, measure
from tests.bench.results import FOLDER, keep, show_goals
from tests.cluster.controlplane import ControlPlane, control_plane
from tests.unit import objects
from tests.unit.operator_double import DEFAULTS, RecordingEvents, RecordingRuns

ROOT = Path(__file__).parents[2]
RESULTS = FOLDER / "operator.jsonl"
NAMESPACE = "lake"
AT_ONCE = 16


@dataclass
class CountingConnection(Connection):
    """Counts requests and the bytes of their answers."""

    requests: int = 0
    received: int = 0

    async def request(self, method: str, path: str, **more: Any) -> Answer:
        answer = await super().request(method, path, **more)
        self.requests += 1
        self.received += len(json.dumps(answer.body, separators=(",", ":")))
        return answer


class ListingClient(KubeClient):
    """Selects by fields only after everything was read."""

    async def list(self, kind: str, namespace: str, **selectors: Any) -> tuple[JsonObject, ...]:
        fields: Mapping[str, str] = selectors.get("fields") or {}
        if kind not in KINDS or not fields:
            return await super().list(kind, namespace, **selectors)
        found = await super().list(kind, namespace)
        return tuple(obj for obj in found if all(_value(obj, path) == value for path, value in fields.items()))


def _value(obj: JsonObject, path: str) -> object:
    found: Any = obj
    for part in path.split("."):
        found = found[part]
    return found


def main() -> None:
    """Measure, and write each result as it comes."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="skb") as folder, control_plane(Path(folder) / "kube") as plane:
        _prepare(plane)
        os.environ["KUBECONFIG"] = str(plane.kubeconfig_admin)
        asyncio.run(_write(_measure_all(options, plane, Path(folder))))
    show_goals(RESULTS)


async def _measure_all(
    options: argparse.Namespace, plane: ControlPlane, folder: Path
) -> AsyncGenerator[dict[str, Any], None]:
    if options.only != "control" and options.case is None:
        for line in await _measure(options):
            yield line
    if options.only != "passes":
        async with aclosing(measure(plane, folder, options.case)) as lines:
            async for line in lines:
                yield line


async def _write(lines: AsyncGenerator[dict[str, Any], None]) -> None:
    print(f"{'case':>16} {'CPU ms':>9} {'wall ms':>9} {'requests':>9} {'KiB':>9} {'peak MiB':>9}")
    async with aclosing(lines):
        async for line in lines:
            print(_shown(keep(RESULTS, line)), flush=True)


def _shown(line: Mapping[str, Any]) -> str:
    if "cpu_ms" not in line:
        return json.dumps(line)
    times = f"{line['cpu_ms']:>9.1f} {line['wall_ms']:>9.1f} {line['requests']:>9.0f}"
    return f"{line['case']:>16} {times} {line['kib']:>9.0f} {line['peak_mib']:>9.0f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000, help="finished jobs of other Tables")
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", choices=("passes", "control"))
    parser.add_argument("--case", choices=tuple(CASES), help="the one case of control to measure")
    return parser.parse_args()


def _prepare(plane: ControlPlane) -> None:
    plane.kubectl("apply", "--server-side", "--filename", str(ROOT / "crds"))
    for kind in KINDS.values():
        plane.kubectl("wait", "--for=condition=Established", f"crd/{kind.plural}.skipstone.dev", "--timeout=60s")
    plane.kubectl("create", "namespace", NAMESPACE)
    for kind in KINDS.values():
        # kubectl asks again while the API server still prepares the storage of a new kind.
        plane.kubectl("get", f"{kind.plural}.skipstone.dev", "--namespace", NAMESPACE)


async def _measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    async with _connection() as connection:
        kube = KubeClient(connection)
        await _fill(kube, options)
        quiet = Key("Table", NAMESPACE, "t0")
        await _settle(kube, [quiet])
        lines = []
        for name, client in (("pass, selected", kube), ("pass, listed", ListingClient(connection))):
            ports = _ports(client)
            passes = [await _cost(connection, partial(reconcile, quiet, ports)) for _ in range(options.repeats)]
            lines.append({"case": name, **_median(passes), **_size(options)})
        keys = [Key("Table", NAMESPACE, f"t{number}") for number in range(options.tables)]
        await _settle(kube, keys)
        lines.append(
            {"case": "minute, selected", **await _cost(connection, lambda: _minute(kube, keys)), **_size(options)}
        )
        return lines


@asynccontextmanager
async def _connection() -> AsyncIterator[CountingConnection]:
    opened = await connect()
    try:
        yield CountingConnection(opened.client)
    finally:
        await opened.close()


def _size(options: argparse.Namespace) -> dict[str, int]:
    return {"jobs": options.jobs, "tables": options.tables}


def _ports(kube: KubeClient) -> Ports:
    return Ports(
        kube=kube,
        clock=SystemClock(),
        events=RecordingEvents(),
        meter=RecordingRuns(),
        defaults=DEFAULTS,
        namespaces=(NAMESPACE,),
    )


async def _fill(kube: KubeClient, options: argparse.Namespace) -> None:
    await kube.create(_placed(objects.warehouse()))
    tables = (_table(number) for number in range(options.tables))
    await _all(kube.create(table) for table in tables)
    # All of them belong to other Tables than the quiet one.
    await _all(_finished(kube, number, 1 + number % (options.tables - 1)) for number in range(options.jobs))


def _placed(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}}


def _table(number: int) -> JsonObject:
    return _placed(objects.table(f"t{number}", identifier={"namespace": "air", "name": f"t{number}"}))


async def _finished(kube: KubeClient, number: int, table: int) -> None:
    answer: Any = await kube.create(_placed(objects.load(f"l{number}", tableRef={"name": f"t{table}"})))
    await kube.replace_status({**answer.object, "status": finished_status(number)})


async def _settle(kube: KubeClient, keys: Iterable[Key]) -> None:
    ports = _ports(kube)

    async def settle(key: Key) -> None:
        while (await reconcile(key, ports)).after == 0.0:
            pass

    await _all(settle(key) for key in keys)


async def _minute(kube: KubeClient, keys: Iterable[Key]) -> None:
    for kind in (*KINDS, "Pod"):
        await kube.list(kind, NAMESPACE)
    ports = _ports(kube)

    async def once(key: Key) -> None:
        await reconcile(key, ports)

    await _all(once(key) for key in keys)


async def _all(calls: Iterable[Awaitable[Any]]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def run(call: Awaitable[Any]) -> None:
        async with room:
            await call

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(run(call))


async def _cost(connection: CountingConnection, work: Callable[[], Awaitable[Requeue | None]]) -> dict[str, float]:
    requests, received = connection.requests, connection.received
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return {
        "cpu_ms": 1000 * (time.process_time() - cpu),
        "wall_ms": 1000 * (time.perf_counter() - wall),
        "requests": connection.requests - requests,
        "kib": (connection.received - received) / 1024,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _median(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


if __name__ == "__main__":
    main()

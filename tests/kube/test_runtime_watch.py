"""A watch that goes deaf or breaks: changes no longer arrive, and what vanished meanwhile no event tells."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from kubernetes import client

from tests.cluster.controlplane import ControlPlane
from tests.kube.access import admin_access
from tests.kube.faults.proxy import HOP_HEADERS, FaultProxy
from tests.ports import free_port
from tests.unit import objects

#: Its Lease outlasts a machine with more to do than it can, and so does its trust in the watch as long as is asked for.
HASTY = """
import functools, os, sys
import skipstone_operator.__main__ as program
from skipstone_operator.runtime.lease import LeaseTiming
from skipstone_operator.runtime.resync import ResyncTiming
program.Lease = functools.partial(program.Lease, timing=LeaseTiming(give_up=600.0))
sys.exit(program.main(os.environ, ResyncTiming(interval=4.0, patience=2.0, tolerated_rounds=int(sys.argv[1]))))
"""
DEADLINE = 300.0


@dataclass
class DeafeningProxy(FaultProxy):
    """Forwards everything; once ``deaf``, only the signs of life of a watch; while ``broken``, no watch at all."""

    deaf: bool = False
    broken: bool = False
    tried_again: asyncio.Event = field(default_factory=asyncio.Event)

    async def _answer(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        if "watch" not in request.query:
            return await super()._answer(request, answer)
        if self.broken:
            self.tried_again.set()
            gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
            return web.json_response({"type": "ERROR", "object": gone})
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_HEADERS}
        response = web.StreamResponse(status=answer.status, headers=headers)
        with suppress(ConnectionResetError, aiohttp.ClientConnectionError):
            await response.prepare(request)
            async for line in answer.content:
                if self.broken:
                    break
                if not self.deaf or b'"BOOKMARK"' in line:
                    await response.write(line)
            await response.write_eof()
        return response


class Bench:
    """An operator with a hasty resync that sees the API server through the proxy."""

    def __init__(self, plane: ControlPlane, api: client.CustomObjectsApi, namespace: str, folder: Path) -> None:
        self.api, self.namespace, self.folder = api, namespace, folder
        self.proxy = DeafeningProxy(plane.url, admin_access(plane))
        self.log = folder / "operator.log"

    def start(self, tolerated_rounds: int = 1000) -> subprocess.Popen[bytes]:
        """An operator that ends after more rounds in a row in which the watch was late."""
        config = self.folder / "kubeconfig"
        cluster, user = {"server": f"http://127.0.0.1:{self.proxy.port}"}, {"token": "none"}
        content = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        config.write_text(yaml.safe_dump(content))
        environment = os.environ | {
            "KUBECONFIG": str(config),
            "POD_NAME": "operator-0",
            "SKIPSTONE_NAMESPACES": self.namespace,
            "SKIPSTONE_OPERATOR_NAMESPACE": self.namespace,
            "SKIPSTONE_SPARK_IMAGE": "skipstone/spark:test",
            "SKIPSTONE_PROBE_PORT": str(free_port()),
            "SKIPSTONE_METRICS_PORT": str(free_port()),
        }
        with self.log.open("wb") as log:
            command = [sys.executable, "-c", HASTY, str(tolerated_rounds)]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def create(self, name: str) -> None:
        body = {
            "apiVersion": "skipstone.dev/v1alpha1",
            "kind": "Warehouse",
            "metadata": {"name": name},
            "spec": {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "missing"}}},
        }
        self.api.create_namespaced_custom_object("skipstone.dev", "v1alpha1", self.namespace, "warehouses", body)

    def create_table(self) -> None:
        body = objects.table(warehouseRef={"name": "main"})
        body["metadata"]["namespace"] = self.namespace
        self.api.create_namespaced_custom_object("skipstone.dev", "v1alpha1", self.namespace, "tables", body)

    def delete(self, name: str) -> None:
        self.api.delete_namespaced_custom_object("skipstone.dev", "v1alpha1", self.namespace, "warehouses", name)

    def ready_reason(self) -> str:
        found: Any = self.api.get_namespaced_custom_object(
            "skipstone.dev", "v1alpha1", self.namespace, "tables", "flights"
        )
        conditions = found.get("status", {}).get("conditions", [])
        return next((each["reason"] for each in conditions if each["type"] == "Ready"), "")

    async def until_ready_says(self, reason: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while await asyncio.to_thread(self.ready_reason) != reason:
                await asyncio.sleep(0.1)

    def is_judged(self, name: str) -> bool:
        found: Any = self.api.get_namespaced_custom_object(
            "skipstone.dev", "v1alpha1", self.namespace, "warehouses", name
        )
        return bool(found.get("status", {}).get("conditions"))

    async def until_judged(self, name: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while not await asyncio.to_thread(self.is_judged, name):
                await asyncio.sleep(0.1)


@pytest.fixture
def bench(control_plane: ControlPlane, api: client.CustomObjectsApi, namespace: str, tmp_path: Path) -> Bench:
    return Bench(control_plane, api, namespace, tmp_path)


def test_a_deaf_watch_is_made_good_by_the_resync_and_then_ends_the_operator(bench: Bench) -> None:
    async def scenario() -> int:
        await bench.proxy.start()
        # Enough rounds for a busy machine to judge what a round brought before the last of them is over.
        operator = bench.start(tolerated_rounds=4)
        try:
            await asyncio.to_thread(bench.create, "before")
            await bench.until_judged("before")
            bench.proxy.deaf = True
            await asyncio.to_thread(bench.create, "after")
            await bench.until_judged("after")
            return await asyncio.to_thread(operator.wait, DEADLINE)
        finally:
            operator.kill()
            operator.wait()
            await bench.proxy.stop()

    assert asyncio.run(scenario()) == 1
    assert "ending: the watch delivered no change of" in bench.log.read_text().splitlines()[-1]


def test_a_warehouse_that_vanishes_while_the_watch_is_deaf_is_missed_by_its_table(bench: Bench) -> None:
    async def scenario() -> None:
        await bench.proxy.start()
        operator = bench.start()
        try:
            await asyncio.to_thread(bench.create, "main")
            await asyncio.to_thread(bench.create_table)
            await bench.until_ready_says("WarehouseNotReady")
            bench.proxy.deaf = True
            await asyncio.to_thread(bench.delete, "main")
            await bench.until_ready_says("WarehouseNotFound")
        finally:
            operator.kill()
            operator.wait()
            await bench.proxy.stop()

    asyncio.run(scenario())


def test_after_a_watch_that_broke_what_changed_meanwhile_is_told(bench: Bench) -> None:
    async def scenario() -> None:
        await bench.proxy.start()
        operator = bench.start()
        try:
            await asyncio.to_thread(bench.create, "before")
            await bench.until_judged("before")
            bench.proxy.broken = True
            await asyncio.to_thread(bench.create, "between")
            await bench.proxy.tried_again.wait()
            bench.proxy.broken = False
            await bench.until_judged("between")
            await asyncio.to_thread(bench.create, "after")
            await bench.until_judged("after")
            assert operator.poll() is None, bench.log.read_text()
        finally:
            operator.kill()
            operator.wait()
            await bench.proxy.stop()

    asyncio.run(scenario())

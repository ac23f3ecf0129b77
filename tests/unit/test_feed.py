"""What the watch and LISTs tell may arrive in any order: what is newer counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from skipstone_operator.adapters.cached import new_cache
from skipstone_operator.adapters.connection import Connection
from skipstone_operator.adapters.kube import KubeClient, Snapshot
from skipstone_operator.feed import Feed
from skipstone_operator.ports import Key
from skipstone_operator.routing import Router
from skipstone_operator.runtime.resync import Deliveries

from tests.unit.runtime_doubles import VirtualTime

OLD, NEW = Key("Table", "lake", "old"), Key("Table", "lake", "new")


class Meter:
    """Which indexes are measured now."""

    def __init__(self) -> None:
        self.lags: dict[str, int] = {}

    def index_lag(self, namespace: str, name: str, segments: int) -> None:
        self.lags[name] = segments

    def index_gone(self, namespace: str, name: str) -> None:
        del self.lags[name]


@dataclass
class SlowServer:
    """Answers a LIST with what there was when it was asked; what was asked before the job was there comes last."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    version: int = 5

    async def snapshot(self, kind: str, _namespace: str, **_more: Any) -> Snapshot:
        found = tuple(self.jobs) if kind == "LoadJob" else ()
        answer = Snapshot({"metadata": {"resourceVersion": str(self.version)}}, found)
        if kind == "LoadJob" and not found:
            for _ in range(100):
                await asyncio.sleep(0)
        return answer


class Bench:
    """A feed whose cache was filled by a LIST that found nothing."""

    def __init__(self, server: Any = None) -> None:
        self.woken: list[Key] = []
        self.meter = Meter()
        cache = new_cache()
        for kind in ("LoadJob", "SecondaryIndex", "Table", "Pod"):
            cache.shard(kind, "lake").replace([], 1)
        self.feed = Feed(
            kube=server or KubeClient(cast(Connection, None)),
            namespaces=("lake",),
            cache=cache,
            router=Router(),
            deliveries=Deliveries(VirtualTime().time),
            meter=self.meter,
            put=self.woken.append,
        )


def child(kind: str, uid: str, version: int, table: str) -> dict[str, Any]:
    metadata = {"namespace": "lake", "name": "jan", "uid": uid, "resourceVersion": str(version)}
    return {
        "kind": kind,
        "metadata": metadata,
        "spec": {"tableRef": {"name": table}},
        "status": {"segments": {"missing": version}},
    }


def pod_of_job(version: int) -> dict[str, Any]:
    owner = {"kind": "LoadJob", "name": "jan", "uid": "u2", "controller": True}
    metadata = {"namespace": "lake", "name": "p", "resourceVersion": str(version), "ownerReferences": [owner]}
    return {"kind": "Pod", "metadata": metadata}


@pytest.mark.parametrize("late", ["removed", "changed"])
def test_late_news_of_a_job_that_was_created_again_leave_the_new_one_to_its_table(late: str) -> None:
    bench = Bench()
    bench.feed.changed(child("LoadJob", "u1", 10, "old"))
    bench.feed.changed(child("LoadJob", "u2", 13, "new"))
    if late == "removed":
        bench.feed.removed(child("LoadJob", "u1", 12, "old"))
    else:
        bench.feed.changed(child("LoadJob", "u1", 11, "old"))
    bench.woken.clear()
    bench.feed.changed(pod_of_job(14))
    assert bench.woken == [NEW]


def test_late_news_of_an_index_that_was_created_again_leave_the_new_one_measured() -> None:
    bench = Bench()
    bench.feed.changed(child("SecondaryIndex", "u1", 10, "old"))
    bench.feed.changed(child("SecondaryIndex", "u2", 13, "new"))
    bench.feed.changed(child("SecondaryIndex", "u1", 11, "old"))
    bench.feed.removed(child("SecondaryIndex", "u1", 12, "old"))
    assert bench.meter.lags == {"jan": 13}
    bench.feed.removed(child("SecondaryIndex", "u2", 14, "new"))
    assert bench.meter.lags == {}


def test_the_table_of_the_old_object_is_told_when_its_successor_belongs_to_another() -> None:
    bench = Bench()
    bench.feed.changed(child("LoadJob", "u1", 10, "old"))
    bench.woken.clear()
    bench.feed.changed(child("LoadJob", "u2", 13, "new"))
    assert set(bench.woken) == {OLD, NEW}


def test_two_lists_at_once_leave_what_the_newer_one_found() -> None:
    server = SlowServer()
    bench = Bench(server)

    async def scenario() -> None:
        first = asyncio.create_task(bench.feed.list_all())
        for _ in range(10):
            await asyncio.sleep(0)
        job = child("LoadJob", "u1", 10, "new")
        server.jobs, server.version = [job], 10
        bench.feed.changed(job)
        await asyncio.gather(first, bench.feed.list_all())

    asyncio.run(scenario())
    shard = bench.feed.cache.readable("LoadJob", "lake")
    assert shard is not None
    assert shard.get("jan") is not None

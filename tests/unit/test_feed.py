"""What the watch and LISTs tell may arrive in any order: what is newer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from skipstone_core.contract.requests import RunKind
from skipstone_operator.adapters.cached import CACHED_KINDS, new_cache
from skipstone_operator.adapters.connection import Connection
from skipstone_operator.adapters.kube import KubeClient, Listing, Snapshot
from skipstone_operator.feed import MAX_SINGLE_READS, Feed
from skipstone_operator.manifests import build_run
from skipstone_operator.manifests.planning import build_server
from skipstone_operator.ports import Key
from skipstone_operator.routing import Router
from skipstone_operator.runtime.resync import Deliveries

from tests.unit.manifest_cases import planning_server, run_manifest
from tests.unit.runtime_doubles import VirtualTime

OLD, NEW = Key("Table", "lake", "old"), Key("Table", "lake", "new")


class Meter:
    """What is measured now: versions by kind and name."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], str] = {}

    def seen(self, obj: Mapping[str, Any]) -> None:
        self.versions[obj["kind"], obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]

    def gone(self, identity: Key) -> None:
        self.versions.pop((identity.kind, identity.name), None)


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

    async def listing(self, kind: str, namespace: str, **_more: Any) -> Listing:
        found = await self.snapshot(kind, namespace)
        return Listing(found.head, {obj["metadata"]["name"]: version_in(obj) for obj in found.objects})


@dataclass
class CountingServer:
    """Objects of one kind, and what was asked of them. ``stopped`` are gone by the time they are read."""

    kind: str
    version: str
    objects: dict[str, dict[str, Any]]
    stopped: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)

    async def get(self, kind: str, _namespace: str, name: str) -> dict[str, Any] | None:
        self.asked.append(f"GET {name}")
        return None if name in self.stopped else self.objects[name]

    async def snapshot(self, kind: str, _namespace: str, **_more: Any) -> Snapshot:
        self.asked.extend(["LIST"] if kind == self.kind else [])
        found = tuple(self.objects.values()) if kind == self.kind else ()
        return Snapshot({"metadata": {"resourceVersion": self.version}}, found)

    async def listing(self, kind: str, _namespace: str, **_more: Any) -> Listing:
        self.asked.extend(["names"] if kind == self.kind else [])
        found = self.objects if kind == self.kind else {}
        versions = {name: version_in(obj) for name, obj in found.items()}
        return Listing({"metadata": {"resourceVersion": self.version}}, versions)


class Bench:
    """A feed whose cache was filled by a LIST that found nothing."""

    def __init__(self, server: Any = None) -> None:
        self.woken: list[Key] = []
        self.meter = Meter()
        cache = new_cache()
        for kind in CACHED_KINDS:
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

    def held(self, kind: str) -> dict[str, str] | None:
        """The versions in the cache; None while it is not read."""
        shard = self.feed.cache.readable(kind, "lake")
        return None if shard is None else {each["metadata"]["name"]: version_in(each) for each in shard.select([])}


def version_in(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


def child(kind: str, uid: str, version: int, table: str, name: str = "jan") -> dict[str, Any]:
    metadata = {"namespace": "lake", "name": name, "uid": uid, "resourceVersion": str(version)}
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
    assert bench.meter.versions == {("SecondaryIndex", "jan"): "13"}
    bench.feed.removed(child("SecondaryIndex", "u2", 14, "new"))
    assert bench.meter.versions == {}


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


def jobs(*versions: int) -> dict[str, dict[str, Any]]:
    """Jobs ``j0``, ``j1`` and so on at these versions."""
    named = {f"j{number}": version for number, version in enumerate(versions)}
    return {name: child("LoadJob", "u", version, "t", name) for name, version in named.items()}


def replaced(server: CountingServer, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(server, name, value)


MANY = range(20, 20 + MAX_SINGLE_READS + 1)
RELISTS: dict[str, tuple[Callable[[CountingServer], None], list[str], dict[str, str]]] = {
    "nothing changed": (lambda _: None, ["names"], {"j0": "11", "j1": "12"}),
    "one changed, one vanished, one is new": (
        lambda server: replaced(server, version="30", objects={"j1": jobs(11, 21)["j1"], "j2": jobs(0, 0, 22)["j2"]}),
        ["names", "GET j1", "GET j2"],
        {"j1": "21", "j2": "22"},
    ),
    "one changed, and is gone when it is read": (
        lambda server: replaced(server, version="30", objects=jobs(21, 12), stopped=frozenset({"j0"})),
        ["names", "GET j0"],
        {"j1": "12"},
    ),
    "many changed": (
        lambda server: replaced(server, version="90", objects=jobs(*MANY)),
        ["names", "LIST"],
        {f"j{number}": str(version) for number, version in enumerate(MANY)},
    ),
    "the server went back": (
        lambda server: replaced(server, version="10", objects=jobs(9)),
        ["names", "LIST"],
        {"j0": "9"},
    ),
}


@pytest.mark.parametrize("case", RELISTS)
def test_a_filled_cache_is_compared_with_names_and_reads_what_it_lacks(case: str) -> None:
    change, asked, held = RELISTS[case]
    server = CountingServer("LoadJob", "20", jobs(11, 12))
    bench = Bench(server)
    bench.feed.cache.forget("LoadJob", "lake")

    async def scenario() -> tuple[dict[Key, str], dict[Key, str]]:
        first = await bench.feed.list_all()
        change(server)
        return dict(first), dict(await bench.feed.list_all())

    first, second = asyncio.run(scenario())
    assert server.asked == ["LIST", *asked], "the first LIST brings whole objects"
    assert {key.name: version for key, version in first.items()} == {"j0": "11", "j1": "12"}
    assert {key.name: version for key, version in second.items()} == held == bench.held("LoadJob")
    bench.woken.clear()
    bench.feed.enqueue(second)
    assert set(bench.woken) == {Key("Table", "lake", "t")}, "whom a job belongs to is known without the watch"


def test_a_vanished_job_wakes_its_table() -> None:
    server = CountingServer("LoadJob", "20", jobs(11))
    bench = Bench(server)
    bench.feed.cache.forget("LoadJob", "lake")
    asyncio.run(bench.feed.list_all())
    replaced(server, version="30", objects={})
    asyncio.run(bench.feed.list_all())
    assert bench.woken == [Key("Table", "lake", "t")]


def test_versions_without_an_order_leave_passes_to_the_api_server() -> None:
    server = CountingServer("LoadJob", "20", jobs(11))
    bench = Bench(server)
    server.version = "b-30"
    found = asyncio.run(bench.feed.list_all())
    assert [key.name for key in found] == ["j0"]
    assert bench.held("LoadJob") is None


def test_a_pod_that_loses_our_labels_after_the_list_of_names_is_gone() -> None:
    pod = pod_of_job(11)
    server = CountingServer("Pod", "20", {"p": pod})
    bench = Bench(server)
    found = asyncio.run(bench.feed.list_all())
    assert not found
    assert server.asked == ["names", "GET p"]
    assert bench.held("Pod") == {}


def test_what_a_list_finds_is_measured_until_a_list_lacks_it() -> None:
    server = CountingServer("LoadJob", "20", {"jan": child("LoadJob", "u1", 11, "old")})
    bench = Bench(server)
    asyncio.run(bench.feed.list_all())
    assert bench.meter.versions == {("LoadJob", "jan"): "11"}
    server.objects, server.version = {"jan": child("LoadJob", "u1", 21, "old")}, "22"
    asyncio.run(bench.feed.list_all())
    assert bench.meter.versions == {("LoadJob", "jan"): "21"}
    server.objects, server.version = {}, "30"
    asyncio.run(bench.feed.list_all())
    assert bench.meter.versions == {}


@pytest.mark.parametrize("news", ["changed", "removed", "moved"])
def test_a_whole_list_that_comes_late_takes_back_nothing_that_the_watch_told(news: str) -> None:
    old = child("SecondaryIndex", "u1", 10, "old")
    bench = Bench(late := LateServer(old))
    bench.feed.cache.forget("SecondaryIndex", "lake")

    async def scenario() -> None:
        listing = asyncio.create_task(bench.feed.list_all())
        await late.asked.wait()
        if news == "removed":
            bench.feed.changed(old)
            bench.feed.removed(child("SecondaryIndex", "u1", 13, "old"))
        else:
            bench.feed.changed(child("SecondaryIndex", "u2", 13, "old" if news == "changed" else "new"))
        late.answered.set()
        await listing

    asyncio.run(scenario())
    assert bench.meter.versions == ({} if news == "removed" else {("SecondaryIndex", "jan"): "13"})


@dataclass
class LateServer:
    """Answers the LIST of one kind only when it may, with what there was when it was asked."""

    there: dict[str, Any]
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def snapshot(self, kind: str, _namespace: str, **_more: Any) -> Snapshot:
        if kind != self.there["kind"]:
            return Snapshot({"metadata": {"resourceVersion": "10"}}, ())
        self.asked.set()
        await self.answered.wait()
        return Snapshot({"metadata": {"resourceVersion": "10"}}, (self.there,))

    async def listing(self, kind: str, namespace: str, **_more: Any) -> Listing:
        found = await self.snapshot(kind, namespace)
        return Listing(found.head, {obj["metadata"]["name"]: version_in(obj) for obj in found.objects})


def test_a_server_object_that_somebody_deletes_wakes_its_warehouse_and_the_conf_map_of_a_run_wakes_nobody() -> None:
    server = planning_server("lake")
    warehouse = Key("Warehouse", "lake", server.owner.name)
    for made in build_server(server):
        bench, metadata = Bench(), {**made["metadata"], "uid": "u", "resourceVersion": "10"}
        obj = {**made, "metadata": metadata}
        bench.feed.changed(obj)
        bench.feed.removed({**obj, "metadata": {**metadata, "resourceVersion": "11"}})
        assert bench.woken == [warehouse, warehouse], made["kind"]
    bench = Bench()
    conf, _ = build_run(run_manifest(RunKind.CHECK, namespace="lake"))
    bench.feed.changed({**conf, "metadata": {**conf["metadata"], "uid": "u", "resourceVersion": "10"}})
    assert bench.woken == []

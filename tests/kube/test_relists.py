"""A LIST that only compares: what it transfers, and what it finds without any watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from skipstone_operator.adapters import kube as kube_adapter
from skipstone_operator.adapters.cached import CACHED_KINDS, CachedKube, RememberingKube
from skipstone_operator.adapters.connection import Answer, Connection, connect
from skipstone_operator.adapters.kube import KubeClient, path_of
from skipstone_operator.feed import Feed
from skipstone_operator.metrics import Metrics
from skipstone_operator.ports import Created, Key, Updated
from skipstone_operator.routing import KEY_KINDS, Router
from skipstone_operator.runtime.resync import Deliveries

from tests.cluster.controlplane import ControlPlane
from tests.unit import objects

T = TypeVar("T")


@dataclass(frozen=True)
class Heard:
    """One answer: of which kind it was and how long."""

    path: str
    kind: str
    length: int


@dataclass
class Recording(Connection):
    """Notes what was answered; tells that the next ``expired`` later pages of a LIST do not exist any more."""

    heard: list[Heard] = field(default_factory=list)
    expired: int = 0

    async def request(self, method: str, path: str, **more: Any) -> Answer:
        if self.expired and "continue" in (more.get("query") or {}):
            self.expired -= 1
            return Answer(410, {"reason": "Expired", "message": "The provided continue parameter is too old"})
        answer = await super().request(method, path, **more)
        self.heard.append(Heard(path, str(answer.body.get("kind")), len(json.dumps(answer.body))))
        return answer


@dataclass
class Deaf:
    """What an operator without any watch knows of a namespace."""

    connection: Recording
    namespace: str
    kube: KubeClient
    feed: Feed
    woken: list[Key]

    async def relist(self) -> tuple[Mapping[Key, str], list[Heard]]:
        """What a LIST of everything finds, and what was answered."""
        self.connection.heard.clear()
        return await self.feed.list_all(), list(self.connection.heard)

    async def make(self, name: str, **spec: Any) -> dict[str, Any]:
        job = objects.load(name, tableRef={"name": "flights"}, suspend=True, **spec)
        job["metadata"]["namespace"] = self.namespace
        answer = await self.kube.create(job)
        assert isinstance(answer, Created), answer
        return answer.object

    async def change(self, job: dict[str, Any]) -> None:
        assert isinstance(await self.kube.replace({**job, "spec": {**job["spec"], "suspend": False}}), Updated)

    async def known(self) -> dict[str, bool]:
        """The jobs that passes read, and whether they are suspended."""
        cached = CachedKube(RememberingKube(self.kube, self.feed.cache), self.feed.cache)
        self.connection.heard.clear()
        found = await cached.list("LoadJob", self.namespace)
        assert not self.connection.heard, "the cache answers"
        return {each["metadata"]["name"]: each["spec"]["suspend"] for each in found}


@pytest.fixture(autouse=True)
def as_admin(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))


def deaf(namespace: str, work: Callable[[Deaf], Awaitable[T]]) -> T:
    async def scenario() -> T:
        connection = Recording((await connect()).client)
        kube, woken = KubeClient(connection), list[Key]()
        feed = Feed(
            kube=kube,
            namespaces=(namespace,),
            cache=RememberingKube(kube).cache,
            router=Router(),
            deliveries=Deliveries(asyncio.get_running_loop().time),
            meter=Metrics(KEY_KINDS),
            put=woken.append,
        )
        try:
            return await work(Deaf(connection, namespace, kube, feed, woken))
        finally:
            await connection.close()

    return asyncio.run(scenario())


def test_a_relist_transfers_metadata_and_takes_what_no_watch_told(namespace: str) -> None:
    async def work(operator: Deaf) -> None:
        jobs = [await operator.make(f"j{number}") for number in range(5)]
        _, first = await operator.relist()
        found, second = await operator.relist()
        assert len(second) == len(first) == len(CACHED_KINDS)
        assert {heard.kind for heard in second} == {"PartialObjectMetadataList"}
        path = path_of("LoadJob", namespace)
        whole, names = (next(heard for heard in round_ if heard.path == path) for round_ in (first, second))
        assert (whole.kind, names.length < whole.length) == ("LoadJobList", True)
        assert found == {
            **found,
            **{Key("LoadJob", namespace, job["metadata"]["name"]): job["metadata"]["resourceVersion"] for job in jobs},
        }

        await operator.change(jobs[0])
        await operator.kube.delete("LoadJob", namespace, "j1", uid=jobs[1]["metadata"]["uid"])
        await operator.make("new")
        operator.woken.clear()
        found, third = await operator.relist()
        assert await operator.known() == {"j0": False, "j2": True, "j3": True, "j4": True, "new": True}
        read = [heard.path for heard in third if heard.kind != "PartialObjectMetadataList"]
        assert read == [path_of("LoadJob", namespace, name) for name in ("j0", "new")]
        assert operator.woken == [Key("Table", namespace, "flights")], "the Table of the job that vanished"

    deaf(namespace, work)


def test_pages_that_do_not_exist_any_more_are_read_again_as_one(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_adapter, "PAGE", 2)

    async def work(operator: Deaf) -> None:
        for number in range(5):
            await operator.make(f"j{number}")
        paged = await operator.kube.listing("LoadJob", namespace)
        operator.connection.expired = 1
        assert (await operator.kube.listing("LoadJob", namespace)).versions == paged.versions
        operator.connection.expired = 1
        snapshot = await operator.kube.snapshot("LoadJob", namespace)
        assert operator.connection.expired == 0
        versions = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in snapshot.objects}
        assert versions == paged.versions
        assert len(versions) == 5

    deaf(namespace, work)

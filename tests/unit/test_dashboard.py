"""The dashboard over real HTTP: what it answers, from which objects, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest
from skipstone_operator.adapters.cached import new_cache
from skipstone_operator.dashboard import HEADERS, REUSE_SECONDS, Dashboard
from skipstone_operator.resources.kinds import KINDS
from skipstone_operator.runtime.cache import ObjectCache
from skipstone_operator.settings import BadSetting

from tests.unit.report_cases import NOW, sample
from tests.unit.report_pages import read_page

Obj = dict[str, Any]
NAMESPACES = ("lake", "ponds")


def filled(*objects: Obj, namespaces: tuple[str, ...] = NAMESPACES) -> ObjectCache:
    """A cache after one LIST of each kind of ours."""
    cache = new_cache()
    for namespace in namespaces:
        for kind in KINDS:
            mine = [obj for obj in objects if (obj["kind"], obj["metadata"]["namespace"]) == (kind, namespace)]
            cache.shard(kind, namespace).replace([versioned(obj) for obj in mine], 5)
    return cache


def versioned(obj: Obj, version: int = 3, **metadata: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version), **metadata}}


@dataclass
class Site:
    """A dashboard that is served on a port of this machine."""

    cache: ObjectCache = field(default_factory=filled)
    leads: bool = True
    now: datetime = NOW

    def visit(self, visit: Callable[[Visitor], Awaitable[None]]) -> None:
        asyncio.run(self._visit(visit))

    async def _visit(self, visit: Callable[[Visitor], Awaitable[None]]) -> None:
        dashboard = Dashboard(namespaces=NAMESPACES, cache=self.cache, leads=lambda: self.leads, now=lambda: self.now)
        port = await dashboard.serve(0, "127.0.0.1")
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                await visit(Visitor(session))
        finally:
            await dashboard.stop()


@dataclass
class Answer:
    status: int
    text: str
    headers: dict[str, str]


@dataclass
class Visitor:
    session: aiohttp.ClientSession

    async def ask(self, path: str, method: str = "GET") -> Answer:
        async with self.session.request(method, path, allow_redirects=False) as answer:
            return Answer(answer.status, await answer.text(), dict(answer.headers))


def elsewhere() -> list[Obj]:
    return [versioned(obj, namespace="ponds", name=f"pond-{obj['metadata']['name']}") for obj in sample()[:3]]


def test_the_whole_and_each_namespace_are_pages_of_their_own() -> None:
    async def visit(visitor: Visitor) -> None:
        whole, lake, ponds = [await visitor.ask(path) for path in ("/", "/namespaces/lake", "/namespaces/ponds")]
        assert {one.status for one in (whole, lake, ponds)} == {200}
        assert "2 namespaces" in whole.text and "lake/by-tail" in whole.text and "ponds/pond-main" in whole.text
        assert "lake/by-tail" in lake.text and "ponds" not in lake.text
        assert "lake/" not in ponds.text and "ponds/pond-main" in ponds.text
        assert read_page(whole.text).find("h1")[0].text == "Skipstone report"
        assert whole.headers["Content-Type"] == "text/html; charset=utf-8"
        assert HEADERS.items() <= whole.headers.items()
        assert whole.headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")

    Site(filled(*sample(), *elsewhere())).visit(visit)


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_it_can_only_be_read(method: str) -> None:
    async def visit(visitor: Visitor) -> None:
        for path in ("/", "/namespaces/lake"):
            answer = await visitor.ask(path, method)
            assert (answer.status, answer.headers["Allow"]) == (405, "GET")

    Site().visit(visit)


@pytest.mark.parametrize("path", ["/namespaces/secret", "/namespaces/", "/metrics", "/namespaces/lake/pods", "/..%2f"])
def test_nothing_else_is_there(path: str) -> None:
    async def visit(visitor: Visitor) -> None:
        answer = await visitor.ask(path)
        assert answer.status == 404 and "secret" not in answer.text

    Site().visit(visit)


def test_without_the_lease_it_says_so_whatever_it_knew_before() -> None:
    site = Site(filled(*sample()))

    async def visit(visitor: Visitor) -> None:
        assert (await visitor.ask("/")).status == 200
        site.leads = False
        answer = await visitor.ask("/")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert answer.text.startswith("Another replica of the operator holds the Lease")
        site.leads = True
        assert (await visitor.ask("/")).status == 200

    site.visit(visit)


def test_before_the_first_list_there_is_nothing_to_show() -> None:
    async def visit(visitor: Visitor) -> None:
        answer = await visitor.ask("/namespaces/lake")
        assert (answer.status, "has not listed" in answer.text) == (503, True)

    Site(new_cache()).visit(visit)


def test_a_namespace_that_may_not_be_listed_any_more_keeps_nobody_from_the_others() -> None:
    async def visit(visitor: Visitor) -> None:
        assert (await visitor.ask("/namespaces/ponds")).status == 503
        assert "lake/by-tail" in (await visitor.ask("/")).text

    Site(filled(*sample(), namespaces=("lake",))).visit(visit)


def test_a_page_is_made_again_after_a_while_only() -> None:
    site = Site(filled(*sample()))

    async def visit(visitor: Visitor) -> None:
        first = (await visitor.ask("/")).text
        added = {**sample()[0], "metadata": {"name": "brand-new", "namespace": "lake", "resourceVersion": "9"}}
        site.cache.shard("Warehouse", "lake").put(added)
        site.now += timedelta(seconds=REUSE_SECONDS - 1)
        assert (await visitor.ask("/")).text == first
        site.now += timedelta(seconds=1)
        assert "brand-new" in (await visitor.ask("/")).text

    site.visit(visit)


def test_many_at_once_get_the_same_page() -> None:
    async def visit(visitor: Visitor) -> None:
        answers = await asyncio.gather(*(visitor.ask("/") for _ in range(20)))
        assert {one.status for one in answers} == {200}
        assert len({one.text for one in answers}) == 1

    Site(filled(*sample())).visit(visit)


def test_a_port_in_use_is_named() -> None:
    async def twice() -> None:
        first = Dashboard(namespaces=NAMESPACES, cache=filled(), leads=lambda: True, now=lambda: NOW)
        second = Dashboard(namespaces=NAMESPACES, cache=filled(), leads=lambda: True, now=lambda: NOW)
        port = await first.serve(0, "127.0.0.1")
        try:
            with pytest.raises(BadSetting, match=f"SKIPSTONE_DASHBOARD_PORT: port {port} cannot be used"):
                await second.serve(port, "127.0.0.1")
        finally:
            await first.stop()

    asyncio.run(twice())

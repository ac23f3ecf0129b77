"""The report as a page over HTTP: read-only, from the cache of the operator that holds the Lease.

Wired by ``__main__`` when a port is set. Answers GET of ``/`` and of ``/namespaces/NAME`` and nothing else, asks the
API server for nothing, and shows no Secret: the cache holds none. It knows no users: the cluster says who may connect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus

from aiohttp import web
from skipstone_report import render_report
from skipstone_report.page import CONTENT_POLICY

from skipstone_operator.ports import JsonObject
from skipstone_operator.resources.kinds import KINDS
from skipstone_operator.runtime.cache import ObjectCache
from skipstone_operator.settings import BadSetting

#: How long a page that was made is given out again; however often it is asked for, it is made once in that time.
REUSE_SECONDS = 5.0
#: Pages that are kept.
MAX_PAGES = 4
#: How long requests in progress get to end when the operator stops.
STOP_SECONDS = 1.0
#: How long a connection without a request stays open.
IDLE_SECONDS = 15.0
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{CONTENT_POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "skipstone",
    "X-Content-Type-Options": "nosniff",
}


class Unready(Exception):
    """There is nothing to show now; the text says why."""


@dataclass(frozen=True)
class _Page:
    html: str
    made: datetime


@dataclass(kw_only=True)
class Dashboard:
    """The server. ``leads`` tells whether this operator holds the Lease: the cache of another one is not filled."""

    namespaces: tuple[str, ...]
    cache: ObjectCache
    leads: Callable[[], bool]
    now: Callable[[], datetime]
    _pages: dict[str, _Page] = field(default_factory=dict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runner: web.AppRunner | None = None

    async def serve(self, port: int, address: str = "0.0.0.0") -> int:
        """Serve until ``stop``; answers the port, which 0 leaves open. Raises BadSetting."""
        app = web.Application(client_max_size=1024)
        app.router.add_get("/", self._whole, allow_head=False)
        app.router.add_get("/namespaces/{name}", self._one, allow_head=False)
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=IDLE_SECONDS, shutdown_timeout=STOP_SECONDS, handle_signals=False
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, address, port).start()
        except OSError as error:
            await self.stop()
            raise BadSetting(
                f"SKIPSTONE_DASHBOARD_PORT: port {port} cannot be used: choose another ({error})"
            ) from error
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Serve no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _whole(self, _: web.Request) -> web.Response:
        return await self._answer("", self.namespaces)

    async def _one(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.namespaces:
            return _sentence(HTTPStatus.NOT_FOUND, "This operator does not watch a namespace of that name.")
        return await self._answer(name, (name,))

    async def _answer(self, name: str, namespaces: Sequence[str]) -> web.Response:
        try:
            html = await self._page(name, namespaces)
        except Unready as reason:
            return _sentence(HTTPStatus.SERVICE_UNAVAILABLE, str(reason))
        return web.Response(text=html, content_type="text/html", charset="utf-8", headers=HEADERS)

    async def _page(self, name: str, namespaces: Sequence[str]) -> str:
        async with self._making:
            if not self.leads():
                self._pages.clear()
                raise Unready("Another replica of the operator holds the Lease; ask again, and that one may answer.")
            kept, now = self._pages.pop(name, None), self.now()
            if kept is None or not 0 <= (now - kept.made).total_seconds() < REUSE_SECONDS:
                objects = self._read(namespaces)
                # On a thread: a large cluster takes a second or two, and reconciles must not wait for that.
                kept = _Page(await asyncio.to_thread(render_report, objects, now, _title(namespaces)), now)
            self._pages[name] = kept
            while len(self._pages) > MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            return kept.html

    def _read(self, namespaces: Sequence[str]) -> list[JsonObject]:
        """The objects of these namespaces; those that the operator may not list now are missing. Raises Unready."""
        shards = [self.cache.readable(kind, namespace) for namespace in namespaces for kind in KINDS]
        readable = [shard for shard in shards if shard is not None]
        if not readable:
            raise Unready("The operator has not listed the resources yet; ask again in a few seconds.")
        return [obj for shard in readable for obj in shard.select(())]


def _title(namespaces: Sequence[str]) -> str:
    return f"namespace {namespaces[0]}" if len(namespaces) == 1 else f"{len(namespaces)} namespaces"


def _sentence(status: HTTPStatus, text: str) -> web.Response:
    more = {"Retry-After": "5"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return web.Response(status=status, text=f"{text}\n", headers=HEADERS | more)

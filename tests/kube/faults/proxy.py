"""A plain HTTP proxy in front of the API server that can break the operator at its n-th write.

The operator under test talks to it without TLS or credentials; the proxy adds those of an administrator and, when
asked, impersonates the operator's service account so that its Role is what counts. Loopback only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import aiohttp
from aiohttp import web

from tests.kube.access import Access

WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HOP_HEADERS = frozenset({"host", "connection", "transfer-encoding", "content-length"})


class Moment(StrEnum):
    """When the operator dies, seen from one write."""

    BEFORE = "before"
    LOST = "response lost"
    AFTER = "after"


@dataclass
class Write:
    """One counted write."""

    method: str
    path: str


@dataclass
class FaultProxy:
    """Forwards everything; kills by calling ``kill`` at write number ``at`` (from 1) of those it counts.

    Writes of Leases and Events are not counted: nothing is decided by them.
    """

    upstream: str
    access: Access
    impersonate: str = ""
    kill: Callable[[], None] = lambda: None
    at: int = 0
    moment: Moment = Moment.BEFORE
    writes: list[Write] = field(default_factory=list)
    fired: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _asking: set[asyncio.Task[aiohttp.ClientResponse]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen on a free port of the loopback address."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._session = aiohttp.ClientSession(
            timeout=timeout,
            auto_decompress=False,
            skip_auto_headers=["Accept-Encoding"],
            # A killed operator leaves its watches behind: they end with their client, and may be many until then.
            connector=aiohttp.TCPConnector(limit=0),
        )
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections."""
        await self._runner.cleanup()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await self._session.close()

    def arm(self, at: int, moment: Moment, kill: Callable[[], None]) -> None:
        """Forget the writes so far and break at write number ``at`` (0: never)."""
        self.writes.clear()
        self.fired.clear()
        self.at, self.moment, self.kill = at, moment, kill

    def disarm(self) -> None:
        """Break no more, whatever comes."""
        self.at = 0

    def _counts(self, request: web.Request) -> bool:
        if request.method not in WRITING or "/leases" in request.path or "/events" in request.path:
            return False
        self.writes.append(Write(request.method, request.path))
        return len(self.writes) == self.at and not self.fired.is_set()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        breaks = self._counts(request)
        if breaks and self.moment is Moment.BEFORE:
            self._break()
            raise web.HTTPBadGateway
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_HEADERS | {"authorization"}}
        headers |= self.access.headers
        if self.impersonate:
            headers["Impersonate-User"] = self.impersonate
        body = await request.read()
        url = self.upstream + request.raw_path
        async with await self._ask(request.method, url, headers=headers, data=body or None) as answer:
            try:
                if breaks and self.moment is Moment.LOST:
                    await answer.read()
                    self._break()
                    raise web.HTTPBadGateway
                response = await self._answer(request, answer)
            finally:
                _cut(answer)
        if breaks:
            self._break()
        return response

    async def _ask(self, method: str, url: str, **more: Any) -> aiohttp.ClientResponse:
        """What the API server answers. A request that is cut off while it connects leaves its socket to the garbage
        collector: so it runs to its answer even when whoever asked is gone.
        """

        async def ask() -> aiohttp.ClientResponse:
            return await self._session.request(method, url, ssl=self.access.tls, **more)

        asking = asyncio.create_task(ask())
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(_drop)
            raise

    async def _answer(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_HEADERS}
        response = web.StreamResponse(status=answer.status, headers=headers)
        with suppress(ConnectionResetError, aiohttp.ClientConnectionError):
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        return response

    def _break(self) -> None:
        self.kill()
        self.fired.set()


def _drop(asked: asyncio.Task[aiohttp.ClientResponse]) -> None:
    if not asked.cancelled() and asked.exception() is None:
        _cut(asked.result())


def _cut(answer: aiohttp.ClientResponse) -> None:
    """End an answer that was not read to its end; a polite end of TLS might come after the end of the loop."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()

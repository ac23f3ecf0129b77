"""Sends on what this server does not answer itself, and streams what comes back.

Only what reads is sent on: a commit through a server that plans scans could lose what the protocol of plans leaves out.
Must not read answers.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from skipstone.serving.names import Route, Target
from skipstone.serving.protocol import require_reading
from skipstone.serving.transport.intake import read_body
from skipstone.serving.upstream.client import UpstreamClient, end_to_end

#: What is posted and changes no table: tokens for callers, reports of scans, signatures for requests to storage.
_POSTED: Final = frozenset({Route.TOKENS, Route.METRICS, Route.SIGN})
_POSTED_BYTES: Final = 1024 * 1024


class Forwarding:
    """Between callers and the catalog behind ``client``."""

    def __init__(self, client: UpstreamClient) -> None:
        self._client = client

    async def answer(self, request: Request, target: Target) -> Response:
        """Return the catalog's answer. Raises Refused: 406 for a request that would change something."""
        require_reading(request.method, target, _POSTED)
        content = await read_body(request, _POSTED_BYTES) if request.method == "POST" else None
        query = request.scope["query_string"].decode("latin-1")
        stack = AsyncExitStack()
        answer = await stack.enter_async_context(
            self._client.asked(request.method, with_query(target.path, query), end_to_end(request.headers.raw), content)
        )
        return _Streamed(answer, stack)


class _Streamed(StreamingResponse):
    """The catalog's answer as it comes. One that is cut ends the caller's connection: a part is never all of it."""

    def __init__(self, answer: httpx.Response, stack: AsyncExitStack) -> None:
        super().__init__(answer.aiter_raw(), answer.status_code)
        self._stack = stack
        self.raw_headers = end_to_end(answer.headers.raw, (b"date",))  # this server's own is told
        length = answer.headers.get("content-length", "")
        if length.isdigit():
            self.raw_headers.append((b"content-length", length.encode()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; whatever becomes of that, the connection to the catalog is given back."""
        async with self._stack:
            await super().__call__(scope, receive, send)


def with_query(path: str, query: str) -> str:
    """A target out of its parts."""
    return f"{path}?{query}" if query else path

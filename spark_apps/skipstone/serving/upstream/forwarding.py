"""Sends on what this server does not answer itself, and streams what comes back.

Only what reads is sent on: a commit through a server that plans scans could lose what the protocol of plans leaves out.
Must not read answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

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
        """What the catalog answers. Raises Refused: 406 for what would change something."""
        require_reading(request.method, target, _POSTED)
        content = await read_body(request, _POSTED_BYTES) if request.method == "POST" else None
        query = request.scope["query_string"].decode("latin-1")
        stack = AsyncExitStack()
        answer = await stack.enter_async_context(
            self._client.asked(request.method, with_query(target.path, query), end_to_end(request.headers.raw), content)
        )
        response = StreamingResponse(_streamed(answer, stack), answer.status_code)
        response.raw_headers = end_to_end(answer.headers.raw)
        length = answer.headers.get("content-length", "")
        if length.isdigit():
            response.raw_headers.append((b"content-length", length.encode()))
        return response


async def _streamed(answer: httpx.Response, stack: AsyncExitStack) -> AsyncIterator[bytes]:
    """The body as it comes. One that is cut ends the caller's connection too: a part is never taken for all of it."""
    async with stack:
        async for chunk in answer.aiter_raw():
            yield chunk


def with_query(path: str, query: str) -> str:
    """A target out of its parts."""
    return f"{path}?{query}" if query else path

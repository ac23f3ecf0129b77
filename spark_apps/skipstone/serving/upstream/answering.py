"""Answers requests before a Rest catalog: its configuration changed, everything else as it comes.

Must not know what answers hold, but for the configuration.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from skipstone_core.contract.planning import PlanningMode
from starlette.requests import Request
from starlette.responses import Response

from skipstone.serving.answers import Passed, json_response, unavailable
from skipstone.serving.loading.sources import OpenTable
from skipstone.serving.names import ROOT, Route, Target
from skipstone.serving.upstream.client import UpstreamClient, end_to_end
from skipstone.serving.upstream.config import planned_config
from skipstone.serving.upstream.forwarding import Forwarding, with_query
from skipstone.serving.upstream.loading import UpstreamTables

_CONFIG_BYTES: Final = 4 * 1024 * 1024
_CONFIG_PATH: Final = f"{ROOT}{Route.CONFIG.value}"
_NOT_SENT: Final = (b"accept-encoding", b"if-none-match", b"if-modified-since")
_TOLD: Final = ("content-type", "www-authenticate", "retry-after")


class UpstreamAnswers:
    """Between callers and the catalog behind ``client``."""

    def __init__(self, client: UpstreamClient, tables: UpstreamTables, mode: PlanningMode) -> None:
        self._client, self._tables, self._mode = client, tables, mode
        self._forwarding = Forwarding(client)

    async def answer(self, request: Request, target: Target) -> Response:
        """The answer to a request. Raises Refused, and Passed for what the catalog answers in place of one."""
        if request.method == "GET" and target.route is Route.CONFIG:
            return await self._config(request, target)
        return await self._forwarding.answer(request, target)

    async def load(self, request: Request, target: Target) -> OpenTable:
        """See ``UpstreamTables.load``."""
        return await self._tables.load(request, target)

    async def _config(self, request: Request, target: Target) -> Response:
        query = request.scope["query_string"].decode("latin-1")
        headers = end_to_end(request.headers.raw, _NOT_SENT)
        async with self._client.asked("GET", with_query(target.path, query), headers) as answer:
            body = await self._client.whole(answer, _CONFIG_BYTES)
            if answer.status_code != 200:
                passed = {name: answer.headers[name] for name in _TOLD if name in answer.headers}
                raise Passed(answer.status_code, body, passed)
        return json_response(planned_config(body, self._mode))


async def require_answer(client: UpstreamClient, warehouse: str) -> None:
    """Raise Refused unless the catalog behind ``client`` answers, if only that it wants credentials."""
    query = urlencode({"warehouse": warehouse} if warehouse else {})
    async with client.asked("GET", with_query(_CONFIG_PATH, query), [(b"accept", b"application/json")]) as answer:
        if answer.status_code >= 500:
            raise unavailable(f"the catalog answers {answer.status_code} for its configuration")

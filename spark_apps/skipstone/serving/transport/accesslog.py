"""One line of JSON for each request, with what it asked for by kind, never by name or value.

Queries, filters, tokens and names of tables stay out. Must not know what is answered.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Final

from skipstone_core.contract.planning import HEALTHY_PATH, METRICS_PATH, READY_PATH
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: What a request's handler puts into the scope's state for its line: route, outcome, files.
NOTES: Final = "notes"
#: Asked every few seconds by machines: nobody reads about them.
_PROBES: Final = frozenset({HEALTHY_PATH, READY_PATH, METRICS_PATH})
access_log = logging.getLogger("skipstone.access")


class AccessLog:
    """Around ``app``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log it when its answer has gone out."""
        if scope["type"] != "http" or scope["path"] in _PROBES:
            await self._app(scope, receive, send)
            return
        notes: dict[str, object] = {}
        scope.setdefault("state", {})[NOTES] = notes
        start, status, size = time.perf_counter(), 0, 0

        async def sent(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        cut: dict[str, object] = {}
        try:
            await self._app(scope, receive, sent)
        except Exception as error:  # noqa: BLE001 - the answer has begun: its connection ends, as it is not whole
            cut = {"cut": type(error).__name__}
        line = {
            "method": scope["method"],
            "route": "other",
            "status": status,
            "seconds": round(time.perf_counter() - start, 4),
            "bytes": size,
            **notes,
            **cut,
        }
        access_log.info("%s", json.dumps(line))

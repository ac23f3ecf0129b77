"""Takes each request to whoever answers it, and turns every failure into an answer of Iceberg's protocol.

Must not know how anything is answered.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from pyiceberg.table import Table
from skipstone_core.contract.planning import HEALTHY_PATH, METRICS_PATH, READY_PATH
from skipstone_core.errors import DependencyUnavailable, SkipstoneError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from skipstone.query.residuals import CLIENT_HEADER
from skipstone.serving.answers import NO_PLAN, UNSUPPORTED, Passed, Refused, unavailable
from skipstone.serving.health import Readiness
from skipstone.serving.loading.sources import OpenTable, TableSource
from skipstone.serving.measures import PlanningMeasures
from skipstone.serving.names import Route, Target, read_target
from skipstone.serving.planning import PlanAnswer, ScanPlanner
from skipstone.serving.transport.accesslog import NOTES
from skipstone.serving.transport.intake import read_body, require_framing
from skipstone.serving.workers import PlanWorkers

_log = logging.getLogger(__name__)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"})
#: How metrics call what the catalog answered in place of a table.
_DENIALS: Final = {401: "denied", 403: "denied", 404: "absent", 419: "denied"}
_PIECE_BYTES: Final = 64 * 1024
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


class CatalogAnswers(TableSource, Protocol):
    """Whoever answers what is not planned."""

    async def answer(self, request: Request, target: Target) -> Response:
        """The answer to ``request``. Raises Refused."""


@dataclass
class PlanningApp:
    """The whole server as an ASGI application. ``answers``: None until the catalog is open."""

    planner: ScanPlanner
    workers: PlanWorkers
    measures: PlanningMeasures
    readiness: Readiness
    answers: CatalogAnswers | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = self._own(scope) or await self._answered(request)
        except (Refused, Passed) as answer:
            response = answer.response()
        except Exception as error:  # noqa: BLE001 - the server's edge: every failure must end in an answer
            response = _failed(error).response()
        await response(scope, receive, send)

    def _own(self, scope: Scope) -> Response | None:
        """Answers to probes and scrapes, which ask for nothing else."""
        if scope["method"] not in ("GET", "HEAD"):
            return None
        match scope["path"]:
            case str(path) if path == HEALTHY_PATH:
                return Response("ok\n", 200, media_type=_TEXT)
            case str(path) if path == READY_PATH:
                is_ready = self.readiness.is_ready
                return Response("ok\n" if is_ready else "not ready\n", 200 if is_ready else 503, media_type=_TEXT)
            case str(path) if path == METRICS_PATH:
                return Response(self.measures.text(), 200, media_type="text/plain; version=0.0.4; charset=utf-8")
        return None

    async def _answered(self, request: Request) -> Response:
        if request.method not in _METHODS:
            raise Refused(405, UNSUPPORTED, "this server answers GET, HEAD and POST")
        target = read_target(request.scope["raw_path"])
        notes = request.scope.get("state", {}).get(NOTES, {})
        notes["route"] = f"/v1/{target.route.value}"
        require_framing(request)
        if self.answers is None:
            raise unavailable("the catalog has not answered yet since this server began: try again")
        client = request.headers.get(CLIENT_HEADER, "")
        match request.method, target.route:
            case "POST", Route.PLAN:
                work = _Work(partial(self.planner.plan, client=client), self.measures.plan_ended, notes)
            case "POST", Route.TASKS:
                work = _Work(partial(self.planner.tasks, client=client), self.measures.page_ended, notes)
            case _, Route.PLAN_ID:
                message = "this server completes every plan at once and keeps none: send the scan again"
                raise Refused(404, NO_PLAN, message)
            case _:
                return await self.answers.answer(request, target)
        return await self._worked(request, work, partial(self.answers.load, request, target))

    async def _worked(self, request: Request, work: _Work, load: Callable[[], Awaitable[OpenTable]]) -> Response:
        """Return the answer of ``work`` for the table and the body, once the caller may load the table."""
        with work.counted():
            async with self.workers.admitted():
                opened = await load()
                body = await read_body(request)
                answer = await self.workers.run(lambda: work.answer(opened(), body))
        work.notes.update(files=answer.total, left=answer.left)
        return _json(answer)


@dataclass(frozen=True)
class _Work:
    """The work for a table and a body, the count of its end, and the note for the log."""

    answer: Callable[[Table, bytes], PlanAnswer]
    ended: Callable[[str], None]
    notes: dict[str, object]

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count how the block ends."""
        outcome = "failed"
        try:
            yield
            outcome = "completed"
        except Refused as refused:
            outcome = refused.outcome
            raise
        except Passed as passed:
            outcome = _DENIALS.get(passed.status, "refused")
            raise
        except (DependencyUnavailable, OSError):
            outcome = "unavailable"
            raise
        finally:
            self.notes["outcome"] = outcome
            self.ended(outcome)


def _json(answer: PlanAnswer) -> Response:
    """Large answers go out in parts, and say how long they are: one that is cut is not an answer."""
    size = sum(len(part) for part in answer.parts)
    if size <= _PIECE_BYTES:
        return Response(b"".join(answer.parts), 200, media_type=_JSON)
    headers = {"content-length": str(size)}
    return StreamingResponse(_pieces(answer), 200, headers, _JSON)


async def _pieces(answer: PlanAnswer) -> AsyncIterator[bytes]:
    """Pieces so small that a caller who reads slowly keeps little waiting."""
    for part in answer.parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE_BYTES):
            yield bytes(view[start : start + _PIECE_BYTES])


def _failed(error: Exception) -> Refused:
    """Return the answer to a failure. The log names the place and the kind only: messages may quote filters."""
    if isinstance(error, DependencyUnavailable):
        _log.warning("a request failed for now: %s", error)
        return unavailable(str(error).rstrip("."))
    place = "".join(traceback.format_tb(error.__traceback__)[-8:])
    _log.error("a request failed: %s at\n%s", type(error).__name__, place)
    if isinstance(error, OSError) and not isinstance(error, SkipstoneError):
        return unavailable("the storage of the table does not answer as it should: try again", outcome="unavailable")
    return Refused(500, "InternalServerError", "the server failed: its log says where", outcome="failed")

"""The ASGI application: who asks, what is asked, and the answer as HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from skipstone_local.admission import Rejected
from skipstone_local.server.answers.refusals import MOST_BYTES, Refusal, no_such_method, too_large
from skipstone_local.server.answers.rejections import rejected_status
from skipstone_local.server.answers.showing import choose_form
from skipstone_local.server.desk import Desk
from skipstone_local.server.discovery.documents import describe
from skipstone_local.server.judging import Judge
from skipstone_local.server.kinds.served import Catalog, load_catalog
from skipstone_local.server.logs import open_log
from skipstone_local.server.requests.calls import JSON, TRUE, ApiCall, ApiTarget, NoSuchPath, check_method, read_target
from skipstone_local.server.requests.tokens import Identity, check_reach, read_authorization
from skipstone_local.server.upkeep import keep_up, prepare
from skipstone_local.server.verbs import carry_out
from skipstone_local.server.watching import Hub, Watch
from skipstone_local.store import JsonObject, Store

METHODS = ["DELETE", "GET", "PATCH", "POST", "PUT"]
#: Where kubectl looks for the schema of a List; a document of no schemas has no bytes.
OLD_SCHEMAS, OLD_SCHEMAS_MEDIA = "/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
HEALTH = ("/healthz", "/livez", "/readyz")
_log = logging.getLogger(__name__)
#: Every request with its answer, at the level INFO.
_requests = logging.getLogger("skipstone_local.requests")


def build_app(store: Store, admission: Judge, token: str, pods: Path | None = None) -> Starlette:
    """The API server over a store. Every request needs ``token``; ``pods``: the folder of the pods, for their logs.

    Before it ends, its ``state.end_streams()`` is called: it ends watches, which last as long as their clients like.
    """
    server = _Server(Desk(store, admission, load_catalog(), token), token, pods or Path("/nonexistent"))
    route = Route("/{path:path}", server.handle, methods=METHODS)
    app = Starlette(routes=[route], lifespan=server.live)
    app.state.end_streams = server.end_streams
    return app


@dataclass
class _Asked:
    """The facts of a request that are known so far."""

    user: Identity | None = None
    target: ApiTarget | None = None


@dataclass
class _Server:
    """Answers requests by one desk."""

    desk: Desk
    token: str
    pods: Path
    hub: Hub | None = None

    @property
    def catalog(self) -> Catalog:
        """The kinds that are served."""
        return self.desk.catalog

    def end_streams(self) -> None:
        """End all watches and followed logs, for the server ends; from any thread."""
        if self.hub is not None:
            self.hub.end()

    @asynccontextmanager
    async def live(self, _app: Starlette) -> AsyncIterator[None]:
        """Prepare the store, and look after it while the server runs."""
        hub = self.hub = Hub(asyncio.get_running_loop())
        self.desk.store.listen(hub.tell)
        await self.desk.run(prepare)
        upkeep = asyncio.create_task(keep_up(self.desk))
        try:
            yield
        finally:
            upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await upkeep
            self.desk.pool.shutdown()

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        asked = _Asked()
        try:
            answer = await self._answer(request, asked)
        except NoSuchPath:
            answer = PlainTextResponse("404 page not found\n", 404)
        except Refusal as refusal:
            answer = _status(refusal.status())
        except Rejected as rejected:
            answer = _status(rejected_status(rejected))
        except ClientDisconnect:
            return Response(status_code=499)
        except (sqlite3.Error, OSError) as error:
            _log.exception("a request failed")
            answer = _status(Refusal(500, "InternalError", f"Internal error occurred: {error}").status())
        _note(request, asked, answer.status_code)
        return answer

    async def _answer(self, request: Request, asked: _Asked) -> Response:
        path = request.url.path
        asked.user = identity = read_authorization(self.token, request.headers.get("authorization", ""))
        if path in HEALTH:
            return PlainTextResponse("ok")
        if path == OLD_SCHEMAS:
            return Response(b"", media_type=OLD_SCHEMAS_MEDIA)
        if (document := describe(path, self.catalog)) is not None:
            if request.method != "GET":
                raise no_such_method()
            return _json(document)
        asked.target = target = read_target(path, self.catalog)
        check_reach(identity, request.method, target)
        call = ApiCall(
            method=request.method,
            target=target,
            query=dict(request.query_params),
            body=await _body(request),
            media=request.headers.get("content-type", JSON).partition(";")[0].strip().lower(),
            accept=request.headers.get("accept", ""),
        )
        return await self._carry_out(call)

    async def _carry_out(self, call: ApiCall) -> Response:
        check_method(call)
        if call.is_watch:
            return self._watch(call)
        if call.target.subresource == "log":
            log = await open_log(self.desk, call, self.pods, lambda: self.hub is None or self.hub.is_ending)
            return StreamingResponse(log, media_type="text/plain")
        carried = await self.desk.run(lambda session: carry_out(session, call))
        return _json(carried.body, carried.code, carried.warnings)

    def _watch(self, call: ApiCall) -> Response:
        assert self.hub is not None  # noqa: S101 - requests come when the application has started
        watch = Watch(self.desk, call, choose_form(call.kind, call.accept, call.query), call.selection)
        return StreamingResponse(watch.lines(self.hub), media_type=f"{JSON};stream=watch")


def _note(request: Request, asked: _Asked, status: int) -> None:
    """Tell of a request and its answer, for those who want to know."""
    if not _requests.isEnabledFor(logging.INFO):
        return
    target = asked.target
    details = {
        "method": request.method,
        "watch": request.query_params.get("watch", "") in TRUE,
        "resource": target.kind.plural if target else "",
        "namespace": target.namespace if target else "",
        "object": target.name if target else "",
        "user": asked.user.user if asked.user else "",
        "agent": request.headers.get("user-agent", ""),
        "status": status,
    }
    _requests.info("%s %s %d", request.method, request.url.path, status, extra=details)


async def _body(request: Request) -> bytes:
    pieces, length = [], 0
    async for piece in request.stream():
        length += len(piece)
        if length > MOST_BYTES:
            raise too_large()
        pieces.append(piece)
    return b"".join(pieces)


def _status(status: JsonObject) -> Response:
    return _json(status, status["code"])


def _json(body: JsonObject, code: int = 200, warnings: Sequence[str] = ()) -> Response:
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    response = Response(text.encode(), code, media_type=JSON)
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.append("Warning", f'299 - "{quoted.encode().decode("latin-1")}"')
    return response

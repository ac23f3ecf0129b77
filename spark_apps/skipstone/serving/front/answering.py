"""Answers requests from an Sql catalog, each in a thread, and loads tables from it for plans.

Must not know what answers hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pyiceberg.typedef import Identifier
from starlette.requests import Request
from starlette.responses import Response

from skipstone.serving.answers import Refused, bad_request
from skipstone.serving.front.bearer import require_bearer
from skipstone.serving.front.catalog import CatalogFront
from skipstone.serving.loading.sources import OpenTable
from skipstone.serving.names import UNIT_SEPARATOR, Route, Target
from skipstone.serving.protocol import require_reading
from skipstone.serving.workers import PlanWorkers

_LONGEST_NAME: Final = 4096
_NOT_FOUND: Final = "NotFoundException"


class FrontAnswers:
    """Whoever brings one of ``tokens`` is answered."""

    def __init__(self, front: CatalogFront, tokens: tuple[str, ...], workers: PlanWorkers) -> None:
        self._front, self._tokens, self._workers = front, tokens, workers

    def admit(self, request: Request, target: Target) -> None:
        """Raise Refused: 401 without a token, 404 for the path of another catalog."""
        require_bearer(request, self._tokens)
        if target.prefix:
            raise bad_request("the path of the request has a prefix, which this catalog does not: leave it out")

    async def answer(self, request: Request, target: Target) -> Response:
        """The answer to a request that only reads. Raises Refused."""
        self.admit(request, target)
        require_reading(request.method, target)
        async with self._workers.admitted():
            return await self._workers.run(self._answering(request, target))

    async def load(self, request: Request, target: Target) -> OpenTable:
        """The table that is planned, which is loaded in the thread that plans. Raises Refused."""
        self.admit(request, target)
        return partial(self._front.opened, target.identifier())

    def _answering(self, request: Request, target: Target) -> Callable[[], Response]:
        front = self._front
        match target.route:
            case Route.CONFIG:
                return front.config
            case Route.NAMESPACES:
                return partial(front.namespaces, _parent(request))
            case Route.NAMESPACE:
                return partial(front.namespace, target.levels())
            case Route.TABLES:
                return partial(front.tables, target.levels())
            case Route.TABLE:
                return partial(front.table, target.identifier(), request.headers.get("if-none-match", ""))
            case _:
                message = (
                    "before an Sql catalog, this server has namespaces and tables only, without views and functions"
                )
                raise Refused(404, _NOT_FOUND, message)


def _parent(request: Request) -> Identifier:
    parent = request.query_params.get("parent", "")
    if len(parent) > _LONGEST_NAME or any(ord(letter) < 32 and letter != UNIT_SEPARATOR for letter in parent):
        raise bad_request("the parameter parent is not the name of a namespace: separate its levels by %1F")
    return tuple(parent.split(UNIT_SEPARATOR)) if parent else ()

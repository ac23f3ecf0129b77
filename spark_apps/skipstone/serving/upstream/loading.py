"""Loads tables at the catalog with the credentials of whoever asks, on every plan.

The catalog is asked whether its answer is still the one that is known here, so an unchanged table costs one small
answer. What it refuses goes to the caller as it is. Must not keep credentials.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import unquote

import httpx
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from starlette.requests import Request

from skipstone.serving.answers import Passed, bad_request, unavailable
from skipstone.serving.loading.decoded import TaggedTable, TaggedTables, decode_answer
from skipstone.serving.loading.sources import OpenTable, OwnTables
from skipstone.serving.measures import PlanningMeasures
from skipstone.serving.names import UNIT_SEPARATOR, Target
from skipstone.serving.upstream.client import Headers, UpstreamClient, end_to_end

_ERROR_BYTES: Final = 1024 * 1024
#: What of the caller's request is about its body and its answer: a load has other ones. Nobody needs the credentials
#: that a catalog vends with a table.
_NOT_SENT: Final = (
    *(b"accept", b"accept-encoding", b"content-type", b"content-encoding", b"if-none-match", b"if-match"),
    *(b"if-modified-since", b"if-unmodified-since", b"if-range", b"range", b"x-iceberg-access-delegation"),
    b"idempotency-key",
)
#: What catalogs and those before them refuse for now.
_PASSING: Final = frozenset({408, 425, 429})
_TOLD: Final = ("content-type", "www-authenticate", "retry-after")


class UpstreamTables:
    """Tables of the catalog behind ``client``; ``catalog``: the same one, opened with the server's credentials."""

    def __init__(self, client: UpstreamClient, catalog: Catalog, measures: PlanningMeasures) -> None:
        self._client, self._measures = client, measures
        self._own = OwnTables(catalog)
        self._prefix = unquote(catalog.properties.get("prefix", ""))
        self._separator = unquote(catalog.properties.get("namespace-separator", "")) or UNIT_SEPARATOR
        self._tagged = TaggedTables()

    async def load(self, request: Request, target: Target) -> OpenTable:
        """The table that ``request`` is about, if the catalog lets its caller load it.

        Raises Passed for what the catalog answers otherwise; Refused: 400 for another catalog of the same server, 503
        when it does not answer.
        """
        if target.prefix != self._prefix:
            raise bad_request(
                f"the prefix {target.prefix!r} is not that of this Warehouse, {self._prefix!r}: "
                "set the catalog's property warehouse as the Warehouse has it"
            )
        known = self._tagged.find(target.table_path)
        headers = end_to_end(request.headers.raw, _NOT_SENT)
        with self._measures.part("upstream"):
            etag, body = await self._loaded(target.table_path, headers, known.etag if known else "")
        return partial(self._opened, target, etag, body, known)

    async def _loaded(self, path: str, headers: Headers, etag: str) -> tuple[str, bytes | None]:
        """The ETag and the body of the catalog's answer; no body when it has not changed."""
        sent = [*headers, (b"accept", b"application/json"), *([(b"if-none-match", etag.encode())] if etag else [])]
        async with self._client.asked("GET", f"{path}?snapshots=all", sent) as answer:
            if answer.status_code == 304 and etag:
                return etag, None
            if answer.status_code == 200:
                return answer.headers.get("etag", ""), await self._client.whole(answer)
            raise await self._refusal(answer)

    async def _refusal(self, answer: httpx.Response) -> Exception:
        """Return the error that the caller gets in place of a plan."""
        if not 400 <= answer.status_code < 500 or answer.status_code in _PASSING:
            self._measures.upstream_failed("status")
            seconds = answer.headers.get("retry-after", "")
            return unavailable(
                f"the catalog answers {answer.status_code} to loading the table: try again",
                seconds=int(seconds) if seconds.isdigit() and len(seconds) < 4 else 1,
            )
        content = await self._client.whole(answer, _ERROR_BYTES)
        return Passed(
            answer.status_code, content, {name: answer.headers[name] for name in _TOLD if name in answer.headers}
        )

    def _opened(self, target: Target, etag: str, body: bytes | None, known: TaggedTable | None) -> Table:
        with self._measures.part("metadata"):
            if body is not None:
                decoded = decode_answer(body)
                if etag:
                    self._tagged.note(target.table_path, etag, decoded)
            elif known is not None:
                decoded = known.table
            else:
                raise unavailable("the catalog answers 304 to a question without an ETag: try again")
            return self._own.opened(target.identifier(self._separator), decoded)

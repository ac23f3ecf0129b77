"""Requests to the catalog of others, with what the caller sent and nothing of ours.

Headers that are of one connection stay on it, cookies are kept for nobody, and redirects are not followed: the catalog
says where it is, not an answer. Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx

from skipstone.serving.answers import Refused, unavailable
from skipstone.serving.measures import PlanningMeasures

Headers = list[tuple[bytes, bytes]]
#: Headers of a connection, or of its ends.
_OF_CONNECTION: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length", b"expect", b"http2-settings"),
    }
)
_CONNECTIONS: Final = 200
#: Bytes of an answer that is read as a whole.
ANSWER_BYTES: Final = 512 * 1024 * 1024


class UpstreamClient:
    """Speaks to the catalog at ``uri``. ``seconds``: until it has to connect, and between two parts of an answer."""

    def __init__(self, uri: str, seconds: float, measures: PlanningMeasures) -> None:
        self._base = httpx.URL(uri.rstrip("/"))
        self._measures = measures
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(seconds),
            limits=httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
        )
        self._http.headers.clear()

    async def close(self) -> None:
        """End all connections."""
        await self._http.aclose()

    @asynccontextmanager
    async def asked(
        self, method: str, target: str, headers: Iterable[tuple[bytes, bytes]], content: bytes | None = None
    ) -> AsyncIterator[httpx.Response]:
        """The answer to a request, of which the body has not been read.

        Raises Refused (503) when the catalog does not answer in time or the connection fails, 502 for what is not HTTP.
        """
        url = self._base.copy_with(raw_path=self._base.raw_path.rstrip(b"/") + target.encode("ascii"))
        request = self._http.build_request(method, url, headers=list(headers), content=content)
        with self._measures.upstream():
            answer = await self._sent(request)
        try:
            yield answer
        finally:
            await answer.aclose()

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        try:
            return await self._http.send(request, stream=True)
        except httpx.TimeoutException:
            raise self.silent() from None
        except httpx.TransportError as error:
            self._measures.upstream_failed("connection")
            raise unavailable(f"the catalog cannot be reached ({type(error).__name__}): try again") from None

    def silent(self) -> Refused:
        """Refuse as the catalog did not answer in time."""
        self._measures.upstream_failed("timeout")
        return unavailable("the catalog does not answer in time: try again")

    async def whole(self, answer: httpx.Response, limit: int = ANSWER_BYTES) -> bytes:
        """The decoded body of ``answer``. Raises Refused (503) when it is cut or longer than ``limit`` bytes."""
        body = bytearray()
        try:
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > limit:
                    raise unavailable(f"the catalog's answer has more than {limit:,} bytes: expire old snapshots")
        except httpx.TimeoutException:
            raise self.silent() from None
        except (httpx.TransportError, httpx.DecodingError):
            self._measures.upstream_failed("connection")
            raise unavailable("the catalog's answer was cut: try again") from None
        return bytes(body)


def end_to_end(headers: Iterable[tuple[bytes, bytes]], without: Sequence[bytes] = ()) -> Headers:
    """Those of ``headers`` that go on to the other side, but for ``without``."""
    known = [(name.lower(), value) for name, value in headers]
    named = {option.strip().lower() for name, value in known if name == b"connection" for option in value.split(b",")}
    left_out = _OF_CONNECTION | named | set(without)
    return [(name, value) for name, value in known if name not in left_out]

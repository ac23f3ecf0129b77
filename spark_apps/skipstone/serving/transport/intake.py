"""Requests come in here: bodies within limits of size and time, and framing that nobody can read in two ways.

Must not know what a request asks for.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from skipstone.serving.answers import BAD_REQUEST, Refused, bad_request

#: Bytes of a body, and seconds until all of it is here.
BODY_BYTES: Final = 8 * 1024 * 1024
BODY_SECONDS: Final = 30
#: Bytes of a query, and of the headers together.
QUERY_BYTES: Final = 16 * 1024


def require_framing(request: Request) -> None:
    """Refuse a request that another server might take for two, and a query that is too long.

    Raises Refused (400, 414).
    """
    lengths = request.headers.getlist("content-length")
    if "transfer-encoding" in request.headers and lengths:
        raise bad_request("the request has both Content-Length and Transfer-Encoding: send one of them")
    if len(lengths) > 1 or len(request.headers.getlist("transfer-encoding")) > 1:
        raise bad_request("the request says twice how long it is: send one Content-Length")
    if request.method in ("GET", "HEAD") and _has_body(request):
        raise bad_request(f"a {request.method} request has a body: leave it out")
    if len(request.scope["query_string"]) > QUERY_BYTES:
        raise Refused(414, BAD_REQUEST, f"the query of the request is longer than {QUERY_BYTES} bytes: shorten it")


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


async def read_body(request: Request, limit: int = BODY_BYTES, seconds: float = BODY_SECONDS) -> bytes:
    """The body of ``request``.

    Raises Refused: 413 for one of more than ``limit`` bytes, 415 for one that is encoded, 408 for one that is not all
    here after ``seconds``.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, BAD_REQUEST, "the body of the request is encoded: send it without Content-Encoding")
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise Refused(
            408, BAD_REQUEST, f"the body of the request did not arrive within {seconds:g} s", headers=_CLOSE
        ) from None
    except ClientDisconnect:
        raise bad_request("the connection ended before the body of the request did") from None
    return bytes(body)


_CLOSE: Final = {"connection": "close"}


def _too_large(limit: int) -> Refused:
    message = f"the body of the request has more than {limit:,} bytes: shorten the lists of values in the filter"
    return Refused(413, BAD_REQUEST, message, headers=_CLOSE)


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``. Raises Refused (400)."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise bad_request("the body of the request is not JSON") from None
    if not isinstance(value, dict):
        raise bad_request("the body of the request is not a JSON object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)

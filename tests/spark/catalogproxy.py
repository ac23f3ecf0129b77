"""A proxy before a REST catalog that answers what tests say in place of the server, and cuts lists into pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: What load balancers say.
PAGE = b"<html><body>Nothing is here.</body></html>"
_LISTS = re.compile(r"/v1/namespaces(/[^/]+/tables)?")


def iceberg_error(status: int, kind: str, message: str) -> bytes:
    """The body of an error as Iceberg's servers send it."""
    return json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode()


@dataclass(frozen=True)
class Instead:
    """An answer in place of the server's. ``is_late``: the server gets the request, and its answer is thrown away."""

    status: int
    body: bytes = b""
    is_late: bool = False


#: Given method and path without the query: what to answer; None: what the server says.
Rule = Callable[[str, str], Instead | None]


@dataclass
class CatalogProxy:
    """Before the catalog ``upstream``. ``page_size``: how many names each page of a list has; 0: all of them."""

    upstream: str
    address: str = ""
    rules: list[Rule] = field(default_factory=list)
    page_size: int = 0
    seen: list[tuple[str, str, int]] = field(default_factory=list)

    def answer(self, method: str, end: str, instead: Instead) -> None:
        """Answer ``instead`` to requests of ``method`` whose path ends with ``end``."""
        self.rules.append(lambda asked, path: instead if asked == method and path.endswith(end) else None)

    def found(self, method: str, path: str) -> Instead | None:
        """What the rules say."""
        told = (rule(method, path) for rule in self.rules)
        return next((one for one in told if one is not None), None)


@contextmanager
def catalog_proxy(upstream: str) -> Iterator[CatalogProxy]:
    """One on loopback; it ends with the block."""
    proxy = CatalogProxy(upstream)
    handler = type("Passing", (_Handler,), {"proxy": proxy})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        proxy.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    proxy: CatalogProxy
    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        """Forward, unless a rule says otherwise."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        instead = self.proxy.found(self.command, url.path)
        if instead is None:
            self._answer(*self._forwarded(body))
            return
        if instead.is_late:
            self._forwarded(body)
        self._answer(instead.status, instead.body)

    do_GET = do_POST = do_HEAD = do_DELETE = handle_request

    def _forwarded(self, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(self.path)
        behind = HTTPConnection(urlsplit(self.proxy.upstream).netloc, timeout=300)
        behind.request(self.command, self.path, body, {"content-type": "application/json"})
        answer = behind.getresponse()
        status, content = answer.status, answer.read()
        behind.close()
        if self.proxy.page_size and status == 200 and self.command == "GET" and _LISTS.fullmatch(url.path):
            content = self._page(json.loads(content), parse_qs(url.query))
        return status, content

    def _page(self, told: dict[str, Any], query: dict[str, list[str]]) -> bytes:
        """The part of a list that a token asks for, in the order of names."""
        start = int(query.get("pageToken", ["0"])[0])
        end = start + self.proxy.page_size
        (kind,) = told.keys() & {"identifiers", "namespaces"}
        names = sorted(told[kind], key=json.dumps)
        more = {"next-page-token": str(end)} if end < len(names) else {}
        return json.dumps({kind: names[start:end], **more}).encode()

    def _answer(self, status: int, body: bytes) -> None:
        self.proxy.seen.append((self.command, self.path, status))
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

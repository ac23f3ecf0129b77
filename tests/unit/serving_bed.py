"""Servers that plan, as tests start them: in this process or in one of their own; and catalogs that guard tables.

The catalog is Iceberg's own REST server; the guard before it knows users by their tokens, and is slow, broken or gone
when a test says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.serving.server import Serving
from skipstone_core.contract.planning import (
    PORT_VARIABLE,
    SEAL_VARIABLE,
    SETTINGS_VARIABLE,
    TOKENS_VARIABLE,
    PlanningSettings,
)
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.ports import answering_port, free_port

START_SECONDS = 120
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("s", pa.string())])


def rest_settings(uri: str, root: Path, **given: Any) -> PlanningSettings:
    """Settings of a server before the REST catalog at ``uri``, which tests reach without TLS."""
    catalog = CatalogRef(type=CatalogType.REST, uri=uri, allow_plaintext_credentials=True)
    home = WarehouseRef(name="wh", root=str(root), catalog=catalog)
    return PlanningSettings(warehouse=home, **{"allow_plaintext_tokens": True, **given})


def sql_settings(root: Path, **given: Any) -> PlanningSettings:
    """Settings of a server before an SQLite catalog below ``root``."""
    return PlanningSettings(
        warehouse=WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL)), **given
    )


def filled(catalog: Catalog, name: str, files: int = 3) -> Table:
    """A new table in the namespace ``ns`` with so many files of two rows."""
    catalog.create_namespace_if_not_exists("ns")
    table = catalog.create_table(("ns", name), schema=SCHEMA)
    for number in range(files):
        table.append(pa.table({"id": [number, number + 100], "s": ["x", "y"]}, schema=SCHEMA))
    return table


@contextmanager
def serving(settings: PlanningSettings, tokens: tuple[str, ...] = (), seal: bytes = b"seal") -> Iterator[str]:
    """The address of a server in a thread of this process; it ends with the block."""
    server = Serving(settings, tokens, seal, free_port())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    address = f"http://127.0.0.1:{server.port}"
    try:
        _wait_until(lambda: is_ready(address))
        yield address
    finally:
        server.stop()
        thread.join()


@dataclass
class ServerProcess:
    """A server in a process of its own."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def server_process(
    folder: Path, settings: PlanningSettings, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A server that ends with the block. ``environment``: of the process, besides this one's."""
    path, log = folder / "planning.json", folder / "planning.log"
    path.write_text(settings.to_json())
    given = {**os.environ, SETTINGS_VARIABLE: str(path), PORT_VARIABLE: "0", **(environment or {})}
    with log.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-m", "skipstone.serving"], env=given, stdout=sink, stderr=sink)
    try:
        port = answering_port(process, lambda port: is_ready(f"http://127.0.0.1:{port}"), log, seconds=START_SECONDS)
        yield ServerProcess(f"http://127.0.0.1:{port}", process, log)
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def secrets(tokens: str = "", seal: str = "") -> dict[str, str]:
    """As the environment of a process has them."""
    return {TOKENS_VARIABLE: tokens, SEAL_VARIABLE: seal}


def is_ready(address: str) -> bool:
    """Whether a server says so."""
    try:
        return requests.get(f"{address}/readyz", timeout=30).ok
    except requests.RequestException:
        return False


def _wait_until(done: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(START_SECONDS * 20):
        if done():
            return
        pause.wait(0.05)
    raise RuntimeError("the server is not ready")


def exchange(address: str, sent: bytes) -> bytes:
    """Everything that a server answers to bytes on a connection of their own, until it closes that."""
    url = urlsplit(address)
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
        connection.sendall(sent)
        found = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                found += part
    return found


@dataclass
class Trouble:
    """What a guard does in place of asking the catalog. ``wait``: for it, before anything else; ``cut``: after half."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: threading.Event | None = None
    is_cut: bool = False


@dataclass
class Guard:
    """Before the catalog at ``upstream``: ``readers`` says which tables the holder of a token may load.

    ``seen``: method, path with query and headers of each request. ``trouble``: asked for each path; None: none.
    ``held``: released for each request that waits; ``dropped``: set when somebody did not take all of an answer.
    """

    upstream: str
    address: str = ""
    readers: dict[str, set[str]] = field(default_factory=dict)
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    trouble: Callable[[str], Trouble | None] = lambda path: None
    held: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    dropped: threading.Event = field(default_factory=threading.Event)

    def loads(self) -> list[dict[str, str]]:
        """The headers of requests that loaded a table."""
        return [headers for method, path, headers in self.seen if method == "GET" and "/tables/" in path]


@contextmanager
def guard(upstream: str) -> Iterator[Guard]:
    """One on loopback; it ends with the block."""
    found = Guard(upstream)
    handler = type("Guarding", (_Guarding,), {"guard": found})
    with _Quiet(("127.0.0.1", 0), handler) as server:
        found.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of connections that end."""


class _Guarding(BaseHTTPRequestHandler):
    guard: Guard
    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        """Ask the catalog, for whom may ask."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.guard.seen.append((self.command, self.path, headers))
        path = urlsplit(self.path).path
        trouble = self.guard.trouble(path)
        if trouble is not None and trouble.wait is not None:
            self.guard.held.release()
            trouble.wait.wait(60)
        if trouble is not None and trouble.status:
            self._answer(trouble.status, trouble.body, trouble.headers)
        elif not self._may(headers.get("authorization", ""), path):
            self._answer(403, error("ForbiddenException", 403), {"content-type": "application/json"})
        else:
            self._answer(*self._asked(body, headers), is_cut=trouble is not None and trouble.is_cut)

    do_GET = do_POST = do_HEAD = do_DELETE = handle_request

    def _may(self, authorization: str, path: str) -> bool:
        if not self.guard.readers or "/tables/" not in path:
            return True
        allowed = self.guard.readers.get(authorization.removeprefix("Bearer "), set())
        return path.partition("/tables/")[2].split("/")[0] in allowed

    def _asked(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
        behind = HTTPConnection(urlsplit(self.guard.upstream).netloc, timeout=60)
        passed = {name: headers[name] for name in ("content-type", "if-none-match") if name in headers}
        behind.request(self.command, self.path, body, passed)
        answer = behind.getresponse()
        told = {name: value for name, value in answer.getheaders() if name.lower() in ("content-type", "etag")}
        content = answer.read()
        behind.close()
        return answer.status, content, told

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str], *, is_cut: bool = False) -> None:
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 304:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if is_cut else body)
            self.close_connection = self.close_connection or is_cut
        except (BrokenPipeError, ConnectionResetError):
            self.guard.dropped.set()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def error(kind: str, code: int, message: str = "no") -> bytes:
    """The body of an error as Iceberg's servers send it."""
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()

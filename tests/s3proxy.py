"""A proxy before an S3 server that counts what passes, and fails as networks and servers do, when a test asks it to."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

SECONDS = 300
_NOT_PASSED_ON = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class Fault(Enum):
    """What becomes of a request."""

    SLOW_DOWN = "503 before the server acts"
    FAILED = "500 after the server acted"
    LOST = "the connection breaks before the server acts"
    UNHEARD = "the connection breaks after the server acted"
    CUT = "the connection breaks in the middle of the answer"


class Refusal(Enum):
    """An answer that says no: status and code. The request does not reach the server."""

    DENIED = 403, "AccessDenied"
    EXPIRED = 400, "ExpiredToken"
    SKEWED = 403, "RequestTimeTooSkewed"
    GONE = 404, "NoSuchBucket"
    FULL = 507, "QuotaExceeded"


#: Given the kind and the path of a request: what becomes of it.
Choose = Callable[[str, str], Fault | Refusal | None]


@dataclass(frozen=True)
class Seen:
    """A request that came by: GET, HEAD, PUT, POST, DELETE or LIST, the bytes of the bodies, and its access key."""

    kind: str
    path: str
    sent: int
    received: int
    key: str = ""


@dataclass
class Proxy:
    """What it saw, and the faults of the next requests by their kind, the next one first.

    ``delay_seconds``: how much later than without the proxy every request arrives. ``choose`` is asked for each request
    that meets no such fault; it may do or await something itself.
    """

    target: str
    endpoint: str = ""
    seen: list[Seen] = field(default_factory=list)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    delay_seconds: float = 0.0
    choose: Choose | None = None
    lock: Lock = field(default_factory=Lock)
    ended: Event = field(default_factory=Event)
    ended_keys: set[str] = field(default_factory=set)
    ends_with: Callable[[Seen], bool] = lambda _: False

    def refuses(self, seen: Seen) -> bool:
        """Whether the access key of a request has ended: it is among ``ended``, or ``ends_with`` says so now."""
        with self.lock:
            if self.ends_with(seen):
                self.ended_keys.add(seen.key)
            return seen.key in self.ended_keys

    def fail(self, kind: str, fault: Fault, times: int = 1) -> None:
        """The next ``times`` requests of a kind meet ``fault``."""
        with self.lock:
            self.faults[kind] = [fault] * times

    def forget(self) -> None:
        """Begin to count again, and let all pass."""
        with self.lock:
            self.seen.clear()
            self.faults.clear()
            self.choose = None

    def counted(self) -> dict[str, int]:
        """How many requests of each kind came by."""
        kinds = [one.kind for one in self.seen]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    def take(self, kind: str, path: str) -> Fault | Refusal | None:
        """The fault of a request that comes now."""
        with self.lock:
            waiting = self.faults.get(kind)
            if waiting:
                return waiting.pop(0)
        return self.choose(kind, path) if self.choose else None

    def note(self, seen: Seen) -> None:
        """Count a request."""
        with self.lock:
            self.seen.append(seen)

    def hold(self, seconds: float) -> None:
        """Let a request wait, but not beyond the end of the proxy."""
        if seconds > 0:
            self.ended.wait(seconds)


@contextmanager
def s3_proxy(target: str) -> Iterator[Proxy]:
    """A proxy on loopback before the server at ``target``; it ends with the block."""
    proxy = Proxy(target)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Passing", (_Handler,), {"proxy": proxy})) as server:
        proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request and its answer; the next one takes another connection."""

    proxy: Proxy

    def pass_on(self) -> None:
        """Pass the request on, unless it meets a fault first."""
        if self.headers.get("expect"):  # else the client waits a second before it sends the body
            self.send_response_only(100)
            self.end_headers()
        body = self._chunks() if self._is_chunked() else self.rfile.read(int(self.headers.get("content-length") or 0))
        self.proxy.hold(self.proxy.delay_seconds)
        kind = "LIST" if self.command == "GET" and "list-type=2" in self.path else self.command
        key = (self.headers.get("authorization") or "").partition("Credential=")[2].partition("/")[0]
        if self.proxy.refuses(Seen(kind, self.path, len(body), 0, key)):
            self._fail(Refusal.EXPIRED)
            return
        fault = self.proxy.take(kind, self.path)
        if fault in (Fault.SLOW_DOWN, Fault.LOST) or isinstance(fault, Refusal):
            self.proxy.note(Seen(kind, self.path, len(body), 0))
            self._fail(fault)
            return
        status, headers, content = self._asked(body)
        self.proxy.note(Seen(kind, self.path, len(body), len(content), key))
        if fault in (Fault.FAILED, Fault.UNHEARD):
            self._fail(fault)
        else:
            self._answer(status, headers, content, cut=fault is Fault.CUT)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    def _is_chunked(self) -> bool:
        return "chunked" in (self.headers.get("transfer-encoding") or "")

    def _chunks(self) -> bytes:
        """A body whose size is told piece by piece."""
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _asked(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(urlsplit(self.proxy.target).netloc, timeout=SECONDS)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(iter([body]) if self._is_chunked() else body, encode_chunked=self._is_chunked())
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False) -> None:
        told = {name.lower(): value for name, value in headers}
        size = told.get("content-length", "0") if self.command == "HEAD" else str(len(content))
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", size)
        if cut and not content:
            self._break()
            return
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._break()

    def _fail(self, fault: Fault | Refusal | None) -> None:
        if fault in (Fault.LOST, Fault.UNHEARD):
            self._break()
            return
        status, code = (503, "SlowDown") if fault is Fault.SLOW_DOWN else (500, "InternalError")
        if isinstance(fault, Refusal):
            status, code = fault.value
        body = f"<Error><Code>{code}</Code></Error>".encode() if self.command != "HEAD" else b""
        self._answer(status, [("content-type", "application/xml")], body)

    def _break(self) -> None:
        """Close the connection at once, whatever was not sent yet."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

"""Replicas of a planning server as processes that tests kill, stop and restart, and what stands before them.

The balancer gives requests to replicas in turn, as a Service of Kubernetes does, and lets a test act at any moment of a
request.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPConnection, HTTPException, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from skipstone_core.contract.planning import PlanningSettings

from tests.unit.serving_bed import ServerProcess, server_process

#: How long the balancer waits for a replica; it then ends the caller's connection.
PATIENCE_SECONDS = 12.0
_STARTS = itertools.count()
_NOT_PASSED_ON = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})


@dataclass
class Replica:
    """One place for a process. ``home``: where each process has a folder of its own."""

    home: Path
    settings: PlanningSettings
    environment: Mapping[str, str]
    server: ServerProcess | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    _stack: ExitStack = field(default_factory=ExitStack)
    _starter: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Where it listens; empty while it does not."""
        return self.server.address if self.server else ""

    def start(self) -> None:
        """Start a process in the background."""
        self._starter = threading.Thread(target=self._start)
        self._starter.start()

    def wait(self) -> None:
        """Until a start in the background is over."""
        if self._starter is not None:
            self._starter.join()
        if self.server is None:
            raise RuntimeError("a replica did not start")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self.server is not None:
            self.server.process.send_signal(number)

    def replace(self, number: signal.Signals) -> None:
        """End the process by a signal, then start another one."""
        old, self.server = self.server, None
        if old is not None:
            old.process.send_signal(number)
            self.start()

    def close(self) -> None:
        """End all processes."""
        if self._starter is not None:
            self._starter.join()
        self._stack.close()

    def _start(self) -> None:
        folder = self.home / f"replica-{next(_STARTS)}"
        folder.mkdir(parents=True)
        given = {"SKIPSTONE_CACHE_DIR": str(folder / "cache"), **self.environment}
        self.server = self._stack.enter_context(server_process(folder, self.settings, given))


class Moment(Enum):
    """When a test acts: before a replica is asked, while it works, and before its answer is passed on."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True)
class Passing:
    """A request that comes by. ``kind``: config, load, plan, tasks or other; ``number``: among those of its kind."""

    kind: str
    number: int
    moment: Moment
    replica: Replica | None


@dataclass
class Balancer:
    """Before ``replicas``. ``act``: called at each moment of each request; ``alter``: may change an answer."""

    replicas: list[Replica]
    address: str = ""
    act: Callable[[Passing], None] = lambda passing: None
    alter: Callable[[str, bytes], bytes] = lambda kind, content: content
    counted: dict[str, int] = field(default_factory=dict)
    answered: list[tuple[str, int]] = field(default_factory=list)
    _turn: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        """Begin a read: count again, and act at nothing."""
        with self._lock:
            self.counted, self.answered = {}, []
        self.act, self.alter = lambda passing: None, lambda kind, content: content

    def count(self, kind: str) -> int:
        """The number of a request that comes now."""
        with self._lock:
            self.counted[kind] = self.counted.get(kind, 0) + 1
            return self.counted[kind]

    def order(self) -> list[Replica]:
        """Those that listen, the next one first."""
        listening = [replica for replica in self.replicas if replica.server is not None]
        first = next(self._turn) % max(1, len(listening))
        return listening[first:] + listening[:first]


@contextmanager
def replicas(
    home: Path, settings: PlanningSettings, environment: Mapping[str, str], number: int = 2
) -> Iterator[Balancer]:
    """Replicas that listen, and what stands before them; all end with the block."""
    made = [Replica(home, settings, environment) for _ in range(number)]
    with ExitStack() as stack:
        for replica in made:
            stack.callback(replica.close)
            replica.start()
        for replica in made:
            replica.wait()
        yield stack.enter_context(_balancer(made))


@contextmanager
def _balancer(made: list[Replica]) -> Iterator[Balancer]:
    found = Balancer(made)
    handler = type("Balancing", (_Balancing,), {"balancer": found})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        found.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


class _Balancing(BaseHTTPRequestHandler):
    balancer: Balancer
    protocol_version = "HTTP/1.1"

    def pass_on(self) -> None:
        """Ask a replica. A connection that fails goes to the next one, as nothing was asked yet."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        kind = kind_of(self.path)
        number = self.balancer.count(kind)
        self.balancer.act(Passing(kind, number, Moment.BEFORE, None))
        with suppress(BrokenPipeError, ConnectionResetError):
            for replica in self.balancer.order():
                connection = HTTPConnection(urlsplit(replica.address).netloc, timeout=PATIENCE_SECONDS)
                try:
                    connection.connect()
                except OSError:
                    continue
                with connection_closed(connection):
                    self._ask(connection, body, Passing(kind, number, Moment.DURING, replica))
                return
            self.balancer.answered.append((kind, 502))
            self.send_error(502)

    do_GET = do_HEAD = do_POST = do_DELETE = pass_on

    def _ask(self, connection: HTTPConnection, body: bytes, passing: Passing) -> None:
        self.close_connection = True
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON}
        acting = threading.Thread(target=self.balancer.act, args=[passing])
        try:
            connection.request(self.command, self.path, body, headers)
            acting.start()
            answer = connection.getresponse()
            told, status = answer.getheaders(), answer.status
            content = answer.read()
        except IncompleteRead as cut:
            content = cut.partial + b""
            self._tell(status, told, content, whole=len(content) + (cut.expected or 1))
            self.balancer.answered.append((passing.kind, 0))
            return
        except (OSError, HTTPException):
            self.balancer.answered.append((passing.kind, 0))
            return  # the caller's connection ends without an answer
        finally:
            if acting.ident is not None:
                acting.join()
        self.balancer.act(Passing(passing.kind, passing.number, Moment.AFTER, passing.replica))
        if status == 200:
            content = self.balancer.alter(passing.kind, content)
        self.balancer.answered.append((passing.kind, status))
        self._tell(status, told, content, whole=len(content))

    def _tell(self, status: int, headers: list[tuple[str, str]], content: bytes, whole: int) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)
        if status != 304:
            self.send_header("content-length", str(whole))
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def connection_closed(connection: HTTPConnection) -> Iterator[None]:
    """Close ``connection`` after the block."""
    try:
        yield
    finally:
        connection.close()


def kind_of(path: str) -> str:
    """What a request asks for."""
    parts = urlsplit(path).path.rstrip("/").split("/")
    if parts[-1] in ("config", "plan", "tasks"):
        return parts[-1]
    return "load" if len(parts) > 2 and parts[-2] == "tables" else "other"


def faked_clock(library: Path, setting: Path) -> dict[str, str]:
    """The environment of a process whose clock is as far ahead as the file ``setting`` says, such as ``+3600``.

    It looks at the file once a second.
    """
    return {
        "LD_PRELOAD": os.pathsep.join(filter(None, [str(library), os.environ.get("LD_PRELOAD", "")])),
        "FAKETIME_TIMESTAMP_FILE": str(setting),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_CACHE_DURATION": "1",
    }

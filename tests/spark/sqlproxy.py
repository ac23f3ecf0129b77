"""A proxy in front of a PostgreSQL that cuts the connection at a COMMIT: before the server gets it, after, or between.

Loopback only and without TLS, so that it sees what is sent. A client waits for the answer to each of its messages, so
a COMMIT comes alone and whole.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"


class Moment(StrEnum):
    """What becomes of the COMMIT whose connection is cut."""

    BEFORE = "never arrives"
    AFTER = "arrives, the answer does not"
    HELD = "arrives late"


@dataclass
class CommitProxy:
    """Passes everything on but the COMMIT that it is armed for. ``is_away``: it takes no connections now."""

    upstream: int
    listener: socket.socket
    is_away: bool = False
    met: list[Moment] = field(default_factory=list)
    _armed: list[tuple[Moment, bool]] = field(default_factory=list)
    _held: list[socket.socket] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listener.getsockname()[1])

    def arm(self, moment: Moment, *, goes_away: bool = False) -> None:
        """Cut the connection of the next COMMIT. ``goes_away``: and take no more connections."""
        self._armed.append((moment, goes_away))

    def release(self) -> None:
        """Let the COMMIT that is held arrive."""
        self._held.pop().sendall(COMMIT)

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                if self.is_away:
                    client.close()
                    continue
                link = _Link(self, client, socket.create_connection(("127.0.0.1", self.upstream)))
                threading.Thread(target=link.carry_requests, daemon=True).start()
                threading.Thread(target=link.carry_answers, daemon=True).start()

    def met_at(self, data: bytes) -> Moment | None:
        """What to do with ``data`` of a client, when it is the COMMIT that the proxy waits for."""
        if data != COMMIT or not self._armed:
            return None
        moment, self.is_away = self._armed.pop()
        self.met.append(moment)
        return moment

    def hold(self, server: socket.socket) -> None:
        """Keep a connection for ``release``."""
        self._held.append(server)


@dataclass
class _Link:
    """One client's connection. ``is_cut``: what the server answers from now on, nobody hears."""

    proxy: CommitProxy
    client: socket.socket
    server: socket.socket
    is_cut: bool = False

    def carry_requests(self) -> None:
        """From the client to the server."""
        with suppress(OSError):
            while data := self.client.recv(65536):
                if moment := self.proxy.met_at(data):
                    self._cut(moment)
                    return
                self.server.sendall(data)
        _end(self.server)

    def carry_answers(self) -> None:
        """From the server to the client."""
        with suppress(OSError):
            while (data := self.server.recv(65536)) and not self.is_cut:
                self.client.sendall(data)
        _end(self.client)
        _end(self.server)

    def _cut(self, moment: Moment) -> None:
        self.is_cut = True
        if moment is Moment.AFTER:
            self.server.sendall(COMMIT)  # its answer ends the connection
        elif moment is Moment.HELD:
            self.proxy.hold(self.server)
            _end(self.client)
        else:
            _end(self.server)
            _end(self.client)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def commit_proxy(upstream: int) -> Iterator[CommitProxy]:
    """A proxy in front of the PostgreSQL that listens on the port ``upstream``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = CommitProxy(upstream, listener)
        thread = threading.Thread(target=proxy.serve, daemon=True)
        thread.start()
        yield proxy
        _end(listener)
        thread.join()

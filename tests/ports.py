"""Ports for servers that tests start as processes."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

#: Below the ports that Linux gives to outgoing connections and those of Kubernetes' services: between our look and the
#: server's bind nobody else takes one of these by chance.
FIRST, LAST = 20_000, 29_999
_LISTENS = "0A"
#: Libraries of random tests set the seed of the common generator, the same in each process.
_CHANCE = random.SystemRandom()
_GIVEN: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on now at any address, and that this process was not given before.

    Raises RuntimeError when there is none.
    """
    for _ in range(100):
        port = _CHANCE.randint(FIRST, LAST)
        if port in _GIVEN:
            continue
        with socket.socket() as probe:
            try:
                # A server that listens at one address only is in the way of one at all addresses.
                probe.bind(("", port))
            except OSError:
                continue
        _GIVEN.add(port)
        return port
    raise RuntimeError(f"no port between {FIRST} and {LAST} is free")


def listening_ports(pid: int) -> list[int]:
    """The TCP ports of IPv4 at which a process waits for connections, told by the kernel."""
    process = Path("/proc", str(pid))
    sockets = {found[1] for link in _links(process / "fd") if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}
    rows = [line.split() for line in (process / "net" / "tcp").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENS and row[9] in sockets]


def answering_port(
    server: subprocess.Popen[bytes], answers: Callable[[int], bool], log: Path, *, seconds: float
) -> int:
    """The port that the kernel gave ``server``, as soon as it ``answers`` there. Raises RuntimeError with its log."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        for port in listening_ports(server.pid):
            if answers(port):
                return port
        time.sleep(0.2)
    raise RuntimeError(f"the server did not answer: {log.read_text()[-2000:]}")


def _links(folder: Path) -> Iterator[str]:
    for link in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield str(link.readlink())

"""Ports for servers that tests start as processes."""

from __future__ import annotations

import random
import socket

#: Below the ports that Linux gives to outgoing connections and those of Kubernetes' services: between our look and the
#: server's bind nobody else takes one of these by chance.
FIRST, LAST = 20_000, 29_999


def free_port() -> int:
    """A port of the loopback address that nobody listens on now. Raises RuntimeError when there is none."""
    for _ in range(100):
        port = random.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port between {FIRST} and {LAST} is free")

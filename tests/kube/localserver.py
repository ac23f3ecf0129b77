"""The server of `skipstone local` as a program for tests: `python -m tests.kube.localserver DIR`.

It ends with whoever started it, tells by a file that it serves, and writes an audit log.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from skipstone_local.server import serving

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Audit(logging.Handler):
    """Writes each request as an Event of audit.k8s.io."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.out = path.open("a")

    def emit(self, record: logging.LogRecord) -> None:
        request = record.__dict__
        verb = VERBS.get(request["method"]) or ("watch" if request["watch"] else "get" if request["object"] else "list")
        target = {"resource": request["resource"], "namespace": request["namespace"], "name": request["object"]}
        told = {
            "verb": verb,
            "user": {"username": request["user"]},
            "objectRef": target,
            "responseStatus": {"code": request["status"]},
            "userAgent": request["agent"],
        }
        self.out.write(json.dumps(told) + "\n")
        self.out.flush()


def main(folder: Path) -> None:
    """Serve until SIGTERM, or until standard input ends."""
    requests = logging.getLogger("skipstone_local.requests")
    requests.setLevel(logging.INFO)
    requests.addHandler(Audit(folder / "audit.log"))
    requests.propagate = False
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    with serving(folder):
        (folder / "served").write_text(str(os.getpid()))
        while not ended.wait(1.0):
            pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))

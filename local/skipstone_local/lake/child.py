"""``python -m skipstone_local.lake.child ROOT``: serves a folder until standard input ends.

Its first line on standard output says that it serves, that another process does, or why it does not.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from skipstone_core.errors import SkipstoneError

from skipstone_local.lake.serving import SERVED, SERVES
from skipstone_local.places import find_root
from skipstone_local.server import AlreadyServed
from skipstone_local.up import UpOptions, serving_all

#: A command that serves the folder for itself ends sooner than this.
COMMAND_SECONDS = 5.0
PAUSE = 0.1


def serve(root: Path) -> int:
    """Serve the folder until standard input ends; the exit code."""
    stopped = threading.Event()
    threading.Thread(target=_await_end, args=(stopped,), daemon=True).start()
    folder, options = find_root(root), UpOptions()
    end = time.monotonic() + COMMAND_SECONDS
    while True:
        try:
            with serving_all(folder, options, lambda line: None, os.environ) as service:
                _say(SERVES)
                return service.work([], stopped, options)
        except AlreadyServed:
            if time.monotonic() >= end:
                _say(SERVED)
                return 0
        except (SkipstoneError, OSError) as error:
            _say(str(error))
            return 1
        time.sleep(PAUSE)


def _await_end(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


def _say(line: str) -> None:
    sys.stdout.write(f"{' '.join(line.split())}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])))

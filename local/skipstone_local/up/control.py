"""The operator as a child of the process that serves a folder: `python -m skipstone_local.up.control`.

What takes long, its imports, is done while the API server starts. Its variables come in a line of JSON on stdin. A line
more asks it to end; when stdin ends without that, whoever started it was killed, and it ends at once: the next one
holds the same Lease.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from skipstone_operator.__main__ import main

#: How long the operator gets to end by itself when nobody wants it any more.
END_SECONDS = 5.0


def run() -> int:
    """Wait for the variables, run the operator; the exit code."""
    line = sys.stdin.readline()
    if not line.strip():
        return 0
    os.environ.update(json.loads(line))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    return main(os.environ)


def _end_with_stdin() -> None:
    if not sys.stdin.readline():
        os._exit(1)
    end = threading.Timer(END_SECONDS, os._exit, (1,))
    end.daemon = True
    end.start()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run())

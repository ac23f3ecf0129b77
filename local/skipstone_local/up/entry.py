"""Where `up` begins: the operator's process is started first, and loads what it needs while this one does so, too."""

from __future__ import annotations

import fcntl
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from skipstone_local.places import RootFolder, find_root
from skipstone_local.up.roots import Tell, UpOptions, check_root, prepared

#: A command that serves the folder for itself ends sooner than this.
COMMAND_SECONDS = 5.0
PAUSE_SECONDS = 0.1


def run(root: Path, manifests: Sequence[str], options: UpOptions, tell: Tell, host: Mapping[str, str]) -> int:
    """Serve ``root``: apply ``manifests`` (files, folders or -), run what they ask for, show it; the exit code.

    0: told to stop, or all is well; 1: something failed, with its sentence; 130: stopped before it was settled, with
    ``once``. A folder that another process serves is not served twice: its objects are applied there and waited for.
    ``host``: the variables that runs inherit. Raises CliError and OSError.
    """
    folder, stopped = check_root(find_root(root)), threading.Event()
    with _signals(stopped):
        end = time.monotonic() + COMMAND_SECONDS
        while not stopped.is_set() and time.monotonic() < end:
            if not _is_served(folder):
                with prepared(folder) as operator:
                    from skipstone_local.server import AlreadyServed
                    from skipstone_local.up.serving import read_all, serving_with

                    bodies = read_all(manifests)
                    with suppress(AlreadyServed), serving_with(operator, folder, options, tell, host) as service:
                        return service.work(bodies, stopped, options)
            time.sleep(PAUSE_SECONDS)
        from skipstone_local.up.serving import follow, read_all

        return follow(folder, read_all(manifests), stopped, options, tell)


def _is_served(folder: RootFolder) -> bool:
    try:
        with folder.lock.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no such folder yet
        return False
    return False


@contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM ask to stop; once more, they end the process as they do without this."""

    def stop(number: int, _: Any) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

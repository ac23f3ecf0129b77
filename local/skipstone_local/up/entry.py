"""Where `up` begins: the operator's process is started first, and loads what it needs while this one does so, too."""

from __future__ import annotations

import fcntl
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skipstone_cli.errors import CliError

from skipstone_local.owners import UnfitFolder, make_folder, require_own
from skipstone_local.places import RootFolder, find_root
from skipstone_local.up.operators import OperatorProcess

#: A command that serves the folder for itself ends sooner than this.
COMMAND_SECONDS = 5.0
PAUSE_SECONDS = 0.1
#: Characters that addresses of files, properties or shells read as something else.
_MISREAD = re.compile(r"[\x00-\x1f\x7f#?%\\\"'`$,;:]")
Tell = Callable[[str], None]


class BadRoot(CliError):
    """The root folder cannot hold tables. ``sentence``: why, without the way out that its text has, too."""

    def __init__(self, sentence: str, way_out: str) -> None:
        super().__init__(f"{sentence}: {way_out}")
        self.sentence = sentence


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """How to serve. ``once``: end as soon as everything is settled; ``python``: an interpreter with the data plane.

    ``namespace``: of objects that name none.
    """

    once: bool = False
    python: str = sys.executable
    namespace: str = "default"


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


@contextmanager
def prepared(folder: RootFolder) -> Iterator[OperatorProcess]:
    """An operator's process that gets ready; it is ended behind the block. Raises BadRoot."""
    try:
        make_folder(folder)
    except UnfitFolder as error:
        raise BadRoot(error.sentence, error.way_out) from error
    operator = OperatorProcess(folder.log)
    operator.prepare()
    try:
        yield operator
    finally:
        operator.stop()


def check_root(folder: RootFolder) -> RootFolder:
    """The folder, whose path becomes part of addresses of files. Raises BadRoot and OSError."""
    if misread := _MISREAD.search(str(folder.path)):
        raise BadRoot(
            f"{str(folder.path)!r} cannot be the folder of tables, since addresses of files cannot hold {misread[0]!r}",
            "choose another by --root or SKIPSTONE_LOCAL",
        )
    try:
        require_own(folder)
    except UnfitFolder as error:
        raise BadRoot(error.sentence, error.way_out) from error
    origin = folder.origin.read_text() if folder.origin.exists() else ""
    if origin and origin != str(folder.path.resolve()) and any(folder.path.glob("claims/*/*/*")):
        raise BadRoot(
            f"{folder.path} was moved or copied from {origin}, by which its tables name their files",
            "move it back there, or choose another folder",
        )
    return folder


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

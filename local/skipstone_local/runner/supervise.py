"""The parent of a pod's process: starts it, ends it when told or when its time is up, and writes down how it ended.

A program of its own, `python -I -S supervise.py FOLDER` with the order on stdin, in a session of its own: it lives on
when the runner is killed. Imports nothing but the standard library. Its lock on FOLDER/lock says that it lives; the
file FOLDER/begun, which only one of several can make, that nobody may start the process again.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

LOCK, BEGUN, PROCESS, STOP, END, LOG = "lock", "begun", "process.json", "stop.json", "end.json", "log"
#: A variable that marks every process of a pod, whoever started it.
POD_VARIABLE = "SKIPSTONE_LOCAL_POD"
_NOT_STARTED = 128
_REQUESTS = {signal.SIGTERM, signal.SIGINT}
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: Processes that are left are looked for again while killing them shows others.
_KILL_ROUNDS = 50
_KILL_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Order:
    """The process to start. ``deadline``: its end, in seconds since the epoch; ``grace``: seconds that it gets then."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    deadline: float | None
    grace: float


def main(folder: Path, text: str) -> None:
    """Supervise the process that ``text`` (an Order as JSON) asks for, until it has ended."""
    order = Order(**json.loads(text))
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            os.close(os.open(folder / BEGUN, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        Supervisor(folder, order).run()


class Supervisor:
    """One process and its end."""

    def __init__(self, folder: Path, order: Order) -> None:
        """Listen to signals from here on."""
        self._folder, self._order = folder, order
        self._heard, writer = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        self._stopped = False
        self._late = False
        self._kill_at: float | None = None
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> None:
        """Start the process, wait for its end, write it down."""
        self._driver = start(self._order, self._folder / LOG)
        write_whole(
            self._folder / PROCESS, {"supervisor": os.getpid(), "process": self._driver, "startedAt": timestamp()}
        )
        while (code := self._reap()) is None:
            self._judge()
            self._wait()
        kill_all(self._order.environment[POD_VARIABLE])
        write_whole(self._folder / END, {"exitCode": code, "finishedAt": timestamp(), "deadlineExceeded": self._late})

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _judge(self) -> None:
        """Ask the process to end when it is time, and end it when it does not."""
        now = time.time()
        if self._kill_at is None:
            self._late = self._order.deadline is not None and now >= self._order.deadline
            if self._stopped or self._late:
                self._kill_at = now + self._grace()
                with suppress(ProcessLookupError):
                    os.kill(self._driver, signal.SIGTERM)
        elif self._stopped:
            # Who is told once more may be given less time than before.
            self._kill_at = min(self._kill_at, now + self._grace())
        self._stopped = False
        if self._kill_at is not None and now >= self._kill_at:
            with suppress(ProcessLookupError):
                os.kill(self._driver, signal.SIGKILL)

    def _grace(self) -> float:
        try:
            return float(json.loads((self._folder / STOP).read_text())["grace"])
        except (OSError, ValueError, LookupError):
            return self._order.grace

    def _wait(self) -> None:
        """Sleep until a signal comes or something is due."""
        due = self._kill_at if self._kill_at is not None else self._order.deadline
        seconds = None if due is None else max(due - time.time(), 0.01)
        if select.select([self._heard], [], [], seconds)[0]:
            os.read(self._heard, 4096)

    def _reap(self) -> int | None:
        """The exit code of the process as a shell tells it; None while it runs."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == 0:
                return None
            if pid == self._driver:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def start(order: Order, log: Path) -> int:
    """Start the process in a session of its own; its pid. It is killed when this one ends."""
    target = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    parent = os.getpid()
    # Until it has become its program, the new process has the handlers of this one, which would swallow a signal.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _REQUESTS)
    pid: int | None = None
    try:
        pid = os.fork()
    finally:
        if pid != 0:  # in this process, also if there is no new one
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(target)
            os.close(nothing)
    if pid:
        return pid
    try:
        _become(order, nothing, target, parent)
    except BaseException as error:  # noqa: BLE001 - nothing may come back out of a forked process
        os.write(2, f"the process cannot be started: {error}\n".encode())
    os._exit(_NOT_STARTED)


def _become(order: Order, nothing: int, target: int, parent: int) -> NoReturn:
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it was asked to take this process along
        os._exit(_NOT_STARTED)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _REQUESTS)
    for source, place in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(source, place)
    os.chdir(order.directory)
    os.execvpe(order.command[0], list(order.command), dict(order.environment))


def kill_all(pod: str) -> None:
    """End every process that carries the mark of ``pod``, wherever it went; does nothing where no kernel tells."""
    for _ in range(_KILL_ROUNDS):
        marked = find_marked(pod)
        if not marked:
            return
        for pid in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_KILL_PAUSE_SECONDS)


def find_marked(pod: str) -> list[int]:
    """The processes of this user, but this one, whose environment names ``pod``."""
    mark = f"{POD_VARIABLE}={pod}".encode()
    marked: list[int] = []
    try:
        processes = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 - one call
    except OSError:
        return marked
    for pid in processes:
        with suppress(OSError):
            if pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                marked.append(pid)
    return marked


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` as JSON: the file is there whole, or not at all, also after the machine lost its power."""
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def timestamp() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _prctl(option: int, value: int) -> None:
    """Linux only: elsewhere what the process leaves behind ends by itself, when its pipes do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    os.umask(0o077)
    main(Path(sys.argv[1]), sys.stdin.read())

"""Start and stop the cluster's long-running programs.

Used by `controlplane` and `node`. A program is known by its pid *and* its start time, both kept in a file, so that a
stale file never ends a stranger. Nothing is ever ended by name.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import StateDir

# Fields of /proc/<pid>/stat after the command name, counted from 0.
STATE_FIELD = 0
START_TIME_FIELD = 19
# The kernel tells only of a parent that ends after it was asked to. One that is gone by then has left another in its
# place, which the shell knows as its parent.
UNLESS_ORPHANED = (
    '[ "$PPID" = "$0" ] || { echo "process $0, which started this one, has ended" >&2; exit 1; }; exec "$@"'
)


@dataclass(frozen=True)
class Program:
    """One long-running program: its short name and its command line."""

    name: str
    command: Sequence[str | Path]


def start_program(state: StateDir, program: Program, *, die_with_parent: bool = False) -> None:
    """Start `program` unless it runs already. Its output goes to log/<name>.log, its pid to run/<name>.pid.

    With `die_with_parent` it ends with the thread that called, also when that ends before the program has begun.
    """
    if is_running(state, program.name):
        return
    state.run.mkdir(parents=True, exist_ok=True)
    state.logs.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in program.command]
    if die_with_parent:
        words = ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", UNLESS_ORPHANED, str(os.getpid()), *words]
    with (state.logs / f"{program.name}.log").open("ab") as log:
        child = subprocess.Popen(
            words, cwd=state.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    _pid_file(state, program.name).write_text(f"{child.pid} {_read_start_time(child.pid)}\n")
    # The child outlives this process or is stopped by pid: keep Python from warning about it.
    child.returncode = 0


def is_running(state: StateDir, name: str) -> bool:
    return find_pid(state, name) is not None


def find_pid(state: StateDir, name: str) -> int | None:
    """Return the pid of a program that runs, None when it does not or its file is stale."""
    try:
        pid_text, started = _pid_file(state, name).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    pid = int(pid_text)
    return pid if started != "" and _read_start_time(pid) == started else None


def stop_program(state: StateDir, name: str, *, grace: float = 10.0) -> None:
    """Ask a program to end, kill it after `grace` seconds, and forget it."""
    pid = find_pid(state, name)
    if pid is not None:
        end_process(pid, grace=grace)
    _pid_file(state, name).unlink(missing_ok=True)


def end_process(pid: int, *, grace: float) -> None:
    """End the process `pid`: SIGTERM, then SIGKILL after `grace` seconds. Raises ClusterError if it stays."""
    started = _read_start_time(pid)
    for signal_number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 60.0)):
        deadline = time.monotonic() + patience
        _send(pid, signal_number)
        while time.monotonic() < deadline:
            _reap(pid)
            if started == "" or _read_start_time(pid) != started:
                return
            time.sleep(0.02)
    raise ClusterError(f"process {pid} does not end: look at /proc/{pid}/stack and end it by hand")


def read_log_end(state: StateDir, name: str) -> str:
    """Return the last line of a program's log, for error messages."""
    path = state.logs / f"{name}.log"
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "its log is empty"


def _send(pid: int, signal_number: int) -> None:
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _pid_file(state: StateDir, name: str) -> Path:
    return state.run / f"{name}.pid"


def _read_start_time(pid: int) -> str:
    """Return the start time of a live process in clock ticks, or '' for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[STATE_FIELD] in {"Z", "X"} else fields[START_TIME_FIELD]

"""The folder of a pod: what its process and its supervisor leave there, and whether they live."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from skipstone_local.runner import supervise
from skipstone_local.runner.statuses import KILLED, MAX_MESSAGE_BYTES, MAX_TAIL_BYTES, fit_message, fit_tail

#: Annotations of an object have at most so many bytes together.
MAX_REPORT_BYTES = 256 << 10
SCRATCH, VOLUMES, CONF, TRUST = "scratch", "volumes", "spark-conf", "trust"
REPORT, TERMINATION, SUPERVISOR_LOG = "report", "termination", "supervisor.log"


class Stage(Enum):
    """How far a pod's process is."""

    NEW = auto()
    RUNNING = auto()
    ENDED = auto()
    LOST = auto()


@dataclass(frozen=True)
class PodFolder:
    """The process of the pod ``uid`` as its folder ``path`` shows it, whoever started it."""

    path: Path
    uid: str

    @property
    def log(self) -> Path:
        """Return the file with the output of the process."""
        return self.path / supervise.LOG

    @property
    def report(self) -> Path:
        """Return the file that becomes an annotation of the pod."""
        return self.path / REPORT

    @property
    def termination(self) -> Path:
        """Return the file that becomes the pod's termination message."""
        return self.path / TERMINATION

    def find_stage(self) -> Stage:
        """How far the process is. A supervisor that is dead without having written an end is LOST."""
        if (self.path / supervise.END).exists():
            return Stage.ENDED
        if self._is_locked():
            # Before the lock was seen to be free again, the end may have been written.
            return Stage.RUNNING if (self.path / supervise.BEGUN).exists() else Stage.NEW
        if (self.path / supervise.END).exists():
            return Stage.ENDED
        return Stage.LOST if (self.path / supervise.BEGUN).exists() else Stage.NEW

    def start(self, order: supervise.Order) -> subprocess.Popen[bytes]:
        """Start a supervisor. It starts nothing if one was there before it, or if it is not told all of ``order``."""
        program = [sys.executable, "-I", "-S", supervise.__file__, str(self.path)]
        with (self.path / SUPERVISOR_LOG).open("ab") as log:
            started = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.path, start_new_session=True
            )
        pipe = started.stdin
        if pipe is not None:
            with suppress(BrokenPipeError), pipe:
                pipe.write(json.dumps(asdict(order)).encode())
        return started

    def stop(self, grace: float, reason: str = "", message: str = "") -> bool:
        """Ask the process to end within ``grace`` seconds; False when its supervisor cannot be asked yet.

        ``reason`` and ``message`` are remembered as why this machine ends it.
        """
        pid = self.read_process().get("supervisor")
        if not pid or not self._is_locked():
            return False
        why = {"reason": reason, "message": message} if reason else {}
        supervise.write_whole(self.path / supervise.STOP, {**self.read_stop(), "grace": grace, **why})
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return True

    def bury(self) -> None:
        """Write down the end of a process whose supervisor is dead, after nothing of it lives any more."""
        supervise.kill_all(self.uid)
        end = {"exitCode": KILLED, "finishedAt": supervise.timestamp(), "lost": True}
        supervise.write_whole(self.path / supervise.END, end)

    def shed(self) -> None:
        """Remove what only the process needed; log and end stay."""
        for name in (SCRATCH, VOLUMES, CONF, TRUST):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def look(self) -> tuple[object, ...]:
        """Return values that differ after each change: the stage, and the time of the last report."""
        try:
            reported_ns = self.report.stat().st_mtime_ns
        except OSError:
            reported_ns = 0
        return self.find_stage(), reported_ns, (self.path / supervise.PROCESS).exists()

    def give_up(self) -> bool:
        """See to it that no supervisor starts the process from now on; False when one is about to."""
        if not self.path.exists():
            return True
        try:
            with (self.path / supervise.LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (self.path / supervise.BEGUN).touch()
        except OSError:
            return False
        return True

    def read_process(self) -> dict[str, Any]:
        """When the process started, and pids; empty as long as that is not written."""
        return _read(self.path / supervise.PROCESS)

    def read_end(self) -> dict[str, Any]:
        """The exit code of the process and when it ended."""
        return _read(self.path / supervise.END)

    def read_stop(self) -> dict[str, Any]:
        """Return the note of the request to end the process."""
        return _read(self.path / supervise.STOP)

    def read_message(self, exit_code: int, policy: str) -> str:
        """The termination message: that of the process, or after a failure the end of its log if ``policy`` is so."""
        content = _head(self.termination, MAX_MESSAGE_BYTES)
        if content or exit_code == 0 or policy != "FallbackToLogsOnError":
            return fit_message(content)
        return fit_tail(_tail(self.log, MAX_TAIL_BYTES))

    def read_complaint(self) -> str:
        """Why the supervisor could not start the process."""
        lines = _tail(self.path / SUPERVISOR_LOG, MAX_TAIL_BYTES).decode(errors="replace").strip().splitlines()
        return f"the process cannot be started: {lines[-1] if lines else 'its supervisor was killed'}"

    def read_report(self, limit: int = MAX_REPORT_BYTES) -> str | None:
        """Return the report of the process so far, None without one; more than ``limit`` bytes are not a report."""
        content = _head(self.report, limit + 1)
        return content.decode(errors="replace") if content and len(content) <= limit else None

    def _is_locked(self) -> bool:
        try:
            with (self.path / supervise.LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _head(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def _tail(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - limit, 0))
            return file.read(limit)
    except OSError:
        return b""

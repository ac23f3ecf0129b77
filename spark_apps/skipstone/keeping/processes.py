"""The process of a run: forked from the kept driver, with an environment, a folder and descendants of its own.

What a run leaves behind (processes, files) is taken away when it has ended, however that was.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from skipstone.keeping.assigned import AssignedRun, placed
from skipstone.peek import REQUEST_VARIABLE

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_REQUEST_FILE = "request.json"
#: Whoever has keys asks no metadata service of the machine; the image's entrypoint says so to other drivers.
_KEYS, _NO_METADATA_SERVICE = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "AWS_EC2_METADATA_DISABLED"
_PROCESSES = Path("/proc")
_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")
_log = logging.getLogger(__name__)


class NotSingle(RuntimeError):
    """This process has threads, which would be missing in a fork of it."""


@dataclass(frozen=True)
class RunFolder:
    """What is on disk for one run: its files, its reports, and where it works."""

    path: Path

    @property
    def conf(self) -> Path:
        """The files of the run's ConfigMap."""
        return self.path / "conf"

    @property
    def scratch(self) -> Path:
        """Where the run works, which is HOME and TMPDIR too."""
        return self.path / "tmp"

    @property
    def report(self) -> Path:
        """The latest report."""
        return self.path / "report"

    @property
    def termination_log(self) -> Path:
        """What a node would take for the termination message."""
        return self.path / "termination-log"

    def make(self, files: Mapping[str, str]) -> None:
        """Make the folders, and the files of the run."""
        for folder in (self.conf, self.scratch):
            folder.mkdir(mode=0o700, parents=True)
        for name, content in files.items():
            (self.conf / name).write_text(content)

    def remove(self) -> bool:
        """Remove it; whether nothing is left."""
        return remove_tree(self.path)


@dataclass(frozen=True)
class ChildOrder:
    """What the forked process is to become. ``output``: where it writes what it prints; ``module``: its program."""

    run: AssignedRun
    folder: RunFolder
    environment: Mapping[str, str]
    output: int
    module: str

    def enter(self) -> None:
        """Make this process one of the run's own: nothing of the kept driver is left but what it has imported."""
        gc.freeze()  # an object of the kept driver that is collected later would close a file of the run
        signal.set_wakeup_fd(-1)
        for known in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(known, signal.SIG_DFL)
        # Should the kept driver be killed, so is its run: nobody else would know of it.
        call_prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        os.setsid()
        silence = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((silence, 0), (self.output, 1), (self.output, 2)):
            os.dup2(source, number)
        os.closerange(3, _open_limit())
        os.environ.clear()
        os.environ.update(self.environment)
        os.umask(0o022)
        os.chdir(self.folder.scratch)
        tempfile.tempdir = None
        sys.argv = [self.module]
        logging.getLogger().handlers.clear()


def build_environment(run: AssignedRun, folder: RunFolder, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the run: what the image has, then its own variables, then where its files are."""
    own = {name: placed(value, folder.conf) for name, value in run.variables.items()}
    scratch = str(folder.scratch)
    places = {
        REQUEST_VARIABLE: str(folder.conf / _REQUEST_FILE),
        "SKIPSTONE_REPORT": str(folder.report),
        "SKIPSTONE_TERMINATION_LOG": str(folder.termination_log),
        "SKIPSTONE_REPORT_SYNC": "0",
        "HOME": scratch,
        "TMPDIR": scratch,
    }
    environment = {**inherited, **own, **places}
    if all(environment.get(name) for name in _KEYS):
        environment.setdefault(_NO_METADATA_SERVICE, "true")
    return environment


def fork() -> int:
    """Fork this process. Raises NotSingle while it has threads, whose locks nobody would ever release in the fork."""
    threads = len(names_in(Path("/proc/self/task")))
    if threads != 1:
        raise NotSingle(f"the kept driver has {threads} threads, so no process of a run can be forked from it")
    return os.fork()


def adopt_orphans() -> None:
    """Let processes whose parent has ended become children of this one."""
    call_prctl(_SET_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    call_prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def call_prctl(option: int, value: int) -> None:
    """Set an attribute of this process. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def kill_descendants(except_for: frozenset[int]) -> None:
    """Kill every child of this process but ``except_for`` until there is none, and what these leave behind."""
    while children := [child for child in _children() if child not in except_for]:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _children() -> Iterator[int]:
    me = os.getpid()
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):  # it ended meanwhile
                stat = (entry / "stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == me:
                    yield int(entry.name)


def names_in(folder: Path) -> frozenset[str]:
    """The names of what is in ``folder``."""
    return frozenset(entry.name for entry in folder.iterdir())


def clear_folder(folder: Path, kept: frozenset[str]) -> bool:
    """Remove everything in ``folder`` but what is called as in ``kept``; whether nothing else is left."""
    entries = [entry for entry in folder.iterdir() if entry.name not in kept] if folder.is_dir() else []
    stubborn = [entry for entry in entries if not remove_tree(entry)]
    return not stubborn


def remove_tree(path: Path) -> bool:
    """Remove a file, or a folder with all that is in it; whether nothing is left."""
    for attempt in range(2):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except (OSError, RecursionError) as error:
            _log.warning("%s cannot be removed: %s", path, error)
            if attempt == 0:
                _permit(path)
        else:
            return True
    return False


def _permit(folder: Path) -> None:
    """Allow to list and to change all folders in ``folder``: a run may have taken these rights away."""
    with suppress(OSError, RecursionError):
        folder.chmod(0o700)
        for parent, names, _ in os.walk(folder):
            for path in (Path(parent) / name for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)


def count_memory_kills() -> int:
    """How many processes of this container the kernel has killed for want of memory; 0 where it does not tell."""
    try:
        lines = _MEMORY_EVENTS.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(number) for name, _, number in (line.partition(" ") for line in lines) if name == "oom_kill")


def exit_code_of(wait_status: int) -> int:
    """The exit code as a node tells it: that of the process, or 128 and the signal that killed it."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


def _open_limit() -> int:
    return max((int(name) for name in names_in(Path("/proc/self/fd"))), default=3) + 1

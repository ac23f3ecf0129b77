"""Run commands and tell the person at the terminal what is going on.

Used by every module here. A failed command becomes a ClusterError that names the command, its last words and its log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.errors import ClusterError

Words = Sequence[str | Path]
#: Titles and begins of the stages that run, by what tells that one is done; the first one first.
_running: dict[threading.Event, tuple[str, float]] = {}
_terminal = threading.Lock()


class _Used(threading.local):
    """Processor seconds of the programs that the thread ran to their end."""

    seconds = 0.0


_used = _Used()


@contextmanager
def stage(title: str) -> Iterator[None]:
    """Print `title` with its time, and that of processors: live on a terminal, once at the end elsewhere.

    Stages may run in several threads. What a daemon does for a stage does not count as its processor time.
    """
    started, before = time.monotonic(), _cpu_seconds()
    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(done,), daemon=True)
    _running[done] = title, started
    ticker.start()
    words = "failed after "
    try:
        yield
        words = ""
    finally:
        done.set()
        ticker.join()
        del _running[done]
        took, cpu = time.monotonic() - started, _cpu_seconds() - before
        _show(f"  {title} ... {words}{took:.1f} s{f' ({cpu:.0f} s of processors)' if cpu >= 1 else ''}\n")


def _cpu_seconds() -> float:
    return time.thread_time() + _used.seconds


def _tick(done: threading.Event) -> None:
    """Keep the running time of all stages on the terminal's last line, as long as this stage is the oldest of them."""
    if not sys.stdout.isatty():
        return
    while not done.wait(1.0):
        if next(iter(_running)) is done:
            now = time.monotonic()
            _show("  " + ", ".join(f"{title} ... {now - started:.0f} s" for title, started in list(_running.values())))


def _show(line: str) -> None:
    with _terminal:
        # A terminal's last line is written over, as far as it fits.
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1
            line = f"\r\033[K{line if line.endswith(chr(10)) else line[:width]}"
        print(line, end="", flush=True)


def at_once(*works: Callable[[], object]) -> None:
    """Do `works` in threads side by side. Raises what one of them raised when all have ended."""
    with ThreadPoolExecutor(max_workers=len(works)) as pool:
        doing = [pool.submit(work) for work in works]
    for work in doing:
        work.result()


def run(
    command: Words,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text_input: str | None = None,
) -> str:
    """Return the standard output of `command`. Raises ClusterError when it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, env=env, input=text_input, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ClusterError(
            f"{words[0]} is not installed: run 'make cluster' to have it installed, or install it"
        ) from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise ClusterError(f"'{' '.join(words[:4])}' failed with exit code {done.returncode}: {' '.join(last)}")
    return done.stdout


def succeeds(command: Words) -> bool:
    """Return whether `command` exits with 0. Its output is dropped."""
    words = [str(word) for word in command]
    quiet = subprocess.DEVNULL
    return subprocess.run(words, stdin=quiet, stdout=quiet, stderr=quiet, check=False).returncode == 0


def run_logged(command: Words, log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run a long command with its output in `log`. Raises ClusterError that names the log."""
    words = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        code = _wait(child)
    if code != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise ClusterError(f"{words[0]} failed with exit code {code}: look into {log} (last line: {' '.join(last)})")


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of `child` when it has ended; what it and its children took of processors is added up."""
    try:
        _, status, used = os.wait4(child.pid, 0)
    except BaseException:
        child.kill()
        child.wait()
        raise
    _used.seconds += used.ru_utime + used.ru_stime
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode


def wait_until(condition: Callable[[], bool], *, seconds: float, failure: str, pause: float = 0.1) -> None:
    """Poll `condition` until it holds. Raises ClusterError(`failure`) after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(failure)
        time.sleep(pause)

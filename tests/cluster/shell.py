"""Run commands and tell the person at the terminal what is going on.

Used by every module here. A failed command becomes a ClusterError that names the command, its last words and its log.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.errors import ClusterError

Words = Sequence[str | Path]


@contextmanager
def stage(title: str) -> Iterator[None]:
    """Print `title` with its running time: live on a terminal, once at the end elsewhere."""
    started = time.monotonic()
    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(title, started, done), daemon=True)
    ticker.start()
    try:
        yield
    except BaseException:
        _finish(ticker, done, f"  {title} ... failed after {time.monotonic() - started:.1f} s")
        raise
    _finish(ticker, done, f"  {title} ... {time.monotonic() - started:.1f} s")


def _tick(title: str, started: float, done: threading.Event) -> None:
    if not sys.stdout.isatty():
        return
    while not done.wait(1.0):
        print(f"\r  {title} ... {time.monotonic() - started:.0f} s", end="", flush=True)


def _finish(ticker: threading.Thread, done: threading.Event, line: str) -> None:
    done.set()
    ticker.join()
    lead = "\r" if sys.stdout.isatty() else ""
    print(f"{lead}{line}", flush=True)


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
        code = subprocess.run(
            words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        ).returncode
    if code != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise ClusterError(f"{words[0]} failed with exit code {code}: look into {log} (last line: {' '.join(last)})")


def wait_until(condition: Callable[[], bool], *, seconds: float, failure: str, pause: float = 0.1) -> None:
    """Poll `condition` until it holds. Raises ClusterError(`failure`) after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(failure)
        time.sleep(pause)

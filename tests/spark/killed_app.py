"""An application as a child process that gets a signal (SIGKILL) at a step of its work that can be told from outside.

Steps: a file is created or finished, the catalog is asked to change a row; of a merge also its stages and their ends.
The processes are forked from one that has imported all that applications need, which takes longer than their work.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import runpy
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from skipstone.files.parquet import ParquetFile
from skipstone.files.splicing import SplicedFile
from skipstone.runs import reindex
from skipstone.runs.merging import prune, source
from skipstone.runs.reporting.sinks import FileSink
from skipstone_core.contract.requests import JobRequest

ROOT = Path(__file__).parents[2]
SECONDS = 800.0
_WRITES = [(PyArrowFile, "create"), (ParquetFile, "close"), (SqlCatalog, "create_table"), (SqlCatalog, "commit_table")]
_PHASES = [(source, "require_unchanged"), (prune, "run_funnel"), (FileSink, "finish")]
_STEPS: dict[str, list[tuple[Any, str]]] = {
    "load": _WRITES,
    "reindex": _WRITES,
    "merge": [*_WRITES, *_PHASES],
    "maintain": [*_WRITES, (SplicedFile, "close"), (FileSink, "finish")],
}


class Killer:
    """Counts steps and signals its own process before one of them, once."""

    def __init__(self, fatal: str, sent: signal.Signals) -> None:
        """``fatal``: number or text."""
        self.fatal = fatal
        self.sent = sent
        self.steps = 0
        self.lock = threading.Lock()  # PyIceberg writes manifests in threads

    def watch(self, owner: Any, name: str) -> None:
        """Make every call of ``owner.name`` two steps: before and after it took effect."""
        done: Callable[..., Any] = getattr(owner, name)
        called = f"{owner.__name__.rpartition('.')[2]}.{name}"

        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step(f"before {called}")
            result = done(*args, **kwargs)
            self.step(f"after {called}")
            return result

        setattr(owner, name, stepped)

    def step(self, what: str) -> None:
        """Count a step; die if it is the one."""
        with self.lock:
            self.steps += 1
            print(what, flush=True)
            if self.fatal in (str(self.steps), what):
                self.fatal = ""
                os.kill(os.getpid(), self.sent)


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said. ``steps``: that it took; before the last one it died."""

    code: int
    steps: list[str]
    errors: str


@dataclass(frozen=True)
class Bounds:
    """Of the process; 0: as usual. ``buffer``: bytes of a task's buffer, by which a reindex commits more or less often.

    ``file``: bytes of the largest file that it can write.
    """

    buffer: int = 0
    file: int = 0


def forking() -> ForkServerContext:
    """Makes processes that have imported what applications need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def run_until(
    application: str,
    fatal: str,
    environment: Mapping[str, str],
    folder: Path,
    bounds: Bounds = Bounds(),
    *,
    sent: signal.Signals = signal.SIGKILL,
) -> Ended:
    """Run an application with the environment of a driver pod until it dies.

    ``fatal``: number of the step, or its text, of which the first counts; "0": run to the end. ``folder``: for what it
    says. ``sent``: what it gets then.
    """
    said, errors = folder / "steps", folder / "errors"
    process = forking().Process(
        target=_run, args=(application, (fatal, sent), dict(environment), (said, errors), bounds)
    )
    process.start()
    process.join(SECONDS)
    code = process.exitcode
    if code is None:
        process.kill()
        raise TimeoutError(f"{application} runs for {SECONDS} s")
    process.close()
    return Ended(code, said.read_text().splitlines(), errors.read_text())


def reindex_until(request: JobRequest, folder: Path, step: int, bounds: Bounds) -> tuple[int, list[str]]:
    """Exit code and steps of a reindex that dies before ``step``; 0: that ends. ``folder``: made for its files."""
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(request.to_json())
    paths = {"SKIPSTONE_REQUEST": folder / "request.json", "SKIPSTONE_REPORT": folder / "report.json"}
    environment = {**os.environ, **{name: str(path) for name, path in paths.items()}}
    ended = run_until("reindex", str(step), environment, folder, bounds)
    assert ended.code in (0, -signal.SIGKILL), ended.errors
    return ended.code, [line for line in ended.steps if line.startswith(("before ", "after "))]


def _run(
    application: str,
    fate: tuple[str, signal.Signals],
    environment: Mapping[str, str],
    outputs: tuple[Path, Path],
    bounds: Bounds,
) -> None:
    """In the child."""
    for descriptor, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    if bounds.buffer:
        reindex.BUFFER_BYTES = bounds.buffer
    if bounds.file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bounds.file, bounds.file))
    killer = Killer(*fate)
    for owner, name in _STEPS[application]:
        killer.watch(owner, name)
    runpy.run_path(str(ROOT / "spark_apps" / "skipstone" / "apps" / f"{application}.py"), run_name="__main__")

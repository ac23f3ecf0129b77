"""An application as a child process that dies by SIGKILL at a step of its work that can be told from outside.

Run as ``python killed_app.py reindex|merge <step> [<bytes>]`` with the environment of a driver pod. ``step``: its
number, or its text, of which the first counts; 0: run to the end. ``bytes``: the size of a task's buffer, by which a
reindex commits more or less often. Every step is printed, the last line is that at which it died.
Steps: a file is created or finished, the catalog is asked to change a row; of a merge also its stages and their ends.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from skipstone.files.parquet import ParquetFile
from skipstone.runs import reindex
from skipstone.runs.merging import prune, source
from skipstone.runs.reporting.sinks import FileSink

ROOT = Path(__file__).parents[2]
_WRITES = [(PyArrowFile, "create"), (ParquetFile, "close"), (SqlCatalog, "create_table"), (SqlCatalog, "commit_table")]
_PHASES = [(source, "require_unchanged"), (prune, "run_funnel"), (FileSink, "finish")]
_STEPS: dict[str, list[tuple[Any, str]]] = {"reindex": [*_WRITES], "merge": [*_WRITES, *_PHASES]}


class Killer:
    """Counts steps and dies before one of them."""

    def __init__(self, fatal: str) -> None:
        """``fatal``: number or text."""
        self.fatal = fatal
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
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the application."""
    application, fatal, *buffer = sys.argv[1:]
    for size in buffer:
        reindex.BUFFER_BYTES = int(size)
    killer = Killer(fatal)
    for owner, name in _STEPS[application]:
        killer.watch(owner, name)
    runpy.run_path(str(ROOT / "spark_apps" / f"{application}.py"), run_name="__main__")


if __name__ == "__main__":
    main()

"""The reindex application as a child process that dies by SIGKILL before its n-th step that changes anything.

Run as ``python reindex_app.py <n> <bytes>`` with the environment of a driver pod and the size of a task's buffer, by
which a run commits more or less often; n = 0 runs to the end and prints every step.
Steps are what the outside can see: a file is created or finished, the catalog is asked to change a row. The last line
of standard output is the step at which the process died.
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
from skipstone.rewrite.parquet import ParquetFile
from skipstone.runs import reindex

ROOT = Path(__file__).parents[2]
_STEPS = [(PyArrowFile, "create"), (ParquetFile, "close"), (SqlCatalog, "create_table"), (SqlCatalog, "commit_table")]


class Killer:
    """Counts steps and dies before one of them."""

    def __init__(self, fatal: int) -> None:
        """Die before step number ``fatal``; 0: never."""
        self.fatal = fatal
        self.steps = 0
        self.lock = threading.Lock()  # PyIceberg writes manifests in threads

    def watch(self, kind: type, name: str) -> None:
        """Make every call of ``kind.name`` two steps: before and after it took effect."""
        done: Callable[..., Any] = getattr(kind, name)

        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step(f"before {kind.__name__}.{name}")
            result = done(*args, **kwargs)
            self.step(f"after {kind.__name__}.{name}")
            return result

        setattr(kind, name, stepped)

    def step(self, what: str) -> None:
        """Count a step; die if it is the one."""
        with self.lock:
            self.steps += 1
            print(what, flush=True)
            if self.steps == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the application."""
    killer, reindex.BUFFER_BYTES = Killer(int(sys.argv[1])), int(sys.argv[2])
    for kind, name in _STEPS:
        killer.watch(kind, name)
    runpy.run_path(str(ROOT / "spark_apps" / "reindex.py"), run_name="__main__")


if __name__ == "__main__":
    main()

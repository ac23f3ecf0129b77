"""A kept driver: imports what runs need once, and forks a process for each run that the operator assigns to it."""

from __future__ import annotations

import logging
import os
import runpy
import sys
from pathlib import Path

from skipstone.starting import lean_imports

#: All that a run can write to besides claims: two volumes of the pod, and memory and queues that every container has.
SCRATCH = (Path("/tmp"), Path("/var/lib/skipstone"), Path("/dev/shm"), Path("/dev/mqueue"))
#: A forked process has none of its parent's threads: no library may start one while it is imported.
SINGLE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

if __name__ == "__main__":
    own = dict(os.environ)
    os.environ.update(SINGLE)
    with lean_imports():
        import skipstone.apps.preload  # noqa: F401 - imported for the runs to come
        from skipstone.keeping.keeper import Keeper, KeeperPlace
        from skipstone.keeping.processes import ChildOrder

    os.environ.clear()
    os.environ.update(own)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    outcome = Keeper(KeeperPlace.from_environment(own, SCRATCH[0] / "runs", SCRATCH)).keep()
    if not isinstance(outcome, ChildOrder):
        sys.exit(outcome)
    outcome.enter()
    runpy.run_module(outcome.module, run_name="__main__", alter_sys=True)

"""The dry run of a merge: what it would do to a table. Whoever stops it lets it take away what it keeps for tasks."""

from __future__ import annotations

import os
import signal
import sys

from skipstone.ending import end_with
from skipstone.jvm import start_jvm
from skipstone.peek import may_do_without_spark
from skipstone.starting import lean_imports

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not may_do_without_spark(os.environ):
        start_jvm()  # while the imports below are running

    with lean_imports():
        from skipstone_core.contract.requests import RunKind

        from skipstone.runs.main import run_app
        from skipstone.runs.merging.merge import run_dry

    end_with(lambda: run_app(RunKind.DRY_RUN, run_dry))

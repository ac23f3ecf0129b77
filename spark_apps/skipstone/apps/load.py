"""Driver of a load run."""

from __future__ import annotations

import os

from skipstone.ending import end_with
from skipstone.jvm import start_jvm
from skipstone.peek import may_do_without_spark
from skipstone.starting import lean_imports

if __name__ == "__main__":
    if not may_do_without_spark(os.environ):
        start_jvm()  # while the imports below are running

    with lean_imports():
        from skipstone_core.contract.requests import RunKind

        from skipstone.runs.load import run_load
        from skipstone.runs.main import run_app

    end_with(lambda: run_app(RunKind.LOAD, run_load))

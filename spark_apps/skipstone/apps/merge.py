"""The merge application: apply a change feed to a table. Started by the operator in a driver pod."""

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

        from skipstone.runs.main import run_app
        from skipstone.runs.merging.merge import run_merge

    end_with(lambda: run_app(RunKind.MERGE, run_merge))

"""A driver process for tests: runs the load named by SKIPSTONE_REQUEST, and dies where DIE_AFTER says."""

from __future__ import annotations

import os
import signal
import sys

from pyiceberg.table import Table
from skipstone.runs.load import run_load
from skipstone.runs.main import run_app
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts, NoHooks
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import JobRequest, RunKind


class DieAfterSwap(NoHooks):
    """The process is killed when its commit has landed and nobody was told."""

    def after_swap(self, table: Table) -> None:
        """End as by kill -9."""
        os.kill(os.getpid(), signal.SIGKILL)


def run(request: JobRequest, reporter: Reporter) -> JobReport:
    """The real run with the deadly hook."""
    return run_load(request, reporter, CommitPorts(hooks=DieAfterSwap()))


if __name__ == "__main__":
    sys.exit(run_app(RunKind.LOAD, run))

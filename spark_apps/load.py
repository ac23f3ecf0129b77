"""Driver of a load run."""

from __future__ import annotations

import sys

from skipstone.runs.load import run_load
from skipstone.runs.main import run_app
from skipstone_core.jobs import RunKind

if __name__ == "__main__":
    sys.exit(run_app(RunKind.LOAD, run_load))

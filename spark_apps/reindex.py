"""Driver of a reindex run."""

from __future__ import annotations

import sys

from skipstone.runs.main import run_app
from skipstone.runs.reindex import run_reindex
from skipstone_core.contract.requests import RunKind

if __name__ == "__main__":
    sys.exit(run_app(RunKind.REINDEX, run_reindex))

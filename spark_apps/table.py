"""Application of table runs: request in, report out, exit code. Its steps are in ``skipstone.runs.table``."""

from __future__ import annotations

import sys

from skipstone.runs.main import run_app
from skipstone.runs.table import run_table
from skipstone_core.contract.requests import RunKind

if __name__ == "__main__":
    sys.exit(run_app(RunKind.TABLE, run_table))

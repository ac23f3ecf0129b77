"""Application of confirm runs: request in, report out, exit code. Its steps are in ``skipstone.runs.confirm``."""

from __future__ import annotations

import sys

from skipstone.runs.confirm import run_confirm
from skipstone.runs.main import run_app
from skipstone_core.contract.requests import RunKind

if __name__ == "__main__":
    sys.exit(run_app(RunKind.CONFIRM, run_confirm))

"""Application of drop runs: request in, report out, exit code. Its steps are in ``skipstone.runs.drop``."""

from __future__ import annotations

import sys

from skipstone.runs.drop import run_drop
from skipstone.runs.main import run_app
from skipstone_core.contract.requests import RunKind

if __name__ == "__main__":
    sys.exit(run_app(RunKind.DROP, run_drop))

"""Driver of a maintain run."""

from __future__ import annotations

import sys

from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        from skipstone.runs.main import run_app
        from skipstone.runs.maintaining.maintain import run_maintain
        from skipstone_core.contract.requests import RunKind

    sys.exit(run_app(RunKind.MAINTAIN, run_maintain))

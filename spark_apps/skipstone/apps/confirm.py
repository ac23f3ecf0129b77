"""Application of confirm runs: request in, report out, exit code. Its steps are in ``skipstone.runs.confirm``."""

from __future__ import annotations

from skipstone.ending import end_with
from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        from skipstone_core.contract.requests import RunKind

        from skipstone.runs.confirm import run_confirm
        from skipstone.runs.main import run_app

    end_with(lambda: run_app(RunKind.CONFIRM, run_confirm))

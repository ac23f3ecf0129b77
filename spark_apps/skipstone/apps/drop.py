"""Application of drop runs: request in, report out, exit code. Its steps are in ``skipstone.runs.drop``."""

from __future__ import annotations

from skipstone.ending import end_with
from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        from skipstone_core.contract.requests import RunKind

        from skipstone.runs.drop import run_drop
        from skipstone.runs.main import run_app

    end_with(lambda: run_app(RunKind.DROP, run_drop))

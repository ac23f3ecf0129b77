"""Driver of a reindex run."""

from __future__ import annotations

from skipstone.ending import end_with
from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        from skipstone_core.contract.requests import RunKind

        from skipstone.runs.main import run_app
        from skipstone.runs.reindex import run_reindex

    end_with(lambda: run_app(RunKind.REINDEX, run_reindex))

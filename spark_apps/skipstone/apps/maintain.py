"""Driver of a maintain run. SIGTERM asks it to give way: it ends after the commit in hand, with a report."""

from __future__ import annotations

from functools import partial

from skipstone.ending import end_with
from skipstone.starting import lean_imports

if __name__ == "__main__":
    with lean_imports():
        from skipstone_core.contract.requests import RunKind

        from skipstone.runs.main import run_app
        from skipstone.runs.maintaining.maintain import run_maintain
        from skipstone.runs.maintaining.site import GivingWay

    gives_way = GivingWay()

    def maintain() -> int:
        with gives_way.when_terminated():
            return run_app(RunKind.MAINTAIN, partial(run_maintain, gives_way=gives_way))

    end_with(maintain)

"""What every step of a maintain run works on, and when it gives way.

Used by the maintain run and its steps. Must not know what a step does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone_core.contract.reports import StepReport
from skipstone_core.contract.requests import JobRequest, MaintainTask, TableRef

from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import load_table
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tasks.share import USUAL_SHARE, DriverShare


class GivingWay:
    """Whether the run was asked to end."""

    def __init__(self) -> None:
        """Not yet."""
        self._asked = threading.Event()

    def __call__(self) -> bool:
        """Return whether it was."""
        return self._asked.is_set()

    def ask(self) -> None:
        """End after the commit in hand."""
        self._asked.set()

    @contextmanager
    def when_terminated(self) -> Iterator[None]:
        """SIGTERM asks while the block runs; it ends nothing. For the main thread, which hears signals."""
        before = signal.signal(signal.SIGTERM, lambda _signal, _frame: self.ask())
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True, kw_only=True)
class MaintainSite:
    """The site of steps. ``gives_way``: asked between commits; a step then ends, with a report of what it did.

    Each step commits so that it may be killed at any point: what it did not commit is as if it had not been done.
    """

    request: JobRequest
    reporter: Reporter
    catalog: Catalog
    ref: TableRef
    task: MaintainTask
    ports: CommitPorts = field(default_factory=CommitPorts)
    share: DriverShare = USUAL_SHARE
    gives_way: GivingWay = field(default_factory=GivingWay)

    def load(self) -> Table:
        """The table as it is now. Raises BadSpec, DependencyUnavailable."""
        return load_table(self.catalog, self.ref)


#: A step: what became of it. Raises SkipstoneError or OSError; what it committed before stays.
Step = Callable[[MaintainSite], StepReport]

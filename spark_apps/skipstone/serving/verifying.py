"""Looks into files that some answers left out, after they were given, where a Warehouse asks for it.

A file with a row that should have been found is counted and logged, and from then on this replica plans the table
without indexes. Must not delay an answer.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom
from threading import Lock
from typing import Final

from pyiceberg.table import Table

from skipstone.query.scans import PlannedScan
from skipstone.query.verifying import verify_scan
from skipstone.serving.measures import PlanningMeasures

#: The share of plans that are looked into, and how many files of each.
SHARE: Final = 0.02
FILES: Final = 2
_RANDOM: Final = SystemRandom()
_log = logging.getLogger(__name__)


class PlanVerifier:
    """Looks into the plans of one replica, one at a time: into up to ``files`` of a ``share`` of them."""

    def __init__(self, measures: PlanningMeasures, share: float = SHARE, files: int = FILES) -> None:
        self._measures, self._share, self._files = measures, share, files
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="verify")
        self._idle = Lock()
        self._distrusted: set[str] = set()

    def trusts(self, table: Table) -> bool:
        """Return whether no index of ``table`` has been found to be wrong."""
        return str(table.metadata.table_uuid) not in self._distrusted

    def offer(self, table: Table, scan: PlannedScan) -> None:
        """Look into ``scan`` if it is its turn and nothing else is being looked into."""
        if _RANDOM.random() < self._share and self._idle.acquire(blocking=False):
            self._pool.submit(self._verify, table, scan)

    def close(self) -> None:
        """Wait for what is running."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _verify(self, table: Table, scan: PlannedScan) -> None:
        try:
            verification = verify_scan(table, scan, self._files, _RANDOM)
        except Exception as error:  # noqa: BLE001 - a file that cannot be read says nothing of the plan
            _log.info("a plan cannot be verified: %s", type(error).__name__)
            self._measures.verified("unfinished")
            return
        finally:
            self._idle.release()
        self._measures.verified("wrong" if verification.wrong else "right" if verification.is_whole else "unfinished")
        if verification.wrong:
            self._distrusted.add(str(table.metadata.table_uuid))
            used = ", ".join(use.name for use in scan.indexes if use.used) or "none"
            _log.error(
                "a plan of %s, snapshot %s, left out %s, which holds a row that its filter wants (indexes used: %s); "
                "this replica plans the table without indexes from now on: drop and create the indexes and restart it",
                ".".join(table.name()),
                scan.files.snapshot_id,
                ", ".join(verification.wrong),
                used,
            )

"""What is decided before a writing run plans anything: its transaction, and its source.

Called by the load run before it starts a JVM. Reads the table's metadata only.
"""

from __future__ import annotations

from pyiceberg.table import Table
from skipstone_core.contract.requests import DuplicatesPolicy, SourceSpec
from skipstone_core.history.commits import Conflicted, Outcome, find_outcome

from skipstone.tables.records.txns import find_source_conflict, find_txn


def settled(table: Table, txn: str) -> Outcome | None:
    """The outcome of ``txn`` when the table (freshly loaded) already knows it, else None."""
    return find_outcome(find_txn(table, txn))


def applied_already(table: Table, source: SourceSpec, digest: str) -> Conflicted | None:
    """Why a source that another job applied is refused, or None."""
    return None if source.duplicates is DuplicatesPolicy.ALLOW else find_source_conflict(table, digest)

"""What is decided before a writing run plans anything: its transaction, and its source.

Called by the load run before it starts a JVM. Reads the table's metadata only.
"""

from __future__ import annotations

from pyiceberg.table import Table
from skipstone_core.contract.requests import DuplicatesPolicy, SourceSpec
from skipstone_core.history.commits import (
    UNTOLD,
    Aborted,
    AlreadyCommitted,
    Conflicted,
    Outcome,
    Present,
    RolledBack,
    Unknown,
    Untold,
)
from skipstone_core.reasons import Reason

from skipstone.tables.records.txns import find_source_conflict, find_txn


def settled(table: Table, txn: str) -> Outcome | None:
    """The outcome of ``txn`` when the table (freshly loaded) already knows it, else None."""
    match find_txn(table, txn):
        case Present(record):
            return AlreadyCommitted(record)
        case RolledBack():
            message = "The commit of this job was rolled back in the table; create a new job to apply it again."
            return Conflicted(Reason.ROLLED_BACK, message)
        case Untold():
            return Unknown(UNTOLD)
        case Aborted():
            return Conflicted(Reason.ABORTED, "This job was given up and fenced off before it committed.")
        case _:
            return None


def applied_already(table: Table, source: SourceSpec, digest: str) -> Conflicted | None:
    """Why a source that another job applied is refused, or None."""
    return None if source.duplicates is DuplicatesPolicy.ALLOW else find_source_conflict(table, digest)

"""What is decided before a writing run plans anything: its transaction, and its source.

Called by the load run before it starts a JVM. Reads the table's metadata only.
"""

from __future__ import annotations

from pyiceberg.table import Table
from skipstone_core.commits import Aborted, AlreadyCommitted, Conflicted, Outcome, Present, RolledBack
from skipstone_core.contract.requests import DuplicatesPolicy, SourceSpec
from skipstone_core.reasons import Reason

from skipstone.tables.commits import find_digest, find_txn


def settled(table: Table, txn: str) -> Outcome | None:
    """The outcome of ``txn`` when the table (freshly loaded) already knows it, else None."""
    match find_txn(table, txn):
        case Present(record):
            return AlreadyCommitted(record)
        case RolledBack():
            message = "The commit of this job was rolled back in the table; create a new job to apply it again."
            return Conflicted(Reason.ROLLED_BACK, message)
        case Aborted():
            return Conflicted(Reason.ABORTED, "This job was given up and fenced off before it committed.")
        case _:
            return None


def applied_already(table: Table, source: SourceSpec, digest: str) -> Conflicted | None:
    """Why a source that another job applied is refused, or None."""
    if source.duplicates is DuplicatesPolicy.ALLOW or not (other := find_digest(table, digest)):
        return None
    message = f"The job with uid {other} already applied the same source; set source.duplicates to Allow."
    return Conflicted(Reason.SOURCE_ALREADY_APPLIED, message)

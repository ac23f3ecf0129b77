"""What is decided before a writing run plans anything: its transaction, its source, and what earlier attempts left.

Called by the load run before it starts a JVM. Reads the table's metadata only.
"""

from __future__ import annotations

from pyiceberg.table import Table
from skipstone_core.contract.requests import DuplicatesPolicy, JobRequest, SourceSpec
from skipstone_core.history.commits import Conflicted, Outcome, find_outcome
from skipstone_core.ids import is_file_of_earlier_run

from skipstone.files.writer import data_location
from skipstone.tables.records.txns import find_source_conflict, find_txn
from skipstone.tables.storage import DurableFileIO


def settled(table: Table, txn: str) -> Outcome | None:
    """The outcome of ``txn`` when the table (freshly loaded) already knows it, else None."""
    return find_outcome(find_txn(table, txn))


def applied_already(table: Table, source: SourceSpec, digest: str) -> Conflicted | None:
    """Why a source that another job applied is refused, or None."""
    return None if source.duplicates is DuplicatesPolicy.ALLOW else find_source_conflict(table, digest)


def abort_earlier_uploads(request: JobRequest, table: Table) -> None:
    """Abort the uploads of data files to ``table`` that earlier attempts did not finish: their pods are gone.

    What goes wrong is logged, and left for the attempt after this one.
    """
    if request.attempt > 1 and isinstance(table.io, DurableFileIO):
        table.io.abort_uploads(data_location(table), lambda key: is_file_of_earlier_run(key, request.run_id))

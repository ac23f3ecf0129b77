"""What is decided before a writing run plans anything: its transaction, its source, and what earlier attempts left.

Called by loads and merges before they start a JVM, and when they end: what is kept for further attempts of a job goes
once none can follow. Reads the table's metadata only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import DuplicatesPolicy, JobRequest, SourceSpec, TableRef
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.history.commits import AlreadyCommitted, Committed, Conflicted, Outcome, find_outcome
from skipstone_core.ids import RUNS_DIRECTORY, is_file_of_earlier_run
from skipstone_core.reasons import Reason

from skipstone.sources.listing import unpin_source
from skipstone.storage.opening import open_storage
from skipstone.tables.answers.branches import BranchTable
from skipstone.tables.catalogs import load_table, open_catalog
from skipstone.tables.records.txns import find_source_conflict, find_txn
from skipstone.tables.storage import DurableFileIO, data_location

#: Ends of a run that says that it committed nothing. What is not known is looked up by the next attempt.
_IN_VAIN = frozenset({RunOutcome.FAILED, RunOutcome.CONFLICTED})
_log = logging.getLogger(__name__)


def load_or_settle(catalog: Catalog, ref: TableRef, txn: str) -> Table | Outcome:
    """The table as it is now; of a branch that is gone, how ``txn`` stands in the history of main.

    A branch may be published and dropped before the job is told that its commit landed. Raises as ``load_table`` does.
    """
    try:
        return load_table(catalog, ref)
    except BadSpec as error:
        if error.reason is not Reason.BRANCH_NOT_FOUND or not txn:
            raise
        if outcome := _settled_on_main(catalog, ref, txn):
            return outcome
        raise


def _settled_on_main(catalog: Catalog, ref: TableRef, txn: str) -> Outcome | None:
    outcome = settled(load_table(catalog, ref.on_main), txn)
    if ref.branch is not None and isinstance(outcome, Conflicted) and outcome.reason is Reason.ROLLED_BACK:
        return Conflicted(Reason.ROLLED_BACK, _not_in(ref.branch.name))
    return outcome


def _not_in(branch: str) -> str:
    return (
        f"The commit of this job is not in the history of the branch {branch!r} any more, because the branch was "
        "rolled back, dropped or created again; create a new job to apply it again."
    )


def settled_meanwhile(request: JobRequest, table: Table) -> Outcome | None:
    """As ``settled``, of ``table`` as it is now: for a job that finds nothing to do. Raises as ``load_table`` does."""
    return settled(load_table(table.catalog, request.table), request.txn) if request.txn and request.table else None


def settled(table: Table, txn: str) -> Outcome | None:
    """The outcome of ``txn`` when the table (freshly loaded) already knows it, else None."""
    outcome = find_outcome(find_txn(table, txn))
    if isinstance(table, BranchTable) and isinstance(outcome, Conflicted) and outcome.reason is Reason.ROLLED_BACK:
        return Conflicted(Reason.ROLLED_BACK, _not_in(table.branch))
    return outcome


def reported_once(request: JobRequest, run: Callable[[], JobReport]) -> JobReport:
    """Return the report of ``run`` on a job, also if another attempt committed it while this one failed.

    An attempt that was stopped may wake up when all is done: its source is gone then, or has changed. ``run`` goes
    again and finds the transaction in the table. Raises what ``run`` raises while it is not there.
    """
    try:
        report = run()
    except (BadSpec, BadData):
        if not _is_committed(request):
            raise
        _log.info("another attempt committed while this one failed", exc_info=True)
        return run()
    return run() if report.outcome in _IN_VAIN and _is_committed(request) else report


def _is_committed(request: JobRequest) -> bool:
    """Return whether the table, freshly loaded, has the transaction of the job; False if it cannot be read."""
    try:
        if request.table is None:
            return False
        table = load_or_settle(open_catalog(request.warehouse), request.table, request.txn)
        outcome = settled(table, request.txn) if isinstance(table, Table) else table
        return isinstance(outcome, AlreadyCommitted)
    except Exception:  # noqa: BLE001 - what the run itself said stands
        _log.info("whether another attempt committed cannot be seen", exc_info=True)
        return False


def applied_already(table: Table, source: SourceSpec, digest: str) -> Conflicted | None:
    """Why a source that another job applied is refused, or None."""
    return None if source.duplicates is DuplicatesPolicy.ALLOW else find_source_conflict(table, digest)


def abort_earlier_uploads(request: JobRequest, table: Table) -> None:
    """Abort the uploads of data files to ``table`` that earlier attempts did not finish: their pods are gone.

    What goes wrong is logged, and left for the attempt after this one.
    """
    if request.attempt > 1 and isinstance(table.io, DurableFileIO):
        table.io.abort_uploads(data_location(table), lambda key: is_file_of_earlier_run(key, request.run_id))


def forget_committed(request: JobRequest, outcome: Outcome) -> None:
    """Remove what is kept for further attempts of a job once its transaction is in the table. Never fails a run.

    Nothing but the list of its files is left of a first attempt that ends here: it removed the rest itself.
    """
    if not isinstance(outcome, Committed | AlreadyCommitted):
        return
    if request.attempt > 1:
        forget_job(request)
        return
    with _kept_when_it_fails(request):
        unpin_source(request.warehouse, request.owner_uid)


def forget_job(request: JobRequest) -> None:
    """Remove all that is kept for further attempts of a job, and what attempts left that died. Never fails a run."""
    with _kept_when_it_fails(request):
        open_storage(request.warehouse).delete_folder(f"{RUNS_DIRECTORY}/{request.owner_uid}")


@contextmanager
def _kept_when_it_fails(request: JobRequest) -> Iterator[None]:
    try:
        yield
    except (UserError, OSError):
        _log.info("what was kept for attempts of %s stays", request.owner_uid, exc_info=True)

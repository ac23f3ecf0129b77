"""The confirm run: did a job's commit land? When not, it never will: an empty snapshot fences it off."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.catalog import Catalog
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import JobRequest, TableRef
from skipstone_core.errors import BadSpec
from skipstone_core.history.commits import UNREPORTED, Aborted, AlreadyCommitted, Present, RolledBack, TxnState, Untold
from skipstone_core.reasons import Reason

from skipstone.runs.reporting.leftout import recall_unused
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state
from skipstone.runs.settled import forget_job
from skipstone.tables.catalogs import open_known_catalog
from skipstone.tables.committing.commits import CommitPorts, abort_txn
from skipstone.tables.resolution import Lost, find_table


def run_confirm(request: JobRequest, reporter: Reporter, ports: CommitPorts | None = None) -> JobReport:
    """AlreadyCommitted, or Absent once the transaction is fenced off; Unknown when neither could be established.

    Raises DependencyUnavailable.
    """
    if request.table is None or request.confirm is None:
        raise BadSpec(Reason.INVALID_SPEC, "a confirm run needs a table and a transaction.", field="request")
    catalog = open_known_catalog(request.warehouse)
    with reporter.stage("confirm"):
        report = _confirm(catalog, request.table, request.confirm.txn, reporter, ports)
    if report.outcome is not RunOutcome.UNKNOWN:
        forget_job(request)
    state = report_state(catalog, request.warehouse, request.table, request.indexes)
    return replace(report, table_states=(state,))


def _confirm(catalog: Catalog, ref: TableRef, txn: str, reporter: Reporter, ports: CommitPorts | None) -> JobReport:
    table = find_table(catalog, ref.on_main)
    if isinstance(table, Lost) and table.is_proven:
        # The table that the transaction was for is gone, and every late commit to it is refused by its UUID.
        return _absent(reporter, table.reason, table.message)
    if isinstance(table, Lost):
        return _unknown(reporter, table.message, table.reason)
    try:
        state = _abort(catalog, replace(table, branch=ref.branch), txn, ports)
    except BadSpec as error:
        return _unknown(reporter, f"The table changed while it was asked: {error}")
    if isinstance(state, Present):
        recall_unused(catalog, table, AlreadyCommitted(state.record), reporter)
    return _report(reporter, state)


def _abort(catalog: Catalog, ref: TableRef, txn: str, ports: CommitPorts | None) -> TxnState | None:
    """Fence ``txn`` off on its branch; on main if the branch is gone.

    Late commits ask for the old head of the branch, and are refused as long as it is gone. If it is made again, even at
    its old head, they are refused for their sequence number, which the fence has taken.
    """
    try:
        return abort_txn(catalog, ref, txn, ports)
    except BadSpec as error:
        if error.reason is not Reason.BRANCH_NOT_FOUND:
            raise
        return abort_txn(catalog, ref.on_main, txn, ports)


def _report(reporter: Reporter, state: TxnState | None) -> JobReport:
    match state:
        case Present(record):
            return reporter.judge(AlreadyCommitted(record), {})
        case RolledBack():
            message = "The commit was rolled back in the table; create a new job to apply it again."
            failed = replace(reporter.base(), outcome=RunOutcome.FAILED, reason=Reason.ROLLED_BACK)
            return replace(failed, message=message)
        case Aborted():
            return _absent(reporter, Reason.ABORTED, "The commit is not in the table and never will be.")
        case Untold():
            return _unknown(reporter, UNREPORTED)
    return _unknown(reporter, "The table could not be asked whether the commit landed.")


def _unknown(reporter: Reporter, message: str, reason: Reason = Reason.OUTCOME_UNKNOWN) -> JobReport:
    return replace(reporter.base(), outcome=RunOutcome.UNKNOWN, reason=reason, message=message)


def _absent(reporter: Reporter, reason: Reason, message: str) -> JobReport:
    return replace(reporter.base(), outcome=RunOutcome.ABSENT, reason=reason, message=message)

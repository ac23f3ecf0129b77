"""The confirm run: what it finds is final, and what it does not find never lands."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.runs.confirm import run_confirm
from skipstone.runs.report import Reporter
from skipstone.tables.commits import CommitPorts, NoHooks, TableCommit, commit_table
from skipstone.tables.filesets import pin_table
from skipstone_core.commits import Conflicted, TxnRecord
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import ConfirmTask, JobRequest, RunKind, TableRef, WarehouseRef
from skipstone_core.reasons import Reason

from tests.spark.lake import append, ref_of, write_files

TXN = "9d1f0c3e-0000-4000-8000-000000000001"
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table with one segment."""
    return append(catalog.create_table(("ns", "t"), ROWS.schema), ROWS)


def confirm(warehouse: WarehouseRef, ref: TableRef, ports: CommitPorts | None = None) -> JobReport:
    """A whole confirm run."""
    request = JobRequest(
        kind=RunKind.CONFIRM,
        run_id="r-1",
        attempt=1,
        warehouse=warehouse,
        owner_kind="LoadJob",
        owner_name="l",
        owner_uid=TXN,
        table=ref,
        confirm=ConfirmTask(txn=TXN),
    )
    return run_confirm(request, Reporter(request), ports)


def load(table: Table) -> TableCommit:
    """The load that is asked about."""
    record = TxnRecord(time_ms=0, counts={"rowsLoaded": 2}, rejected_path="p")
    return TableCommit(pinned=pin_table(table), added=write_files(table, ROWS), txn=TXN, record=record)


def test_a_commit_that_landed_is_reported_with_its_counts(table: Table, warehouse: WarehouseRef) -> None:
    commit_table(table.catalog, ref_of(table), load(table))
    report = confirm(warehouse, ref_of(table))
    assert (report.outcome, report.reason) == (RunOutcome.ALREADY_COMMITTED, Reason.ALREADY_COMMITTED)
    assert (report.counts, report.rejected_path) == ({"rowsLoaded": 2}, "p")
    assert report.table_states[0].rows == 4
    assert report.snapshot_id == report.table_states[0].snapshot_id


def test_a_commit_that_did_not_land_never_will(table: Table, warehouse: WarehouseRef) -> None:
    late = load(table)
    for _ in range(2):
        report = confirm(warehouse, ref_of(table))
        assert (report.outcome, report.reason) == (RunOutcome.ABSENT, Reason.ABORTED)
        assert (report.table_states[0].rows, report.table_states[0].segments.total) == (2, 1)
    outcome = commit_table(table.catalog, ref_of(table), late)
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.ABORTED


def test_a_commit_that_was_rolled_back_is_failed(table: Table, warehouse: WarehouseRef) -> None:
    before = table.metadata.current_snapshot_id
    assert before is not None
    commit_table(table.catalog, ref_of(table), load(table))
    table.catalog.load_table(("ns", "t")).manage_snapshots().rollback_to_snapshot(before).commit()
    report = confirm(warehouse, ref_of(table))
    assert (report.outcome, report.reason) == (RunOutcome.FAILED, Reason.ROLLED_BACK)


def test_a_commit_into_a_table_that_is_gone_is_absent(table: Table, warehouse: WarehouseRef) -> None:
    table.catalog.drop_table(("ns", "t"))
    report = confirm(warehouse, ref_of(table))
    assert (report.outcome, report.reason) == (RunOutcome.ABSENT, Reason.TABLE_MISSING)
    assert report.table_states[0].problem is Reason.TABLE_MISSING


def test_a_commit_into_a_table_that_was_replaced_is_absent(table: Table, warehouse: WarehouseRef) -> None:
    known = replace(ref_of(table), table_uuid=str(table.metadata.table_uuid))
    table.catalog.drop_table(("ns", "t"))
    table.catalog.create_table(("ns", "t"), ROWS.schema, location=table.location() + "-2")
    report = confirm(warehouse, known)
    assert (report.outcome, report.reason) == (RunOutcome.ABSENT, Reason.TABLE_REPLACED)


def test_when_nothing_can_be_established_the_answer_is_unknown(table: Table, warehouse: WarehouseRef) -> None:
    class Rival(NoHooks):
        def before_swap(self, _: Table) -> None:
            raise TimeoutError("no answer")

    report = confirm(warehouse, ref_of(table), CommitPorts(hooks=Rival(), pause=lambda attempt: None))
    assert (report.outcome, report.reason) == (RunOutcome.UNKNOWN, Reason.OUTCOME_UNKNOWN)

"""The drop run: what is ours is purged, what is not ours is kept and named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.indexes.tables import index_identifier
from skipstone.runs.drop import run_drop
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import DropTask, IndexRef, JobRequest, RunKind, TableRef, WarehouseRef
from skipstone_core.ids import INDEX_UID_PROPERTY, OWNER_PROPERTY
from skipstone_core.reasons import Reason

from tests.spark.lake import append

UID = "9d1f0c3e-0000-4000-8000-000000000001"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
INDEX = IndexRef(name="by-id", uid="99999999-0000-4000-8000-000000000002", columns=("id",))


def drop(warehouse: WarehouseRef, index: IndexRef | None = None, uuid: str | None = None) -> JobReport:
    """A whole drop run."""
    request = JobRequest(
        kind=RunKind.DROP,
        run_id="r-1",
        attempt=1,
        warehouse=warehouse,
        owner_kind="Table",
        owner_name="t",
        owner_uid=UID,
        table=TableRef(namespace="ns", name="t", uid=UID, table_uuid=uuid),
        drop=DropTask(index=index),
    )
    return run_drop(request, Reporter(request))


def make(catalog: Catalog, owner: str = UID) -> Table:
    """A table of ``owner`` with two segments."""
    table = catalog.create_table(("ns", "t"), ROWS.schema, properties={OWNER_PROPERTY: owner})
    return append(append(table, ROWS), ROWS)


def test_our_table_is_purged_to_the_last_file(catalog: Catalog, warehouse: WarehouseRef) -> None:
    table = make(catalog)
    report = drop(warehouse, uuid=str(table.metadata.table_uuid))
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.DATA_DELETED)
    assert not catalog.table_exists(("ns", "t"))
    assert not Path(table.location().removeprefix("file://")).exists()


def test_dropping_again_finds_nothing_and_is_fine(catalog: Catalog, warehouse: WarehouseRef) -> None:
    make(catalog)
    drop(warehouse)
    report = drop(warehouse)
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.DATA_DELETED)


@pytest.mark.parametrize("owner", ["", "somebody else"])
def test_a_table_of_others_is_kept(catalog: Catalog, warehouse: WarehouseRef, owner: str) -> None:
    table = make(catalog, owner)
    report = drop(warehouse)
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.DATA_RETAINED)
    assert table.location() in report.message
    assert catalog.load_table(("ns", "t")).scan().count() == 6


def test_a_table_that_was_replaced_is_kept(catalog: Catalog, warehouse: WarehouseRef) -> None:
    make(catalog)
    report = drop(warehouse, uuid="00000000-0000-0000-0000-000000000000")
    assert report.reason is Reason.DATA_RETAINED
    assert catalog.table_exists(("ns", "t"))


def test_foreign_files_in_the_folder_are_kept(catalog: Catalog, warehouse: WarehouseRef) -> None:
    folder = Path(make(catalog).location().removeprefix("file://"))
    (folder / "data" / "notes.txt").write_text("mine")
    assert drop(warehouse).reason is Reason.DATA_DELETED
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["notes.txt"]


@pytest.mark.parametrize(("owner", "reason"), [(INDEX.uid, Reason.DATA_DELETED), ("other", Reason.DATA_RETAINED)])
def test_an_index_is_purged_by_its_own_owner_only(
    catalog: Catalog, warehouse: WarehouseRef, owner: str, reason: Reason
) -> None:
    make(catalog)
    identifier = index_identifier(warehouse, TableRef(namespace="ns", name="t", uid=UID), INDEX)
    append(catalog.create_table(identifier, ROWS.schema, properties={INDEX_UID_PROPERTY: owner}), ROWS)
    assert drop(warehouse, INDEX).reason is reason
    assert catalog.table_exists(identifier) is (reason is Reason.DATA_RETAINED)
    assert catalog.load_table(("ns", "t")).scan().count() == 6, "the table itself is never touched"

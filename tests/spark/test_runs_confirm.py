"""The confirm run: what it finds is final, and what it does not find never lands."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.runs.confirm import run_confirm
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.committing.commits import CommitPorts, NoHooks, TableCommit, commit_table
from skipstone.tables.filesets import pin_table
from skipstone.tables.namespaces import find_mark, mark_namespace
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import ConfirmTask, JobRequest, RunKind, TableRef, WarehouseRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.history.commits import Committed, Conflicted, TxnRecord
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


@pytest.fixture
def known(table: Table) -> TableRef:
    """The table as status remembers it."""
    mark_namespace(table.catalog, "ns")
    return replace(
        ref_of(table),
        table_uuid=str(table.metadata.table_uuid),
        location=table.location(),
        namespace_id=find_mark(table.catalog, "ns"),
    )


def metadata_path(table: Table) -> Path:
    """The file that the catalog names."""
    return Path(table.metadata_location.removeprefix("file://"))


@pytest.mark.parametrize("content", [b"", b"{", b"{}", bytes(100), b"\xff" * 100])
def test_nothing_is_known_of_a_table_whose_metadata_file_is_damaged(
    content: bytes, table: Table, known: TableRef, warehouse: WarehouseRef
) -> None:
    path = metadata_path(table)
    before = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(DependencyUnavailable, match="has something else in it") as caught:
        confirm(warehouse, known)
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
    path.write_bytes(before)


def test_nothing_is_known_of_a_table_whose_compressed_metadata_file_is_cut_off(
    table: Table, known: TableRef, warehouse: WarehouseRef
) -> None:
    """The catalog answers, and the storage too."""
    location = table.metadata_location.replace(".metadata.json", ".gz.metadata.json")
    path = Path(location.removeprefix("file://"))
    path.write_bytes(gzip.compress(metadata_path(table).read_bytes()))
    table.catalog.drop_table(table.name())
    table.catalog.register_table(table.name(), location)
    before = path.read_bytes()
    for content in (before[:-4], b"{}"):
        path.write_bytes(content)
        with pytest.raises(DependencyUnavailable, match="has something else in it") as caught:
            confirm(warehouse, known)
        assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
    path.write_bytes(before)


def test_a_commit_into_a_table_that_was_dropped_is_absent(
    table: Table, known: TableRef, warehouse: WarehouseRef
) -> None:
    table.catalog.drop_table(("ns", "t"))
    report = confirm(warehouse, known)
    assert (report.outcome, report.reason) == (RunOutcome.ABSENT, Reason.TABLE_MISSING)
    assert report.table_states[0].problem is Reason.TABLE_MISSING


def test_a_commit_into_a_table_that_was_replaced_is_absent(
    table: Table, known: TableRef, warehouse: WarehouseRef
) -> None:
    table.catalog.drop_table(("ns", "t"))
    table.catalog.create_table(("ns", "t"), ROWS.schema, location=table.location() + "-2")
    report = confirm(warehouse, known)
    assert (report.outcome, report.reason) == (RunOutcome.ABSENT, Reason.TABLE_REPLACED)


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "renamed only"])
def test_a_renamed_table_is_found_by_its_uuid(
    table: Table, known: TableRef, warehouse: WarehouseRef, *, replaced: bool, committed: bool
) -> None:
    late = load(table)
    if committed:
        commit_table(table.catalog, ref_of(table), late)
    table.catalog.create_namespace("attic")
    table.catalog.rename_table(("ns", "t"), ("attic", "old"))
    if replaced:
        table.catalog.create_table(("ns", "t"), ROWS.schema, location=table.location() + "-2")
    report = confirm(warehouse, known)
    assert report.outcome is (RunOutcome.ALREADY_COMMITTED if committed else RunOutcome.ABSENT)
    again = commit_table(table.catalog, TableRef(namespace="attic", name="old", uid=""), late)
    assert not isinstance(again, Committed)


def test_a_table_gone_from_a_catalog_without_our_mark_proves_nothing(
    table: Table, known: TableRef, warehouse: WarehouseRef
) -> None:
    table.catalog.drop_table(("ns", "t"))
    unmarked, foreign = replace(known, namespace_id=None), replace(known, namespace_id="0" * 32)
    for ref in (unmarked, foreign, replace(known, table_uuid=None)):
        report = confirm(warehouse, ref)
        assert (report.outcome, report.reason) == (RunOutcome.UNKNOWN, Reason.CATALOG_UNPROVEN)
        assert report.message


def test_a_fresh_catalog_proves_nothing(known: TableRef, warehouse: WarehouseRef, tmp_path: Path) -> None:
    empty = replace(warehouse, root=str(tmp_path / "empty"))
    Path(empty.root).mkdir()
    fresh = open_catalog(empty)
    fresh.create_namespace("ns")
    fresh.close()
    report = confirm(empty, known)
    assert (report.outcome, report.reason) == (RunOutcome.UNKNOWN, Reason.CATALOG_UNPROVEN)


@pytest.mark.parametrize("left", [None, b""], ids=["no file", "an empty file"])
def test_an_empty_volume_proves_nothing_and_stays_empty(
    known: TableRef, warehouse: WarehouseRef, tmp_path: Path, left: bytes | None
) -> None:
    root = tmp_path / "empty #1"
    root.mkdir()
    if left is not None:
        (root / "catalog.db").write_bytes(left)
    before = [(path.name, path.read_bytes()) for path in root.iterdir()]
    with pytest.raises(DependencyUnavailable) as caught:
        confirm(replace(warehouse, root=str(root)), known)
    assert caught.value.reason in (Reason.CATALOG_UNPROVEN, Reason.CATALOG_UNAVAILABLE)
    assert [(path.name, path.read_bytes()) for path in root.iterdir()] == before


@pytest.mark.parametrize("renamed", [True, False], ids=["renamed", "under its name"])
def test_a_metadata_file_that_is_away_for_a_moment_proves_nothing(
    table: Table, known: TableRef, warehouse: WarehouseRef, *, renamed: bool
) -> None:
    commit_table(table.catalog, ref_of(table), load(table))
    if renamed:
        table.catalog.rename_table(("ns", "t"), ("ns", "renamed"))
    path = metadata_path(table.catalog.load_table(("ns", "renamed" if renamed else "t")))
    path.rename(path.with_suffix(".away"))
    with pytest.raises(DependencyUnavailable):
        confirm(warehouse, known)
    path.with_suffix(".away").rename(path)
    assert confirm(warehouse, known).outcome is RunOutcome.ALREADY_COMMITTED


def test_copies_with_the_same_uuid_are_not_taken_for_the_table(
    table: Table, known: TableRef, warehouse: WarehouseRef, tmp_path: Path
) -> None:
    path = metadata_path(table)
    copied = tmp_path / "00000-copied.metadata.json"
    copied.write_text(path.read_text().replace(table.location() + '"', table.location() + '-copy"'))
    commit_table(table.catalog, ref_of(table), load(table))
    table.catalog.rename_table(("ns", "t"), ("ns", "old"))
    table.catalog.register_table(("ns", "t"), f"file://{copied}")
    assert confirm(warehouse, known).outcome is RunOutcome.ALREADY_COMMITTED
    table.catalog.drop_table(("ns", "old"))
    table.catalog.rename_table(("ns", "t"), ("ns", "copy"))
    assert confirm(warehouse, known).reason is Reason.CATALOG_UNPROVEN
    table.catalog.register_table(("ns", "one"), f"file://{path}")
    table.catalog.register_table(("ns", "two"), f"file://{path}")
    assert confirm(warehouse, known).reason is Reason.CATALOG_UNPROVEN
    table.catalog.drop_table(("ns", "copy"))


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("drop", "drop the copies from the catalog and keep their files"),
        ("name", "give the table its name ns.t back"),
    ],
)
def test_what_is_told_of_copies_leads_to_an_answer(
    table: Table, known: TableRef, warehouse: WarehouseRef, way: str, told: str
) -> None:
    commit_table(table.catalog, ref_of(table), load(table))
    table.catalog.rename_table(("ns", "t"), ("ns", "real"))
    table.catalog.register_table(("ns", "copy"), table.catalog.load_table(("ns", "real")).metadata_location)
    unproven = confirm(warehouse, known)
    assert unproven.reason is Reason.CATALOG_UNPROVEN
    assert told in unproven.message
    if way == "drop":
        table.catalog.drop_table(("ns", "copy"))
    else:
        table.catalog.rename_table(("ns", "real"), ("ns", "t"))
    assert confirm(warehouse, known).outcome is RunOutcome.ALREADY_COMMITTED


def test_a_table_of_format_version_1_is_fenced_off(catalog: Catalog, warehouse: WarehouseRef) -> None:
    old = catalog.create_table(("ns", "old"), ROWS.schema, properties={"format-version": "1"})
    old.append(ROWS)
    for _ in range(2):
        report = confirm(warehouse, ref_of(old))
        assert (report.outcome, report.reason) == (RunOutcome.ABSENT, Reason.ABORTED)
    with catalog.load_table(("ns", "old")).transaction() as change:
        change.upgrade_table_version(2)
    outcome = commit_table(catalog, ref_of(old), load(catalog.load_table(("ns", "old"))))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.ABORTED


def test_when_nothing_can_be_established_the_answer_is_unknown(table: Table, warehouse: WarehouseRef) -> None:
    class Rival(NoHooks):
        def before_swap(self, _: Table) -> None:
            raise TimeoutError("no answer")

    report = confirm(warehouse, ref_of(table), CommitPorts(hooks=Rival(), pause=lambda attempt: None))
    assert (report.outcome, report.reason) == (RunOutcome.UNKNOWN, Reason.OUTCOME_UNKNOWN)

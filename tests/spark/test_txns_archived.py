"""Tables that ran thousands of jobs: every transaction is known for good, no job is refused, lookups stay cheap."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from skipstone.tables.committing.commits import TableCommit, abort_txn, commit_table, find_digest, find_txn
from skipstone.tables.filesets import pin_table
from skipstone.tables.records.archive import TxnArchive
from skipstone.tables.records.txns import partial_segments
from skipstone.tables.states import table_state
from skipstone.tables.upkeep.archives import delete_old_archives
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.history.archives import BATCH_RECORDS, KEPT_RECORDS, decode_files
from skipstone_core.history.commits import (
    Aborted,
    AlreadyCommitted,
    Committed,
    Conflicted,
    Outcome,
    Present,
    RolledBack,
    TxnRecord,
    encode_record,
    txn_property,
)
from skipstone_core.ids import ARCHIVE_PROPERTY
from skipstone_core.reasons import Reason

from tests.spark.lake import append, ref_of, write_files
from tests.spark.upkeep_bed import DAY_MS, later

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
COUNTED: list[str] = []
_counting = [False]


def _count_opens(event: str, arguments: tuple[Any, ...]) -> None:
    if _counting[0] and event == "open" and "/.skipstone/txns/" in str(arguments[0]):
        COUNTED.append(str(arguments[0]))


sys.addaudithook(_count_opens)


@contextmanager
def counted() -> Iterator[list[str]]:
    """The files of archives that are opened in the block."""
    COUNTED.clear()
    _counting[0] = True
    try:
        yield COUNTED
    finally:
        _counting[0] = False


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table whose first snapshots expired; a job committed last."""
    made = catalog.create_table(("ns", "t"), ROWS.schema)
    old = [append(catalog.load_table(("ns", "t")), ROWS).current_snapshot() for _ in range(2)]
    commit(made, "real")
    expiry = catalog.load_table(("ns", "t")).maintenance.expire_snapshots()
    for snapshot in old:
        assert snapshot is not None
        expiry = expiry.by_id(snapshot.snapshot_id)
    expiry.commit()
    return made


def fresh(table: Table) -> Table:
    """The table as it is now."""
    return table.catalog.load_table(table.name())


def commit(table: Table, txn: str, digest: str | None = None, **options: Any) -> Outcome:
    """A load of ROWS."""
    now = fresh(table)
    record = TxnRecord(time_ms=0, counts={"rowsLoaded": 3}, source_digest=digest)
    change = TableCommit(pinned=pin_table(now), added=write_files(now, ROWS), txn=txn, record=record, **options)
    return commit_table(table.catalog, ref_of(table), change)


def remembered(numbers: range, sequence_number: int = 1, **options: Any) -> dict[str, TxnRecord]:
    """Records of jobs long ago, by transaction."""
    return {
        f"job-{n}": TxnRecord(
            time_ms=n, snapshot_id=n + 1, sequence_number=sequence_number, source_digest=f"digest-{n}", **options
        )
        for n in numbers
    }


def remember(table: Table, records: Mapping[str, TxnRecord]) -> None:
    """Let the table have them as properties."""
    texts = {txn_property(txn): encode_record(record) for txn, record in records.items()}
    fresh(table).transaction().set_properties(texts).commit_transaction()


def archive(table: Table, records: Mapping[str, TxnRecord], partial: tuple[int, ...] = ()) -> None:
    """Let the table have them in its archive, as one commit moves them."""
    text = TxnArchive(fresh(table)).extended(records, partial)
    fresh(table).transaction().set_properties({ARCHIVE_PROPERTY: text}).commit_transaction()


def properties(table: Table) -> set[str]:
    """Records that are properties."""
    return {name for name in fresh(table).properties if name.startswith("skipstone.txn.")}


def archive_files(table: Table) -> list[Path]:
    """The files of its archive, old ones too."""
    root = Path(table.catalog.properties["skipstone.root"])
    return sorted((root / ".skipstone/txns" / str(table.metadata.table_uuid)).iterdir())


def test_a_table_full_of_records_takes_the_next_job_and_forgets_none(table: Table) -> None:
    records = remembered(range(500))
    remember(table, {**records, "job-7": TxnRecord(time_ms=7, sequence_number=1, is_aborted=True)})
    assert isinstance(commit(table, "next"), Committed)
    assert len(properties(table)) == KEPT_RECORDS
    now = fresh(table)
    assert isinstance(find_txn(now, "job-7"), Aborted)
    assert find_txn(now, "job-8") == Present(records["job-8"], 9)
    assert isinstance(find_txn(now, "job-499"), Present)
    assert isinstance(commit(table, "job-8"), AlreadyCommitted)
    refused = commit(table, "job-7")
    assert isinstance(refused, Conflicted)
    assert refused.reason is Reason.ABORTED


def test_ten_thousand_jobs_are_known_and_read_few_files(table: Table) -> None:
    archive(table, remembered(range(9000)))
    for start in range(9000, 9000 + 55 * BATCH_RECORDS, BATCH_RECORDS):
        archive(table, remembered(range(start, start + BATCH_RECORDS)))
    remember(table, remembered(range(9880, 10_016)))
    assert isinstance(commit(table, "next", "digest-next", unique_source=True), Committed)
    assert len(properties(table)) <= KEPT_RECORDS + BATCH_RECORDS
    now = fresh(table)
    for number in (0, 4711, 9879, 10_015):
        with counted() as opened:
            assert isinstance(find_txn(now, f"job-{number}"), Present)
        assert len(opened) <= 15
    before = len(archive_files(table))
    again = commit(table, "other", "digest-17", unique_source=True)
    assert isinstance(again, Conflicted)
    assert again.reason is Reason.SOURCE_ALREADY_APPLIED
    assert "job-17 " in again.message
    with counted() as opened:
        assert isinstance(commit(table, "more", "digest-more", unique_source=True), Committed)
    assert len(opened) <= 2 * 2 * 15
    assert len(archive_files(table)) == before
    assert sum(len(name) + len(value) for name, value in fresh(table).properties.items()) < 32_000


def test_aborts_are_bounded_as_commits_are(table: Table) -> None:
    remember(table, remembered(range(KEPT_RECORDS + BATCH_RECORDS), is_aborted=True))
    assert isinstance(abort_txn(table.catalog, ref_of(table), "given-up"), Aborted)
    assert len(properties(table)) == KEPT_RECORDS
    assert isinstance(find_txn(fresh(table), "job-0"), Aborted)
    assert isinstance(find_txn(fresh(table), "given-up"), Aborted)


def test_what_was_rolled_back_stays_so_in_the_archive(table: Table) -> None:
    before = fresh(table).current_snapshot()
    assert before is not None
    commit(table, "undone", "digest-undone")
    undone = fresh(table).current_snapshot()
    assert undone is not None
    fresh(table).manage_snapshots().set_current_snapshot(before.snapshot_id).commit()
    commit(table, "next")
    fresh(table).maintenance.expire_snapshots().by_id(undone.snapshot_id).by_id(before.snapshot_id).commit()
    remember(table, remembered(range(200), sequence_number=5))
    commit(table, "last")
    assert txn_property("undone") not in properties(table)
    assert isinstance(find_txn(fresh(table), "undone"), RolledBack)
    assert isinstance(find_txn(fresh(table), "real"), Present)
    assert find_digest(fresh(table), "digest-undone") is None


def test_merged_files_go_once_no_metadata_names_them(table: Table) -> None:
    fresh(table).transaction().set_properties({"write.metadata.previous-versions-max": "6"}).commit_transaction()
    for start in range(0, 40 * BATCH_RECORDS, BATCH_RECORDS):
        archive(table, remembered(range(start, start + BATCH_RECORDS)))
    now, many = fresh(table), len(archive_files(table))
    assert not delete_old_archives(now, lambda: time.time_ns() // 1_000_000).files, "they may be of a commit to come"
    gone = delete_old_archives(now, later().now_ms)
    assert not gone.files, "clocks may be wrong by a day"
    gone = delete_old_archives(now, later(3 * DAY_MS).now_ms)
    assert (gone.files > many / 2, gone.nbytes > 0) == (True, True)
    left = {path.name for path in archive_files(table)}
    assert len(left) == many - gone.files
    for entry in now.metadata.metadata_log:
        metadata = FromInputFile.table_metadata(now.io.new_input(entry.metadata_file))
        assert {file.digest for file in decode_files(metadata.properties[ARCHIVE_PROPERTY])} <= left
    for number in (0, 77, 639):
        assert isinstance(find_txn(now, f"job-{number}"), Present)


@pytest.mark.parametrize("damage", ["missing", "torn", "changed"])
def test_an_archive_that_cannot_be_read_is_never_an_absent_job(table: Table, damage: str) -> None:
    remember(table, remembered(range(200)))
    assert isinstance(commit(table, "next"), Committed)
    [path] = archive_files(table)
    content = path.read_bytes()
    changed = bytes(byte ^ (place > 40) for place, byte in enumerate(content))
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[:-1] if damage == "torn" else changed)
    snapshot = fresh(table).metadata.current_snapshot_id
    for attempt in (lambda: commit(table, "job-0"), lambda: abort_txn(table.catalog, ref_of(table), "job-0")):
        with pytest.raises(DependencyUnavailable) as caught:
            attempt()
        assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
        assert str(path) in str(caught.value)
    assert fresh(table).metadata.current_snapshot_id == snapshot
    path.write_bytes(content)
    assert isinstance(commit(table, "job-0"), AlreadyCommitted)


def test_partial_segments_move_along_and_are_still_counted(table: Table) -> None:
    fresh(table).transaction().set_properties({"skipstone.partial": "1,2"}).commit_transaction()
    remember(table, remembered(range(200)))
    assert isinstance(commit(table, "left-out", is_partial=True), Committed)
    assert fresh(table).properties["skipstone.partial"] == "2,4"
    assert partial_segments(fresh(table)) == {1, 2, 4}
    assert table_state(table.catalog, ref_of(table)).state.segments.partial == 3

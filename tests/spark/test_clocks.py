"""Nodes whose clocks differ write one table, and Java reads it after each of them."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import LongType
from skipstone.tables.committing.commits import CommitPorts, TableCommit, abort_txn, commit_table
from skipstone.tables.filesets import pin_table
from skipstone_core.history.commits import Aborted, Committed, Conflicted, Outcome
from skipstone_core.reasons import Reason

from tests.spark.lake import append, ref_of, write_files
from tests.spark.soundness import Soundness

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
MINUTE, HOUR = 60_000, 3_600_000


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table with one segment, written by a clock that is right."""
    return append(catalog.create_table(("ns", "t"), ROWS.schema), ROWS)


def fresh(table: Table) -> Table:
    """The table as it is now."""
    return table.catalog.load_table(table.name())


def now_ms() -> int:
    """The time."""
    return time.time_ns() // 1_000_000


def commit(table: Table, skew_ms: int) -> Outcome:
    """An append by a node whose clock is that much ahead."""
    head = fresh(table)
    change = TableCommit(pinned=pin_table(head), added=write_files(head, ROWS), txn=f"{now_ms()}-{skew_ms}")
    return commit_table(table.catalog, ref_of(table), change, CommitPorts(now_ms=lambda: now_ms() + skew_ms))


def change_schema(table: Table) -> None:
    """A change without a snapshot, by PyIceberg on a node whose clock is right."""
    with fresh(table).update_schema() as update:
        update.add_column(f"c{len(fresh(table).schema().fields)}", LongType())


def assert_in_order(table: Table, soundness: Soundness, folder: Path) -> None:
    """No time goes back, and Java reads the table."""
    metadata = fresh(table).metadata
    for times in (
        [entry.timestamp_ms for entry in metadata.snapshot_log] + [metadata.last_updated_ms],
        [entry.timestamp_ms for entry in metadata.metadata_log] + [metadata.last_updated_ms],
        [snapshot.timestamp_ms for snapshot in metadata.snapshots],
    ):
        assert times == sorted(times)
    soundness.check_folder(folder)


@pytest.mark.parametrize("skew", [10 * MINUTE, -10 * MINUTE], ids=["ahead", "behind"])
def test_a_node_whose_clock_is_wrong_leaves_a_table_that_java_reads(
    table: Table, skew: int, soundness: Soundness, tmp_path: Path
) -> None:
    for step in (skew, 0, skew):
        assert isinstance(commit(table, step), Committed)
        assert_in_order(table, soundness, tmp_path)
        change_schema(table)
        assert_in_order(table, soundness, tmp_path)


def test_a_table_is_never_further_ahead_than_the_fastest_clock(table: Table) -> None:
    assert isinstance(commit(table, 10 * MINUTE), Committed)
    first = fresh(table).metadata.last_updated_ms
    for _ in range(5):
        assert isinstance(commit(table, 0), Committed)
    assert fresh(table).metadata.last_updated_ms == first + 5


def test_a_commit_is_stamped_by_the_clock_when_that_is_later(table: Table) -> None:
    before = now_ms()
    assert isinstance(commit(table, 0), Committed)
    snapshot = fresh(table).current_snapshot()
    assert snapshot is not None
    assert before <= snapshot.timestamp_ms <= now_ms()


def test_going_back_to_an_older_snapshot_keeps_times_in_order(
    table: Table, soundness: Soundness, tmp_path: Path
) -> None:
    first = fresh(table).metadata.current_snapshot_id
    assert first is not None
    assert isinstance(commit(table, 10 * MINUTE), Committed)
    fresh(table).manage_snapshots().rollback_to_snapshot(first).commit()
    assert_in_order(table, soundness, tmp_path)


def test_a_clock_a_day_behind_its_table_writes_nothing(table: Table) -> None:
    outcome = commit(table, -25 * HOUR)
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.CLOCK_SKEWED
    assert "set the clock right" in outcome.message
    assert fresh(table).metadata == table.metadata
    assert isinstance(commit(table, -23 * HOUR), Committed)


def test_a_transaction_is_fenced_off_by_any_clock(table: Table, soundness: Soundness, tmp_path: Path) -> None:
    ports = CommitPorts(now_ms=lambda: now_ms() - 25 * HOUR)
    assert isinstance(abort_txn(table.catalog, ref_of(table), "t", ports), Aborted)
    assert_in_order(table, soundness, tmp_path)

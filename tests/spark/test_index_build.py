"""Index builds on real Iceberg tables: from nothing, catching up, and after everything that changes a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.exceptions import ResolveError
from pyiceberg.table import Table
from pyiceberg.types import LongType
from skipstone.files.writer import write_spec
from skipstone.indexes.building.sorting import EntrySorter, RunWriter
from skipstone.indexes.definition import entry_schema
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tasks.share import NO_SHARE
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import IndexRef
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string()), pa.field("v", pa.float64())])
K = index_on("k")


def rows(start: int, count: int = 100, stride: int = 1) -> pa.Table:
    keys = np.arange(start, start + count * stride, stride)
    return pa.table({"k": keys, "name": [f"n{key % 7}" for key in keys], "v": keys / 4}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def segments(lake: Lake, count: int) -> Table:
    table = lake.create(SCHEMA)
    for segment in range(count):
        table.append(rows(segment * 50))
    return table


def test_an_index_is_built_from_nothing(lake: Lake) -> None:
    segments(lake, 3)
    before = lake.state(K)
    report = lake.reindex(K)
    after = lake.state(K)
    assert (before.exists, before.segments_missing, before.missing_segments) == (False, 3, (1, 2, 3))
    assert report.outcome is RunOutcome.COMMITTED
    assert report.counts == {"segments": 3, "files": 3, "entries": 300}
    assert (after.segments_synced, after.missing_segments, after.synced_sequence_number) == (3, (), 3)
    assert (after.rows_live, after.rows_covered, after.entries) == (300, 300, 300)
    assert after.bytes > 0
    lake.assert_every_row_once(K)


def test_an_empty_table_gets_an_empty_index_that_is_in_sync(lake: Lake) -> None:
    lake.create(SCHEMA)
    report = lake.reindex(K)
    state = lake.state(K)
    assert report.outcome is RunOutcome.COMMITTED
    assert (state.exists, state.segments_total, state.segments_missing) == (True, 0, 0)


def test_a_load_makes_its_segment_missing_and_the_next_run_builds_that_one_only(lake: Lake) -> None:
    table = segments(lake, 2)
    lake.reindex(K)
    table.append(rows(500))
    between = lake.state(K)
    found = lake.assert_exact("k in (10, 60, 510)")
    report = lake.reindex(K)
    assert (between.missing_segments, between.synced_sequence_number, between.rows_covered) == ((3,), 2, 200)
    assert found.num_rows == 4
    assert report.counts == {"segments": 1, "files": 1, "entries": 100}
    lake.assert_every_row_once(K)


def test_a_run_with_nothing_to_do_commits_nothing(lake: Lake) -> None:
    segments(lake, 1)
    lake.reindex(K)
    head = lake.index_table(K).table.metadata.current_snapshot_id
    report = lake.reindex(K)
    assert report.counts == {"segments": 0, "files": 0, "entries": 0}
    assert lake.index_table(K).table.metadata.current_snapshot_id == head


def test_a_file_that_an_overwrite_replaced_is_stale_and_its_rows_are_missing(lake: Lake) -> None:
    table = segments(lake, 2)
    lake.reindex(K)
    table.delete("k < 30")
    between = lake.state(K)
    assert between.missing_segments == (3,)
    assert (between.files_live, between.files_covered) == (2, 1)
    assert lake.assert_exact("k = 10").num_rows == 0
    assert lake.assert_exact("k = 40").num_rows == 1
    lake.reindex(K)
    assert lake.state(K).segments_missing == 0
    assert lake.assert_exact("k between 20 and 60").num_rows == 42
    lake.assert_every_row_once(K)


def test_a_rewrite_of_the_whole_table_moves_its_rows_to_a_new_segment(lake: Lake) -> None:
    table = segments(lake, 3)
    lake.reindex(K)
    table.overwrite(table.scan().to_arrow())
    state = lake.state(K)
    assert (state.segments_total, state.segments_synced, state.rows_covered) == (1, 0, 0)
    assert state.entries == 300
    assert lake.assert_exact("k = 70").num_rows == 2
    lake.reindex(K)
    assert lake.state(K).segments_missing == 0
    lake.assert_every_row_once(K)


def test_a_dropped_and_re_created_table_does_not_believe_the_old_index(lake: Lake) -> None:
    segments(lake, 2)
    lake.reindex(K)
    lake.catalog.drop_table(("ns", "t"))
    lake.create(SCHEMA).append(rows(1000))
    before = lake.state(K)
    assert (before.exists, before.segments_missing) == (False, 1)
    assert lake.assert_exact("k = 1010").num_rows == 1
    lake.reindex(K)
    after = lake.state(K)
    assert (after.entries, after.segments_missing) == (100, 0)
    assert lake.assert_exact("k = 10 or k = 1010").num_rows == 1


def test_a_renamed_column_keeps_its_index(lake: Lake) -> None:
    table = segments(lake, 2)
    lake.reindex(K)
    with table.update_schema() as change:
        change.rename_column("k", "key")
    state = lake.state(K)
    assert (state.segments_synced, state.degraded) == (2, None)
    assert lake.assert_exact("key = 60").num_rows == 2
    assert lake.plan("key = 60").indexes[0].used
    lake.table().append(rows(900).rename_columns(["key", "name", "v"]))
    assert lake.reindex(K).counts["segments"] == 1
    assert lake.assert_exact("key = 910").num_rows == 1


def test_a_dropped_and_re_added_column_degrades_its_index(lake: Lake) -> None:
    table = segments(lake, 2)
    lake.reindex(K)
    with table.update_schema() as change:
        change.delete_column("k")
    with lake.table().update_schema() as change:
        change.add_column("k", LongType())
    lake.table().append(pa.table({"name": ["x"], "v": [1.0], "k": [60]}))
    state = lake.state(K)
    assert state.degraded is Reason.COLUMN_REPLACED
    assert "create it again" in state.message
    assert lake.assert_exact("k = 60").num_rows == 1
    with pytest.raises(BadSpec, match="was replaced by a new column") as error:
        lake.reindex(K)
    assert error.value.reason is Reason.COLUMN_REPLACED


def test_a_dropped_column_degrades_its_index_and_queries_go_on(lake: Lake) -> None:
    table = segments(lake, 2)
    lake.reindex(K)
    with table.update_schema() as change:
        change.delete_column("k")
    assert lake.state(K).degraded is Reason.COLUMN_NOT_FOUND
    assert lake.assert_exact("name = 'n3'").num_rows > 0


def test_a_widened_column_keeps_its_index(lake: Lake) -> None:
    schema = pa.schema([pa.field("i", pa.int32()), pa.field("f", pa.float32())])
    index = index_on("i", "f")
    table = lake.create(schema)
    table.append(pa.table({"i": [1, 2, None], "f": [0.1, -0.0, float("nan")]}, schema=schema))
    lake.reindex(index)
    with table.update_schema() as change:
        change.update_column("i", LongType())
    lake.table().append(pa.table({"i": [2, 1 << 40], "f": pa.array([0.5, 0.1], pa.float32())}))
    assert lake.state(index).missing_segments == (2,)
    assert lake.assert_exact("i = 2").num_rows == 2
    lake.reindex(index)
    assert lake.state(index).segments_synced == 2
    assert lake.assert_exact("i = 2").num_rows == 2
    assert lake.assert_exact("i > 1000000000000").num_rows == 1


def test_a_column_added_later_is_null_in_older_files(lake: Lake) -> None:
    table = segments(lake, 1)
    with table.update_schema() as change:
        change.add_column("late", LongType())
    table = lake.table()
    table.append(rows(500).append_column("late", pa.array(range(100))))
    index = index_on("late")
    lake.reindex(index)
    assert lake.assert_exact("late = 5").num_rows == 1
    assert lake.assert_exact("late is null").num_rows == 100
    plan = lake.plan("late is null")
    assert len(plan.ordinals) == 1


def test_a_format_v1_table_is_built_snapshot_by_snapshot(lake: Lake) -> None:
    table = lake.create(SCHEMA, properties={"format-version": "1"})
    table.append(rows(0))
    table.append(rows(100))
    assert lake.state(K).missing_segments == (0,)
    assert lake.reindex(K, max_segments=1).counts["files"] == 1
    assert lake.state(K).files_covered == 1
    assert lake.assert_exact("k in (5, 105)").num_rows == 2
    lake.reindex(K)
    assert lake.state(K).segments_synced == 1


def test_a_bounded_run_builds_the_oldest_segments_first(lake: Lake) -> None:
    segments(lake, 4)
    lake.reindex(K, max_segments=3)
    assert lake.state(K).missing_segments == (4,)


def test_index_tables_can_live_in_a_namespace_of_their_own(tmp_path: Path) -> None:
    lake = Lake(tmp_path, index_namespace="indexes")
    segments(lake, 2)
    lake.reindex(K)
    assert lake.catalog.list_tables("ns") == [("ns", "t")]
    assert lake.state(K).segments_synced == 2
    assert lake.plan("k = 1").indexes[0].used


def test_a_missing_data_file_fails_its_segment_and_the_others_are_built(lake: Lake) -> None:
    table = segments(lake, 3)
    paths = sorted(task.file.file_path for task in table.scan().plan_files())
    Path(paths[0].removeprefix("file://")).unlink()
    report = lake.reindex(K)
    state = lake.state(K)
    assert report.reason is Reason.SEGMENTS_FAILED
    assert "is missing in the storage" in report.message
    assert report.counts["segments"] == 2
    assert (state.segments_synced, state.segments_failed, state.degraded) == (2, 1, Reason.SEGMENTS_FAILED)
    assert paths[0] in state.message


def test_a_damaged_data_file_fails_its_segment_until_it_is_mended(lake: Lake) -> None:
    table = segments(lake, 2)
    victim = Path(sorted(task.file.file_path for task in table.scan().plan_files())[0].removeprefix("file://"))
    sound = victim.read_bytes()
    victim.write_bytes(b"PAR1" + bytes(len(sound) - 8) + b"PAR1")
    assert lake.reindex(K).reason is Reason.SEGMENTS_FAILED
    assert lake.state(K).segments_failed == 1
    victim.write_bytes(sound)
    assert lake.reindex(K).reason is Reason.COMMITTED
    assert (lake.state(K).segments_failed, lake.state(K).segments_synced) == (0, 2)
    lake.assert_every_row_once(K)


def test_a_segment_that_fails_for_a_passing_reason_is_tried_again(lake: Lake) -> None:
    table = lake.create(SCHEMA)
    lake.reindex(K)
    data = Path(lake.index_table(K).table.location().removeprefix("file://")) / "data"
    data.write_text("a file where index files go")
    table.append(rows(0))
    failed = lake.reindex(K)
    assert (failed.outcome, failed.reason) == (RunOutcome.CONFLICTED, Reason.SEGMENTS_FAILED)
    assert "the build failed" in failed.message
    assert failed.table_states[0].indexes[0].segments_failed == 1
    data.unlink()
    assert lake.reindex(K).reason is Reason.COMMITTED
    assert lake.state(K).segments_synced == 1


class Meddler(Reporter):
    """Does something to the table when the run reports its progress for the first time."""

    def __init__(self, lake: Lake, index: IndexRef, action: object) -> None:
        self.lake = lake
        self.action = action
        super().__init__(lake.request(index))

    def progress(self, text: str, counts: Mapping[str, int] | None = None) -> None:
        """Meddle once, then report."""
        action, self.action = self.action, None
        if callable(action):
            action(self.lake)
        super().progress(text, counts)


def replace_everything(lake: Lake) -> None:
    table = lake.table()
    old = [task.file.file_path for task in table.scan().plan_files()]
    table.overwrite(rows(0, 20))
    for path in old:
        Path(path.removeprefix("file://")).unlink()


def test_a_file_that_vanishes_during_a_build_is_stale_and_no_failure(lake: Lake) -> None:
    segments(lake, 2)
    meddler = Meddler(lake, K, replace_everything)
    report = run_reindex(meddler.request, meddler)
    assert (report.reason, report.counts["files"]) == (Reason.COMMITTED, 0)
    assert lake.state(K).segments_missing == 1
    lake.reindex(K)
    assert lake.state(K).segments_missing == 0
    assert lake.assert_exact("k = 10").num_rows == 1


def test_two_runs_of_one_index_enter_nothing_twice(lake: Lake) -> None:
    segments(lake, 3)
    meddler = Meddler(lake, K, lambda lake: lake.reindex(K))
    report = run_reindex(meddler.request, meddler)
    assert report.outcome is RunOutcome.COMMITTED
    state = lake.state(K)
    assert (state.segments_synced, state.entries) == (3, 300)
    lake.assert_every_row_once(K)


def test_a_load_beside_a_build_is_found_missing_afterwards(lake: Lake) -> None:
    table = segments(lake, 2)
    meddler = Meddler(lake, K, lambda _: table.append(rows(700)))
    run_reindex(meddler.request, meddler)
    assert lake.state(K).missing_segments == (3,)


def test_a_build_in_spark_enters_the_same_as_one_in_the_driver(lake: Lake) -> None:
    table = segments(lake, 3)
    lake.reindex(K)
    other = index_on("k", name="spark")
    lake.share = NO_SHARE
    lake.reindex(other)
    table.append(rows(900))
    lake.reindex(other)
    lake.reindex(K)
    lake.assert_every_row_once(other)
    columns = ["k0", "data_path", "row_group", "pos"]
    key = [(column, "ascending") for column in columns]
    assert lake.entries(K).select(columns).sort_by(key) == lake.entries(other).select(columns).sort_by(key)


def test_an_index_table_that_requires_its_partition_columns_stays_readable_by_others(lake: Lake) -> None:
    """As earlier releases made them; PyIceberg, which reads here, refuses a file without a required column."""
    segments(lake, 2)
    lake.reindex(K, max_segments=1)
    with lake.index_table(K).table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("kind", required=True).update_column("level", required=True)
    with pytest.raises(ResolveError):
        lake.entries(K)
    lake.catalog.drop_table(lake.index_table(K).identifier)
    lake.reindex(K, max_segments=0)
    with lake.index_table(K).table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("kind", required=True).update_column("level", required=True)
    lake.reindex(K)
    lake.assert_every_row_once(K)
    lake.assert_exact("k in (10, 60)")


def test_a_task_that_fails_leaves_no_files_behind(lake: Lake) -> None:
    segments(lake, 1)
    lake.reindex(K)
    index = lake.index_table(K)
    data = Path(index.table.location().removeprefix("file://")) / "data"
    before = sorted(data.rglob("*.parquet"))
    schema = entry_schema(index.definition)
    batch = pa.RecordBatch.from_arrays([pa.array([1], field.type) for field in schema], schema=schema)
    with (
        pytest.raises(ZeroDivisionError),
        RunWriter(write_spec(index.table, "run"), "task", level=0) as runs,
    ):
        EntrySorter(runs, buffer_bytes=1).add(batch)
        assert len(list(data.rglob("*.parquet"))) == len(before) + 1
        raise ZeroDivisionError
    assert sorted(data.rglob("*.parquet")) == before


def test_a_table_that_is_not_there_is_named(lake: Lake) -> None:
    with pytest.raises(BadSpec, match=r"holds no table ns\.absent"):
        lake.reindex(K, name="absent")

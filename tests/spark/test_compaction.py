"""Compaction: fewer files with the same rows, deletes applied, beside whoever else writes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.runs.main import run_app
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.maintaining.site import GivingWay
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tasks.share import NO_SHARE
from skipstone_core.contract.reports import EXIT_UNAVAILABLE, JobReport, RunOutcome
from skipstone_core.contract.requests import IndexRef, RunKind
from skipstone_core.maintenance.policies import CompactionPolicy, MaintenancePolicy, MaintenanceStep, SnapshotPolicy
from skipstone_core.reasons import Reason

from tests.spark.maintain_bed import EAGER, MaintainBed, numbers
from tests.spark.merge_bed import AtSwap, rows_of, task_of
from tests.spark.rawdeletes import add_equality_delete, add_position_delete
from tests.spark.secondengine import second_spark

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()), NestedField(3, "d", DoubleType()))
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
ON_READ = {"write.merge.mode": "merge-on-read"}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MaintainBed]:
    """An empty warehouse."""
    made = MaintainBed(tmp_path)
    yield made
    made.catalog.close()


def test_small_files_become_one_with_the_same_rows(bed: MaintainBed, spark: SparkSession) -> None:
    bed.create(SCHEMA)
    for start in range(0, 50, 10):
        bed.append(numbers(start, 10, d=math.nan if start else -0.0))
    before = bed.held()
    step = bed.compact()
    assert step.is_done and step.reason is Reason.COMMITTED
    assert (step.counts["filesRewritten"], step.counts["filesWritten"], step.counts["commits"]) == (5, 1, 1)
    assert bed.held() == before
    assert rows_of(second_spark(spark, bed.warehouse).table("skipstone.ns.t").toArrow()) == before
    snapshot = bed.table().current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert snapshot.summary["total-records"] == "50"
    assert bed.compact().reason is Reason.IDLE
    assert bed.strays() == set()


def test_merged_on_read_files_lose_their_deletes(bed: MaintainBed) -> None:
    bed.create(SCHEMA, **ON_READ)
    bed.append(numbers(0, 1000), numbers(1000, 1000))
    bed.merge(task_of(bed.source(numbers(0, 1), "one")))
    bed.merge(task_of(bed.source(numbers(1000, 150), "two")))
    before = bed.held()
    assert len(bed.files().delete_files) == 2
    step = bed.compact()
    assert step.counts["rowsDropped"] == 151
    assert bed.held() == before
    assert bed.files().delete_files == []


def test_a_few_deleted_rows_stay_in_a_large_file(bed: MaintainBed) -> None:
    bed.policy = CompactionPolicy(target_file_size=1024, min_input_files=2)
    bed.create(SCHEMA, **ON_READ)
    bed.append(numbers(0, 1000), numbers(1000, 1000))
    add_position_delete(bed.table(), bed.files().data_file(0), list(range(99)))
    assert bed.compact().reason is Reason.IDLE
    add_position_delete(bed.table(), bed.files().data_file(0), [99])
    before = bed.held()
    step = bed.compact()
    assert (step.counts["filesRewritten"], step.counts["rowsDropped"]) == (1, 100)
    assert bed.held() == before
    assert bed.files().delete_files == []


def test_equality_deletes_are_applied_and_later_ones_still_are(bed: MaintainBed, spark: SparkSession) -> None:
    bed.create(SCHEMA)
    bed.append(numbers(0, 10))
    bed.append(numbers(10, 10))
    add_equality_delete(bed.table(), {"id": [3, 13]})
    bed.append(numbers(3, 1))
    held = bed.held()

    def delete_more() -> None:
        add_equality_delete(bed.table(), {"id": [4, 14]})

    step = bed.compact(CommitPorts(hooks=AtSwap(before=delete_more)))
    assert step.is_done and step.counts["conflicts"] == 0
    expected = [row for row in held if not row.startswith(("(4,", "(14,"))]
    assert bed.held() == expected
    assert rows_of(second_spark(spark, bed.warehouse).table("skipstone.ns.t").toArrow()) == expected
    assert len(bed.files().delete_files) == 1
    bed.policy = CompactionPolicy(target_file_size=EAGER.target_file_size, min_input_files=2, delete_permille=1)
    assert bed.compact().counts["rowsDropped"] == 2
    assert bed.held() == expected
    assert bed.files().delete_files == []


def test_rows_of_an_old_spec_are_written_under_the_new_one(bed: MaintainBed, spark: SparkSession) -> None:
    bed.create(SCHEMA, BY_ID)
    bed.append(numbers(0, 20))
    bed.append(numbers(20, 20))
    with bed.table().update_spec() as update:
        update.add_field("v", TruncateTransform(2), "v_start")
        update.remove_field("id_bucket")
    bed.append(numbers(40, 20))
    with bed.table().update_schema() as change:
        change.add_column("more", LongType())
        change.rename_column("v", "w")
    session = second_spark(spark, bed.warehouse)
    before = rows_of(session.table("skipstone.ns.t").toArrow())
    step = bed.compact()
    assert step.is_done
    files = bed.files()
    assert set(files.files["spec_id"].to_pylist()) == {bed.table().spec().spec_id}
    assert rows_of(session.table("skipstone.ns.t").toArrow()) == before


def test_an_equality_delete_beside_a_change_of_spec_is_a_conflict(bed: MaintainBed) -> None:
    bed.create(SCHEMA, BY_ID)
    bed.append(numbers(0, 20))
    with bed.table().update_spec() as update:
        update.remove_field("id_bucket")
    step = bed.compact(CommitPorts(hooks=AtSwap(before=lambda: add_equality_delete(bed.table(), {"id": [4]}))))
    assert step.is_done and step.counts["conflicts"] == 1
    assert not any(row.startswith("(4,") for row in bed.held())
    assert bed.strays() == set()


def test_sorted_within_and_across_files(bed: MaintainBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.kernels.ordering.SortedRows.run_bytes", 8_000)
    bed.policy = CompactionPolicy(target_file_size=8_000, min_input_files=2, sort_by=("v", "d"))
    bed.create(SCHEMA)
    rows = [{"id": n, "v": None if n % 97 == 0 else f"v{(n * 7919) % 3000:05}", "d": math.nan} for n in range(3000)]
    for part in range(6):
        bed.append(rows[part::6])
    before = bed.held()
    step = bed.compact()
    assert step.is_done
    assert bed.held() == before
    found = [pq.read_table(path, partitioning=None)["v"].to_pylist() for path in bed.paths()]
    assert len(found) > 1
    whole = [[("" if value is None else value) for value in one] for one in found]
    assert all(one == sorted(one) for one in whole)
    ordered = sorted(whole, key=lambda one: (one[0], one[-1]))
    assert all(before[-1] <= after[0] for before, after in itertools.pairwise(ordered))


def test_an_unknown_column_to_sort_by_is_a_sentence(bed: MaintainBed) -> None:
    bed.policy = CompactionPolicy(sort_by=("nobody",))
    bed.create(SCHEMA)
    bed.append(*(numbers(number, 1) for number in range(5)))
    report = bed.run(bed.compaction())
    (step,), (state,) = report.steps, report.table_states
    assert state.health is not None and state.health.due_files == 5
    assert not step.is_done and step.reason is Reason.INVALID_SPEC
    assert step.message == (
        "spec.maintenance.compaction.sortBy: the table has no column 'nobody'; name one of id, v, d"
    )


def test_what_was_done_before_the_run_failed_is_told(
    bed: MaintainBed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bed.create(SCHEMA)
    bed.append(numbers(0, 1), numbers(1, 1))
    notes = Path(bed.warehouse.root, ".skipstone", "expired")
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("in the way")
    policy = MaintenancePolicy(compaction=EAGER, snapshots=SnapshotPolicy(max_age_seconds=0))
    folder = tmp_path_factory.mktemp("run")
    (folder / "request").write_text(bed.maintenance((*MaintenanceStep,)[1:4], policy).to_json())
    environment = {"SKIPSTONE_REQUEST": str(folder / "request"), "SKIPSTONE_REPORT": str(folder / "report")}
    assert run_app(RunKind.MAINTAIN, run_maintain, environment) == EXIT_UNAVAILABLE
    report = JobReport.from_json((folder / "report").read_text())
    assert (report.outcome, report.reason) == (RunOutcome.UNKNOWN, Reason.STORAGE_UNAVAILABLE)
    assert [(step.step, step.is_done) for step in report.steps] == [
        (MaintenanceStep.COMPACTION, True),
        (MaintenanceStep.MANIFESTS, True),
    ]
    assert report.steps[0].counts["filesRewritten"] == 2


def test_large_row_groups_are_copied(bed: MaintainBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.kernels.compacting.COPIED_ROWS", 150)
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    bed.create(SCHEMA, **properties)
    bed.append(numbers(0, 200, d=math.nan), numbers(200, 200), numbers(400, 130))
    add_position_delete(bed.table(), bed.files().data_file(0), [0])
    before = bed.held()
    assert bed.compact().is_done
    assert bed.held() == before
    (path,) = bed.paths()
    footer = pq.ParquetFile(path).metadata
    assert footer.num_rows == 529
    assert sorted(footer.row_group(n).num_rows for n in range(footer.num_row_groups)) == [200, 329]
    assert bed.merge(task_of(bed.source(numbers(7, 1)))).counts["rowsMatched"] == 1


def test_commits_are_bounded_and_the_run_gives_way_between_them(bed: MaintainBed) -> None:
    bed.create(SCHEMA, PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id")))
    bed.append(*(numbers(n % 4, 1) for n in range(16)))
    before = bed.held()
    gives_way = GivingWay()
    request = bed.compaction(max_commit_bytes=1)
    report = bed.run(request, CommitPorts(hooks=AtSwap(after=gives_way.ask)), gives_way)
    (step,) = report.steps
    assert not step.is_done and step.counts["commits"] == 1
    assert bed.held() == before
    assert bed.compact(max_commit_bytes=1).counts["commits"] == 3
    assert bed.held() == before
    assert len(bed.files()) == 4


def test_a_group_that_another_writer_changed_is_left_out_and_the_others_commit(bed: MaintainBed) -> None:
    bed.create(SCHEMA, PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id")))
    bed.append(*(numbers(n % 2, 1) for n in range(8)))
    ports = CommitPorts(hooks=AtSwap(before=lambda: bed.table().delete("id = 1")))
    step = bed.compact(ports)
    assert step.is_done
    assert (step.counts["conflicts"], step.counts["commits"]) == (1, 1)
    assert [row[:3] for row in bed.held()] == ["(0,"] * 4
    assert len(bed.files()) == 1
    assert bed.strays() == set()


def test_spark_does_the_work_where_the_warehouse_wants_it(bed: MaintainBed, spark: SparkSession) -> None:
    bed.create(SCHEMA)
    for start in range(0, 30, 10):
        bed.append(numbers(start, 10))
    before = bed.held()
    assert bed.compact(limits=NO_SHARE).counts["filesWritten"] == 1
    assert bed.held() == before


def test_a_file_that_is_gone_keeps_only_its_group(bed: MaintainBed) -> None:
    bed.create(SCHEMA, PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id")))
    bed.append(*(numbers(n % 2, 1) for n in range(4)))
    path = next(Path(path) for path in sorted(bed.paths()) if "id=1" in path)
    content = path.read_bytes()
    path.unlink()
    step = bed.compact()
    assert not step.is_done and step.reason is Reason.SOURCE_UNREADABLE and path.name in step.message
    assert step.counts["filesRewritten"] == 2
    path.write_bytes(content)
    assert bed.compact().counts["filesRewritten"] == 2
    assert bed.strays() == set()


def test_an_inline_index_holds_the_new_files_when_the_run_ends(bed: MaintainBed) -> None:
    bed.create(SCHEMA)
    for start in range(0, 30, 10):
        bed.append(numbers(start, 10))
    index = IndexRef(name="by-id", uid="33333333-0000-0000-0000-000000000000", columns=("id",), is_inline=True)
    report = bed.run(bed.compaction(index))
    ((state,),) = (one.indexes for one in report.table_states)
    assert report.table_states[0].files == 1
    assert (state.segments_synced, state.segments_missing, state.files_covered) == (1, 0, 1)
    assert not report.message

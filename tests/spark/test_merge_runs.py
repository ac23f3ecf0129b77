"""Whole merge runs on real tables, compared with DuckDB's MERGE."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import ALL_IN_SPARK, DELETE_D, INSERT, UPDATE, MergeBed, duckdb_merge, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "n", LongType()),
)


@pytest.fixture
def bed(tmp_path: Path) -> MergeBed:
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    return made


def people(start: int, stop: int) -> list[dict[str, object]]:
    return [{"id": i, "name": f"name {i}", "n": i % 7} for i in range(start, stop)]


def test_a_table_in_a_namespace_of_several_levels_is_merged_into(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path, namespace="shop.eu")
    bed.create(SCHEMA)
    bed.append(people(0, 10), people(10, 20))
    report = bed.merge(task_of(bed.source([{"id": 5, "name": "five"}]), when_matched=(UPDATE,)))
    assert report.outcome is RunOutcome.COMMITTED
    assert (report.counts["filesTouched"], report.counts["rowsUpdated"]) == (1, 1)
    assert bed.table().scan("id = 5").to_arrow()["name"].to_pylist() == ["five"]


def test_update_delete_and_insert_touch_only_files_with_keys(bed: MergeBed) -> None:
    bed.append(*(people(1000 * i, 1000 * (i + 1)) for i in range(10)))
    feed = pa.table(
        {
            "id": pa.array([5, 7, 2500, 10_001, 10_002]),
            "name": ["five", "seven", None, "new", "gone"],
            "op": ["U", "D", "U", "I", "D"],
        }
    )
    expected = duckdb_merge(
        bed.table().scan().to_arrow(),
        feed,
        "merge into t using s on t.id = s.id when matched and s.op = 'D' then delete "
        "when matched then update set name = s.name "
        "when not matched and s.op != 'D' then insert (id, name) values (s.id, s.name)",
    )
    before = bed.paths()
    clause = INSERT.__class__(action=INSERT.action, when="source.op != 'D'")
    report = bed.merge(task_of(bed.source(feed), when_matched=(DELETE_D, UPDATE), when_not_matched=(clause,)))
    assert report.outcome is RunOutcome.COMMITTED
    assert {name: count for name, count in report.counts.items() if not name.startswith("bytes")} == {
        "filesTotal": 10,
        "filesCandidate": 2,
        "filesTouched": 2,
        "filesRewritten": 2,
        "filesMarked": 0,
        "rowsSource": 5,
        "rowsMatching": 3,
        "rowsSuperseded": 0,
        "rowsUnmatched": 1,
        "rowsUnmatchedDeletes": 1,
        "rowsUnmatchedUpdates": 0,
        "rowsRejected": 0,
        "rowsWaiting": 0,
        "rowsMatched": 3,
        "rowsUpdated": 2,
        "rowsDeleted": 1,
        "rowsInserted": 1,
        "rowsIgnored": 0,
        "rowsCopied": 1997,
    }
    assert bed.rows() == expected
    assert len(before & bed.paths()) == 8
    assert report.table_states[0].rows == 10_000
    summary = bed.table().current_snapshot().summary  # type: ignore[union-attr]
    assert summary["skipstone.merge.funnel"] == "total 10 > NullKeys 10 > KeyRanges 2 > ExactJoin 2"  # type: ignore[index]
    assert not list((bed.root / ".skipstone" / "runs").rglob("*.parquet"))


def test_run_twice_commits_once(bed: MergeBed) -> None:
    bed.append(people(0, 10))
    task = task_of(bed.source(people(5, 12)))
    first = bed.merge(task, uid="aaaaaaaa-0000-0000-0000-000000000000")
    rows = bed.rows()
    second = bed.merge(task, uid="aaaaaaaa-0000-0000-0000-000000000000")
    assert second.outcome is RunOutcome.ALREADY_COMMITTED
    assert second.snapshot_id == first.snapshot_id
    assert second.counts == first.counts
    assert bed.rows() == rows
    third = bed.merge(task)
    assert third.reason is Reason.SOURCE_ALREADY_APPLIED
    assert bed.rows() == rows


def test_a_small_merge_of_plain_files_starts_no_spark(bed: MergeBed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.append(people(0, 10), people(10, 20))

    def no_spark(*_: object) -> None:
        raise AssertionError("the driver can do this by itself")

    monkeypatch.setattr("skipstone.runs.merging.merge.spark_session", no_spark)
    report = bed.merge(task_of(bed.source(people(15, 25))))
    assert (report.counts["rowsUpdated"], report.counts["rowsInserted"]) == (5, 5)
    assert {"read", "prune", "rewrite", "commit"} <= report.stages_ms.keys()
    assert "session" not in report.stages_ms


def test_large_sources_are_sliced_searched_and_inserted_by_tasks(
    bed: MergeBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.limits = ALL_IN_SPARK
    bed.append(*(people(100 * i, 100 * (i + 1)) for i in range(10)))
    feed = pa.table({"id": range(450, 3000), "name": [f"changed {i}" for i in range(450, 3000)]})
    expected = duckdb_merge(
        bed.table().scan().to_arrow(),
        feed,
        "merge into t using s on t.id = s.id when matched then update set name = s.name "
        "when not matched then insert (id, name) values (s.id, s.name)",
    )
    monkeypatch.setattr("skipstone.runs.merging.slices.slicing.SLICE_BYTES", 2_000)
    monkeypatch.setattr("skipstone.runs.merging.rewrite.INSERT_HERE_ROWS", 1)
    report = bed.merge(task_of(bed.source(feed)))
    assert bed.rows() == expected
    assert report.counts["filesCandidate"] == report.counts["filesTouched"] == 6
    assert report.counts["rowsInserted"] == 2000


def test_a_merge_at_work_tells_what_it_prunes_and_then_what_it_is_about_to_commit(bed: MergeBed) -> None:
    shown: list[JobReport] = []

    class Sink:
        def show(self, report: str) -> None:
            shown.append(JobReport.from_json(report))

        def finish(self, report: str, short: str) -> None:
            """Nothing more is wanted."""

    bed.append(*(people(10 * i, 10 * (i + 1)) for i in range(5)))
    request = bed.request(task_of(bed.source(people(5, 7))))
    run_merge(request, Reporter(request, Sink()))
    merging = next(report for report in shown if (report.progress or "").startswith("merging"))
    assert merging.counts == {"filesTotal": 5, "filesCandidate": 1, "rowsSource": 2}
    assert [(stage.name, stage.files_out) for stage in merging.funnel if stage.left_out is None] == [
        ("NullKeys", 5),
        ("KeyRanges", 1),
    ]
    committing = next(report for report in shown if report.progress == "committing")
    assert (committing.counts["filesTouched"], committing.counts["rowsUpdated"]) == (1, 2)
    assert committing.funnel[-1].name == "ExactJoin"
    assert committing.outcome is RunOutcome.RUNNING

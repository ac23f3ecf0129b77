"""Whole merges through the funnel: the same table whatever stages are off, and an honest account of what each did."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.reporting.report import fit_termination
from skipstone.tasks.share import DriverShare
from skipstone_core.contract.reports import MAX_TERMINATION_BYTES, JobReport, RunOutcome
from skipstone_core.contract.requests import PruningStrategy
from skipstone_core.funnel import LeftOut, PruneStage

from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import MergeBed, duckdb_merge, task_of
from tests.unit.bloom_beds import eager_filters

SCHEMA = Schema(
    NestedField(1, "id", StringType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "n", LongType()),
)
BUCKETS = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
MERGE = (
    "merge into t using s on t.id = s.id and t.n < 3 when matched then update set name = s.name, n = s.n "
    "when not matched then insert (id, name, n) values (s.id, s.name, s.n)"
)
#: Only the keys are looked for by Spark tasks.
SEARCHED_IN_SPARK = DriverShare(searched_rows=0)
FEED = pa.table({"id": ["id-0005", "id-0013", "new"], "name": ["five", "thirteen", "new"], "n": [7, 7, 7]})


@pytest.fixture
def bed(tmp_path: Path) -> MergeBed:
    """Six segments of two buckets: key ``i`` is in segment ``i % 6``, so that bounds tell nothing; an index of four."""
    made = MergeBed(tmp_path)
    made.create(SCHEMA, BUCKETS)
    for segment in range(6):
        made.append([{"id": f"id-{i:04}", "name": str(i), "n": segment} for i in range(segment, 300, 6)])
    Lake(tmp_path).reindex(index_on("id"), max_segments=4)
    return made


OFF: tuple[tuple[PruneStage, ...], ...] = (
    (),
    (PruneStage.PARTITIONS,),
    (PruneStage.TARGET_WHERE, PruneStage.KEY_RANGES),
    (PruneStage.KEY_INDEX,),
    tuple(PruneStage),
)


@pytest.mark.parametrize("off", OFF, ids=lambda off: "-".join(off) or "none")
def test_the_table_is_the_same_whatever_stages_are_off(bed: MergeBed, off: tuple[PruneStage, ...]) -> None:
    expected = duckdb_merge(bed.table().scan().to_arrow(), FEED, MERGE)
    report = bed.merge(task_of(bed.source(FEED), target_where="target.n < 3", disabled_stages=off))
    assert bed.rows() == expected
    assert (report.counts["rowsUpdated"], report.counts["rowsInserted"]) == (1, 2)
    assert {stage.name for stage in report.funnel if stage.left_out is LeftOut.SWITCHED_OFF} == set(off)


def test_the_report_and_the_snapshot_say_what_each_stage_did(bed: MergeBed) -> None:
    report = bed.merge(task_of(bed.source(FEED), target_where="target.n < 3"))
    total, kept = report.counts["filesTotal"], report.counts["filesCandidate"]
    assert (total, kept, report.counts["filesTouched"]) == (12, 1, 1)
    where = next(stage for stage in report.funnel if stage.name == PruneStage.TARGET_WHERE)
    assert (where.files_out, where.untouched, where.false_positive_rate) == (6, 5, "83.3 %")
    assert report.funnel[-1].name == "ExactJoin"
    assert report.counts["rowsCopied"] == 26
    assert report.counts["bytesRemoved"] == report.counts["bytesCandidate"] > 0
    assert report.counts["bytesRewritten"] > 0 < report.counts["bytesInserted"]
    assert {"plan", "read", "prune", "rewrite", "commit"} <= set(report.stages_ms)
    summary = bed.table().current_snapshot().summary  # type: ignore[union-attr]
    said = {name.removeprefix("skipstone.merge."): value for name, value in summary.additional_properties.items()}  # type: ignore[union-attr]
    assert said["funnel"].endswith("KeyIndex 1 > ExactJoin 1")
    assert "TargetWhere 83.3 %" in said["false-positives"]
    assert said["rowsCopied"] == "26"
    assert said["stages-ms"].startswith("open ")


def test_strategies_switch_stages_off(bed: MergeBed) -> None:
    report = bed.merge(task_of(bed.source(FEED), pruning=PruningStrategy.MIN_MAX))
    off = [stage for stage in report.funnel if stage.left_out is LeftOut.SWITCHED_OFF]
    said = "spec.pruning.strategy is MinMax"
    assert [(stage.name, stage.message) for stage in off] == [("Bloom", said), ("KeyIndex", said)]
    unpruned = bed.merge(task_of(bed.source(FEED, "again"), pruning=PruningStrategy.NONE, when_not_matched=()))
    assert unpruned.outcome is RunOutcome.COMMITTED
    assert unpruned.counts["filesCandidate"] == unpruned.counts["filesTotal"]


def test_large_sources_are_pruned_by_tasks(bed: MergeBed) -> None:
    bed.limits = SEARCHED_IN_SPARK
    expected = duckdb_merge(bed.table().scan().to_arrow(), FEED, MERGE)
    report = bed.merge(task_of(bed.source(FEED), target_where="target.n < 3"))
    assert bed.rows() == expected
    assert report.counts["filesCandidate"] == 1
    left_out = [(stage.name, stage.left_out) for stage in report.funnel if stage.left_out]
    assert left_out == [(PruneStage.BLOOM, LeftOut.LEFT_TO_INDEX)]
    assert "session" in report.stages_ms, "nothing else of this merge needs Spark"


def test_filters_are_asked_in_tasks(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path, limits=SEARCHED_IN_SPARK)
    bed.create(SCHEMA, **{"write.parquet.bloom-filter-enabled.column.id": "true"})
    for segment in range(6):
        bed.append([{"id": f"id-{i:04}", "name": str(i), "n": segment} for i in range(segment, 300, 6)])
    expected = duckdb_merge(bed.table().scan().to_arrow(), FEED, MERGE)
    with eager_filters():
        report = bed.merge(task_of(bed.source(FEED), target_where="target.n < 3"))
    assert bed.rows() == expected
    (said,) = [stage for stage in report.funnel if stage.name == PruneStage.BLOOM]
    assert (said.files_in, said.left_out, said.files_out) == (3, None, 1), said
    assert "session" in report.stages_ms, "nothing else of this merge needs Spark"


def test_the_index_that_binds_most_columns_of_one_segment_costs_no_candidates_of_the_others(bed: MergeBed) -> None:
    """Keys of segments 0 and 1. Alone, the index of ``id`` keeps 6 files, that of ``n`` 4, and that of both 10."""
    Lake(bed.root).reindex(index_on("id", "n", name="both"), max_segments=1)
    Lake(bed.root).reindex(index_on("n", name="by-n"))
    bed.limits = SEARCHED_IN_SPARK
    feed = pa.table({"id": ["id-0006", "id-0013", "new"], "name": ["six", "thirteen", "new"], "n": [0, 1, 7]})
    expected = duckdb_merge(
        bed.table().scan().to_arrow(),
        feed,
        "merge into t using s on t.id = s.id and t.n = s.n when matched then update set name = s.name "
        "when not matched then insert (id, name, n) values (s.id, s.name, s.n)",
    )
    bounds = (PruneStage.PARTITIONS, PruneStage.KEY_RANGES)
    report = bed.merge(task_of(bed.source(feed), ("id", "n"), disabled_stages=bounds))
    assert bed.rows() == expected
    assert (report.counts["filesTotal"], report.counts["filesCandidate"], report.counts["filesTouched"]) == (12, 2, 2)
    assert "session" in report.stages_ms


def test_a_report_with_its_funnel_travels(bed: MergeBed) -> None:
    report = bed.merge(task_of(bed.source(FEED)))
    assert JobReport.from_json(report.to_json()) == report
    assert len(fit_termination(report).encode()) <= MAX_TERMINATION_BYTES

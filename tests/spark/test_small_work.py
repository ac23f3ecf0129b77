"""Small work in the driver or in Spark, as the Warehouse says: the same rows and the same answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.indexes.tables import sorted_runs
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare, driver_share, merges_here
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    LoadTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    WarehouseRef,
)
from skipstone_core.contract.spark import SmallWork, SparkRef

from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import DELETE_D, INSERT, UPDATE, MergeBed, task_of

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
BY_NAME = index_on("name")
_GROUPS = itertools.count()
#: So many segments, indexed one after the other, fill a level of the index.
SEGMENTS = 8
RUNS: dict[RunKind, Callable[[JobRequest, Reporter], JobReport]] = {
    RunKind.LOAD: run_load,
    RunKind.MERGE: run_merge,
    RunKind.REINDEX: run_reindex,
}
QUESTIONS = ("name = 'n17'", "name = 'n18'", "name = 'seven'", "name = 'eight'", "name >= 'n90'", "name is null")


def job_number(spark: SparkSession) -> int:
    """The number of a job that Spark gets now: jobs of all groups are counted through."""
    group = f"counted-{next(_GROUPS)}"
    spark.sparkContext.setJobGroup(group, "a job of the test")
    spark.range(1).collect()
    (number,) = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    return number


def row(number: int) -> dict[str, object]:
    return {"id": number, "name": f"n{number}"}


FEEDS: dict[str, list[dict[str, object]]] = {
    "copy-on-write": [
        {"id": 7, "name": "seven", "op": "U"},
        {**row(17), "op": "D"},
        {"id": 100, "name": None, "op": "I"},
    ],
    "merge-on-read": [
        {"id": 8, "name": "eight", "op": "U"},
        {**row(18), "op": "D"},
        {"id": 101, "name": None, "op": "I"},
    ],
}


@dataclass
class Place:
    """One lake whose Warehouse says where small work is done."""

    root: Path
    small_work: SmallWork
    spark: SparkSession
    in_spark: dict[str, bool] = field(default_factory=dict)

    def run(self, request: JobRequest, doing: str) -> None:
        """One run, and whether Spark was given a job meanwhile."""
        wanted = replace(request, spark=SparkRef(small_work=self.small_work))
        before = job_number(self.spark)
        report = RUNS[request.kind](wanted, Reporter(wanted))
        assert report.outcome is RunOutcome.COMMITTED, report
        self.in_spark[doing] = job_number(self.spark) > before + 1

    def work(self) -> tuple[list[str], list[list[dict[str, object]]]]:
        """Loads, indexes and merges in both modes; the rows and what queries through the index answer."""
        self.root.mkdir()
        bed, lake = MergeBed(self.root), Lake(self.root)
        bed.create(SCHEMA)
        for first in range(1, SEGMENTS):
            bed.append([row(number) for number in range(first, 100, SEGMENTS)])
        path = bed.source([row(number) for number in range(0, 100, SEGMENTS)], "load")
        source = SourceSpec(format=SourceFormat.PARQUET, paths=(path,))
        loading = replace(bed.request(task_of(path)), kind=RunKind.LOAD, merge=None, load=LoadTask(source=source))
        self.run(loading, "load")
        for _ in range(SEGMENTS - 1):
            lake.reindex(BY_NAME, max_segments=1)
        self.run(lake.request(BY_NAME, max_segments=1), "reindex")
        assert len(sorted_runs(lake.index_table(BY_NAME).entries)) == 1, "the last reindex merges the level"
        for mode, feed in FEEDS.items():
            with bed.table().transaction() as change:
                change.set_properties({"write.merge.mode": mode})
            path = bed.source(feed, mode)
            self.run(bed.request(task_of(path, when_matched=(DELETE_D, UPDATE), when_not_matched=(INSERT,))), mode)
        assert bed.table().inspect.delete_files().num_rows > 0, "the second merge marks rows"
        lake.reindex(BY_NAME)
        answers = [lake.assert_exact(question).sort_by("id").to_pylist() for question in QUESTIONS]
        return bed.rows(), answers


def test_rows_and_answers_are_the_same_wherever_small_work_is_done(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JobRequest] = []
    for module in ("skipstone.runs.load", "skipstone.runs.merging.merge"):
        monkeypatch.setattr(f"{module}.warm_workers", lambda _: None)  # only jobs that do the work are counted
    monkeypatch.setattr("skipstone.runs.reindex.spark_session", lambda request: asked.append(request) or spark)
    here = Place(tmp_path / "driver", SmallWork.DRIVER, spark)
    there = Place(tmp_path / "spark", SmallWork.SPARK, spark)
    results = [place.work() for place in (here, there)]
    assert results[0] == results[1]
    rows, (*gone, seven, eight, _, nameless) = results[0]
    assert len(rows) == 100
    assert gone == [[], []]
    assert (seven, eight) == ([{"id": 7, "name": "seven"}], [{"id": 8, "name": "eight"}])
    assert [each["id"] for each in nameless] == [100, 101]
    assert len(asked) == 2, "a build and a compaction"
    runs = ("load", "reindex", *FEEDS)
    assert (here.in_spark, there.in_spark) == (dict.fromkeys(runs, False), dict.fromkeys(runs, True))


def test_a_driver_has_no_share_where_all_work_is_sent_to_spark() -> None:
    tight = DriverShare(rows=3)
    assert driver_share(SparkRef()) == USUAL_SHARE
    assert driver_share(SparkRef(small_work=SmallWork.DRIVER), tight) == tight
    assert driver_share(SparkRef(small_work=SmallWork.SPARK), tight) == NO_SHARE
    work = (NO_SHARE.searches(1), NO_SHARE.rewrites(1, 0, 0), NO_SHARE.rewrites(0, 1, 0), NO_SHARE.rewrites(0, 0, 1))
    assert not any((*work, NO_SHARE.indexes(1)))


def test_a_driver_applies_no_rows_that_it_could_not_hold_when_it_read_them() -> None:
    share = DriverShare(source_bytes=1_000, candidate_bytes=50)
    assert share.rewrites(2, 1_000, 50)
    assert not share.rewrites(2, 1_001, 50)


def test_a_run_without_executors_rewrites_large_files_without_a_jvm() -> None:
    large = USUAL_SHARE.candidate_bytes + 1
    place = WarehouseRef(name="main", root="/", catalog=CatalogRef(type=CatalogType.SQL))
    owner = {"owner_kind": "MergeJob", "owner_name": "m", "owner_uid": "m"}
    alone = JobRequest(kind=RunKind.MERGE, run_id="m", attempt=1, warehouse=place, **owner)
    with_executors = replace(alone, spark=SparkRef(instances=2))
    assert merges_here(alone, USUAL_SHARE, rows=9, held=9, size=large)
    assert not merges_here(with_executors, USUAL_SHARE, rows=9, held=9, size=large)
    assert merges_here(with_executors, USUAL_SHARE, rows=9, held=9, size=large - 1)
    assert not merges_here(alone, DriverShare(rows=8), rows=9, held=9, size=large)
    assert not merges_here(alone, DriverShare(source_bytes=8), rows=9, held=9, size=large)
    assert not merges_here(alone, NO_SHARE, rows=0, held=0, size=large)

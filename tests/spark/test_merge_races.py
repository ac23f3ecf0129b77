"""Merges beside other writers: each interleaving has one outcome, and no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.runs.merging.merge import MAX_PLANS
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import AtSwap, MergeBed, task_of
from tests.spark.secondengine import second_spark

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
FEED = pa.table({"id": [5, 15, 100], "v": ["five", "fifteen", "hundred"]})
UID = "dddddddd-0000-0000-0000-000000000000"


class Killed(BaseException):
    """Stands for a driver that dies: nothing catches it."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    made.append([row(i) for i in range(10)], [row(i) for i in range(10, 20)], [row(i) for i in range(20, 30)])
    yield made
    made.catalog.close()


def row(number: int, value: str = "old") -> dict[str, Any]:
    return {"id": number, "v": value}


def merged(bed: MergeBed, before: Callable[[], None]) -> JobReport:
    """Merge the feed while another writer does ``before`` just before the first swap."""
    ports = CommitPorts(hooks=AtSwap(before=before))
    return bed.merge(task_of(bed.source(FEED)), UID, ports)


def values(bed: MergeBed) -> list[tuple[int, str]]:
    return sorted((one["id"], one["v"]) for one in bed.table().scan().to_arrow().to_pylist())


def expected(*more: tuple[int, str]) -> list[tuple[int, str]]:
    changed = {5: "five", 15: "fifteen", 100: "hundred"}
    return sorted([(i, changed.get(i, "old")) for i in range(30)] + [(100, "hundred"), *more])


def test_an_append_without_our_keys_does_not_disturb(bed: MergeBed) -> None:
    report = merged(bed, lambda: bed.append([row(40), row(99)]))
    assert report.outcome is RunOutcome.COMMITTED
    assert values(bed) == expected((40, "old"), (99, "old"))
    assert len(bed.on_disk() - bed.paths()) == 2


def test_an_append_whose_range_holds_our_key_but_not_the_key_does_not_disturb(bed: MergeBed) -> None:
    report = merged(bed, lambda: bed.append([row(90), row(110)]))
    assert report.outcome is RunOutcome.COMMITTED
    assert values(bed) == expected((90, "old"), (110, "old"))


def test_an_append_with_our_key_makes_us_plan_again(bed: MergeBed) -> None:
    report = merged(bed, lambda: bed.append([row(100, "theirs"), row(5, "theirs")]))
    assert report.outcome is RunOutcome.COMMITTED
    assert report.counts["rowsInserted"] == 0
    assert report.counts["rowsUpdated"] == 4
    assert values(bed) == expected((5, "five"))
    assert len(bed.on_disk() - bed.paths()) == 3


def test_a_file_that_another_writer_rewrote_makes_us_plan_again(bed: MergeBed) -> None:
    report = merged(bed, lambda: bed.table().delete("id = 6"))
    assert report.outcome is RunOutcome.COMMITTED
    assert values(bed) == [pair for pair in expected() if pair[0] != 6]


def test_a_file_that_we_do_not_touch_may_go(bed: MergeBed) -> None:
    report = merged(bed, lambda: bed.table().delete("id >= 20"))
    assert report.outcome is RunOutcome.COMMITTED
    assert values(bed) == [pair for pair in expected() if not 20 <= pair[0] < 30]


def test_a_position_delete_on_a_file_that_we_rewrite_makes_us_plan_again(bed: MergeBed, spark: SparkSession) -> None:
    with bed.table().transaction() as change:
        change.set_properties({"write.delete.mode": "merge-on-read"})

    def delete_one_row() -> None:
        second_spark(spark, bed.warehouse).sql("delete from skipstone.ns.t where id = 7")

    report = merged(bed, delete_one_row)
    assert report.outcome is RunOutcome.COMMITTED
    assert values(bed) == [pair for pair in expected() if pair[0] != 7]


def test_a_new_column_makes_us_read_the_source_again(bed: MergeBed) -> None:
    def add_column() -> None:
        with bed.table().update_schema() as change:
            change.add_column("n", LongType())

    report = merged(bed, add_column)
    assert report.outcome is RunOutcome.COMMITTED
    assert values(bed) == expected()
    assert bed.table().schema().column_names == ["id", "v", "n"]


def test_a_key_column_dropped_under_the_merge_is_a_clear_error(bed: MergeBed) -> None:
    def rename() -> None:
        with bed.table().update_schema() as change:
            change.rename_column("id", "key")

    with pytest.raises(Exception, match="the table has no column 'id'"):
        merged(bed, rename)
    assert sorted(one["key"] for one in bed.table().scan().to_arrow().to_pylist()) == list(range(30))


def test_writers_that_never_stop_end_in_conflict_and_leave_no_file(bed: MergeBed) -> None:
    class Always:
        count = 0

        def before_swap(self, table: object) -> None:
            self.count += 1
            bed.append([row(5, f"theirs {self.count}")])

        def after_swap(self, table: object) -> None:
            """Nothing."""

    hooks = Always()
    report = bed.merge(task_of(bed.source(FEED)), UID, CommitPorts(hooks=hooks))
    assert report.outcome is RunOutcome.CONFLICTED
    assert report.reason is Reason.CONFLICTED
    assert "rows that this merge concerns" in report.message
    assert hooks.count == MAX_PLANS
    assert values(bed) == sorted([(i, "old") for i in range(30)] + [(5, f"theirs {i + 1}") for i in range(MAX_PLANS)])
    assert bed.on_disk() == bed.paths()


def test_two_merges_insert_one_key_once(bed: MergeBed) -> None:
    second = bed.source(pa.table({"id": [100], "v": ["second"]}), "second")
    report = merged(bed, lambda: (bed.merge(task_of(second)), None)[1])
    assert report.outcome is RunOutcome.COMMITTED
    assert report.counts["rowsInserted"] == 0
    assert values(bed) == expected()


def test_a_driver_killed_after_its_commit_has_committed_once(bed: MergeBed) -> None:
    def die() -> None:
        raise Killed

    task = task_of(bed.source(FEED))
    with pytest.raises(Killed):
        bed.merge(task, UID, CommitPorts(hooks=AtSwap(after=die)))
    assert values(bed) == expected()
    report = bed.merge(task, UID)
    assert report.outcome is RunOutcome.ALREADY_COMMITTED
    assert report.counts["rowsUpdated"] == 2
    assert values(bed) == expected()


def test_a_driver_killed_before_its_commit_leaves_the_table_to_the_next_attempt(bed: MergeBed) -> None:
    def die() -> None:
        raise Killed

    task = task_of(bed.source(FEED))
    with pytest.raises(Killed):
        bed.merge(task, UID, CommitPorts(hooks=AtSwap(before=die)))
    assert values(bed) == [(i, "old") for i in range(30)]
    assert bed.merge(task, UID).outcome is RunOutcome.COMMITTED
    assert values(bed) == expected()


def test_two_drivers_of_one_job_commit_once(bed: MergeBed) -> None:
    task = task_of(bed.source(FEED))
    reports = []
    ports = CommitPorts(hooks=AtSwap(before=lambda: reports.append(bed.merge(task, UID))))
    second = bed.merge(task, UID, ports)
    assert [reports[0].outcome, second.outcome] == [RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED]
    assert values(bed) == expected()
    assert len(bed.on_disk() - bed.paths()) == 2, "what the second driver wrote is gone"

"""Merges and loads that consume a folder: whole runs, and what is in the table after each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from skipstone.runs.intake import NO_NEW_FILES
from skipstone.runs.load import run_load
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import (
    ConsumePolicy,
    JobRequest,
    LoadTask,
    MergeTask,
    RunKind,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import AtSwap, MergeBed, task_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", LongType()))
UID = "eeeeeeee-0000-0000-0000-000000000000"
SOURCE = SourceSpec(
    format=SourceFormat.CSV,
    paths=("feeds/orders",),
    options={"header": "true"},
    consume=ConsumePolicy.NEW,
    consumer="MergeSchedule ns/orders",
)


class Killed(BaseException):
    """Stands for a driver that dies: nothing catches it."""


def die() -> None:
    raise Killed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    made.append([{"id": number, "v": 0} for number in range(5)])
    (tmp_path / "feeds" / "orders").mkdir(parents=True)
    yield made
    made.catalog.close()


def task() -> MergeTask:
    return task_of("", source=SOURCE)


def feed(bed: MergeBed, name: str, *rows: tuple[int, int]) -> None:
    bed.text(f"orders/{name}.csv", "id,v\n" + "".join(f"{key},{value}\n" for key, value in rows))


def values(bed: MergeBed) -> dict[int, int]:
    rows = bed.table().scan().to_arrow().to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def test_three_drops_are_merged_once_each_and_an_old_change_never_comes_back(bed: MergeBed) -> None:
    for number in (1, 2, 3):
        feed(bed, f"drop-{number}", (0, number), (10 + number, number))
        report = bed.merge(task())
        assert (report.outcome, report.counts["rowsSource"]) == (RunOutcome.COMMITTED, 2)
    assert values(bed) == {0: 3, 1: 0, 2: 0, 3: 0, 4: 0, 11: 1, 12: 2, 13: 3}


def test_a_merge_without_new_files_commits_nothing_and_says_so(bed: MergeBed) -> None:
    feed(bed, "a", (0, 1))
    bed.merge(task())
    before = bed.table().metadata_location
    report = bed.merge(task())
    assert (report.outcome, report.snapshot_id, report.message) == (RunOutcome.COMMITTED, "0", NO_NEW_FILES)
    assert bed.table().metadata_location == before


def test_a_merge_that_changes_no_row_has_consumed_its_files_too(bed: MergeBed) -> None:
    feed(bed, "a", (99, 1))
    only_updates = task_of("", source=SOURCE, when_not_matched=())
    assert bed.merge(only_updates).snapshot_id == "0"
    assert bed.merge(only_updates).message == NO_NEW_FILES


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_dies_at_its_swap_is_followed_by_an_attempt_that_ends_right(bed: MergeBed, moment: str) -> None:
    feed(bed, "a", (0, 1), (50, 1))
    hooks = AtSwap(before=die if moment == "before" else None, after=die if moment == "after" else None)
    with pytest.raises(Killed):
        bed.merge(task(), UID, CommitPorts(hooks=hooks))
    feed(bed, "b", (0, 2))
    expected = RunOutcome.COMMITTED if moment == "before" else RunOutcome.ALREADY_COMMITTED
    assert bed.merge(task(), UID).outcome is expected
    assert values(bed)[0] == 1
    assert bed.merge(task()).outcome is RunOutcome.COMMITTED
    assert values(bed) == {0: 2, 1: 0, 2: 0, 3: 0, 4: 0, 50: 1}


def test_two_merges_that_took_one_file_apply_it_once(bed: MergeBed) -> None:
    feed(bed, "a", (60, 1))
    reports = []
    first = bed.merge(task(), UID, CommitPorts(hooks=AtSwap(before=lambda: reports.append(bed.merge(task())))))
    assert reports[0].outcome is RunOutcome.COMMITTED
    assert (first.outcome, first.reason) == (RunOutcome.FAILED, Reason.SOURCE_ALREADY_APPLIED)
    assert values(bed)[60] == 1
    assert len(bed.on_disk() - bed.paths()) == 0


def test_loads_consume_a_folder_as_merges_do(bed: MergeBed) -> None:
    def load(number: int) -> JobRequest:
        uid = f"{number:08d}-1111-0000-0000-000000000000"
        return JobRequest(
            kind=RunKind.LOAD,
            run_id=f"{uid[:8]}-1",
            attempt=1,
            warehouse=bed.warehouse,
            owner_kind="LoadJob",
            owner_name="l",
            owner_uid=uid,
            txn=uid,
            table=bed.ref,
            load=LoadTask(source=SOURCE),
        )

    loaded = []
    for number, names in enumerate([("a", "b"), (), ("c",)]):
        for name in names:
            feed(bed, name, (100 + ord(name), 0))
        request = load(number)
        loaded.append(run_load(request, Reporter(request)).counts.get("rowsLoaded", 0))
    assert loaded == [2, 0, 1]
    assert sorted(key for key in values(bed) if key >= 100) == [197, 198, 199]

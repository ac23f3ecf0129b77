"""Inline indexes: after a load or a merge the reported state shows all segments, without a reindex run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from skipstone.indexes.tables import sorted_runs
from skipstone.tasks import share as shares
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import IndexRef, LoadMode
from skipstone_core.indexing.indexes import MERGE_FAN_IN
from skipstone_core.reasons import Reason

from tests.spark.index_bed import index_on
from tests.spark.inline_bed import BY_NAME, KINDS, InlineBed, change, rows

MODES = ("copy-on-write", "merge-on-read")


def set_mode(bed: InlineBed, mode: str) -> None:
    with bed.merges.table().transaction() as update:
        update.set_properties({"write.merge.mode": mode})


def head_of(bed: InlineBed, index: IndexRef) -> int | None:
    return bed.lake.index_table(index).table.metadata.current_snapshot_id


@pytest.mark.parametrize("share", [USUAL_SHARE, NO_SHARE], ids=["driver", "spark"])
def test_loads_and_merges_leave_all_indexes_in_sync(tmp_path: Path, share: DriverShare) -> None:
    bed = InlineBed(tmp_path / "lake", share=share)
    bed.create()
    bed.assert_in_sync(bed.load(rows(0, 40)))
    for at, mode in enumerate(MODES):
        set_mode(bed, mode)
        report = bed.merge([change(3 + at), change(20 + at, "D"), change(41 + at), change(2000 + at)])
        assert (report.outcome, report.message) == (RunOutcome.COMMITTED, "")
        assert report.stages_ms["index"] > 0
        bed.assert_in_sync(report)


def test_what_adds_no_rows_commits_nothing_to_an_index(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake")
    bed.create()
    bed.load(rows(0, 20))
    heads = [head_of(bed, index) for index in KINDS]
    set_mode(bed, "merge-on-read")
    deletes = [change(number, "D") for number in range(20)]
    bed.assert_in_sync(bed.merge(deletes[3:5], when_not_matched=()))
    set_mode(bed, "copy-on-write")
    bed.assert_in_sync(bed.merge(deletes, when_not_matched=()))
    assert not bed.merges.rows()
    bed.assert_in_sync(bed.merge(deletes, when_not_matched=()))
    assert bed.load(pa.table({"id": pa.array([], pa.int64())})).outcome is RunOutcome.COMMITTED
    assert [head_of(bed, index) for index in KINDS] == heads


def test_a_registered_file_is_entered(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake")
    bed.create()
    request = bed.load_request(rows(0, 30), mode=LoadMode.REGISTER)
    bed.assert_in_sync(bed.run(request))


def test_older_files_of_format_v1_are_not_taken_for_those_of_the_commit(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake", indexes=(BY_NAME,))
    table = bed.create(**{"format-version": "1"})
    arrow = pa.Table.from_pylist(rows(0, 10), schema=table.schema().as_arrow())
    table.append(arrow)
    table.append(arrow)
    with bed.merges.table().transaction() as update:
        update.upgrade_table_version(2)
    report = bed.load(rows(100, 10))
    assert report.outcome is RunOutcome.COMMITTED
    state = bed.lake.state(BY_NAME)
    assert (state.files_live, state.files_covered) == (3, 1)
    bed.lake.reindex(BY_NAME)
    assert bed.lake.state(BY_NAME).segments_missing == 0
    bed.lake.assert_every_row_once(BY_NAME)


def test_older_segments_are_left_to_the_reindex(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake", indexes=())
    bed.create()
    for start in (0, 20, 40):
        bed.load(rows(start, 20))
    bed.indexes = KINDS
    report = bed.merge([change(45), change(500)])
    assert report.message == ""
    for index, state in zip(KINDS, report.table_states[0].indexes, strict=True):
        assert (state.segments_missing, state.segments_synced) == (2, 1)
        bed.assert_exact()
        assert bed.lake.reindex(index).counts["segments"] == 2
        bed.lake.assert_every_row_once(index)
    bed.assert_in_sync(bed.load(rows(600, 5)))


def test_sorted_runs_stay_few_and_large_merges_are_left_to_the_reindex(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = InlineBed(tmp_path / "lake", indexes=(BY_NAME,))
    bed.create()
    for number in range(MERGE_FAN_IN):
        report = bed.load(rows(number * 10, 10))
        assert len(sorted_runs(bed.lake.index_table(BY_NAME).entries)) < MERGE_FAN_IN
        bed.assert_in_sync(report)
    monkeypatch.setattr(shares, "INLINE_MERGE_ROWS", 0)
    bed.share = DriverShare(rows=50)
    for number in range(MERGE_FAN_IN):
        report = bed.load(rows(100 + number * 10, 10))
    (state,) = report.table_states[0].indexes
    assert (state.segments_missing, state.rows_to_merge) == (0, 80)
    bed.lake.reindex(BY_NAME)
    assert bed.lake.state(BY_NAME).rows_to_merge == 0
    bed.assert_in_sync(bed.load(rows(300, 10)))


def test_an_index_that_does_not_fit_is_told_and_the_others_follow(tmp_path: Path) -> None:
    unfit = replace(index_on("nickname", name="nicknames"), is_inline=True)
    bed = InlineBed(tmp_path / "lake", indexes=(unfit, BY_NAME))
    bed.create()
    report = bed.load(rows(0, 20))
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.COMMITTED)
    assert report.counts["rowsLoaded"] == 20
    assert "Not entered into the index nicknames" in report.message
    first, second = report.table_states[0].indexes
    assert (first.segments_missing, second.segments_missing) == (1, 0)
    assert bed.lake.assert_exact("name = 'n7'").num_rows == 1


def test_an_index_that_is_not_inline_is_left_alone(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake", indexes=(replace(BY_NAME, is_inline=False),))
    bed.create()
    report = bed.load(rows(0, 20))
    (state,) = report.table_states[0].indexes
    assert (state.exists, state.segments_missing) == (False, 1)
    assert "index" not in report.stages_ms

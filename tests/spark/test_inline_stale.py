"""Entries of files that nothing holds any more leave Inline indexes, which no reindex run comes to: they stay small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from skipstone.tables.upkeep.expiry import expire_snapshots
from skipstone.tasks import share
from skipstone_core.maintenance.policies import SnapshotPolicy

from tests.spark.inline_bed import BY_NAME, InlineBed, change, rows
from tests.spark.upkeep_bed import later

ROWS = 40
#: Stale entries may be so many times the live ones before they are dropped.
MOST = 4
ALL_BUT_ONE = SnapshotPolicy(max_age_seconds=0)


@pytest.fixture
def bed(tmp_path: Path) -> InlineBed:
    """A table in one file, so that each merge writes all of its rows again."""
    made = InlineBed(tmp_path / "lake", indexes=(BY_NAME,))
    made.create()
    made.load(rows(0, ROWS))
    return made


def entries(bed: InlineBed) -> int:
    return bed.lake.state(BY_NAME).entries


def expire(bed: InlineBed) -> None:
    """Another engine, or a maintain run, lets all snapshots but the newest go."""
    assert expire_snapshots(bed.lake.catalog, bed.merges.ref, ALL_BUT_ONE, later()).is_done


def test_an_index_stays_small_however_often_its_rows_are_rewritten(bed: InlineBed) -> None:
    for number in range(8):
        bed.merge([change(number)])
        expire(bed)
    bed.assert_in_sync(bed.load(rows(1000, 2)))
    assert entries(bed) <= MOST * ROWS


def test_entries_of_files_that_a_retained_snapshot_holds_stay(bed: InlineBed) -> None:
    old = bed.merges.table()
    first = old.metadata.current_snapshot_id
    assert first is not None
    old.manage_snapshots().create_tag(first, "keep").commit()
    for number in range(8):
        bed.merge([change(number)])
        expire(bed)
    covered = set(bed.lake.entries(BY_NAME)["data_path"].to_pylist())
    held = {task.file.file_path for task in bed.merges.table().scan(snapshot_id=first).plan_files()}
    assert held <= covered
    bed.assert_exact()


def test_a_reindex_is_due_where_a_run_leaves_stale_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "INLINE_MERGE_ROWS", ROWS)
    made = InlineBed(tmp_path / "lake", indexes=(BY_NAME,), share=replace(share.USUAL_SHARE, rows=ROWS))
    made.create()
    made.load(rows(0, ROWS))
    for number in range(2):
        made.merge([change(number)])
        expire(made)
    (before,) = made.load(rows(1000, 1)).table_states[0].indexes
    assert (before.segments_missing, before.rows_to_merge) == (0, before.entries)
    assert before.entries > 2 * ROWS
    (after,) = made.lake.reindex(BY_NAME).table_states[0].indexes
    assert (after.entries, after.rows_to_merge) == (ROWS + 1, 0)
    made.assert_exact()

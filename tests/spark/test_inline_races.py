"""An inline entry beside other writers of its index: the job stands, rows count once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.table import Table
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.reasons import Reason

from tests.spark.inline_bed import BY_NAME, InlineBed, change, rows, synced


@dataclass
class BeforeIndex:
    """Commit hooks that do something before a commit of an index, ``times`` times."""

    action: Callable[[], object]
    times: int = 1

    def before_swap(self, table: Table) -> None:
        """Do it."""
        if "__si_" in table.name()[-1] and self.times:
            self.times -= 1
            self.action()

    def after_swap(self, table: Table) -> None:
        """Do nothing."""


def held(action: Callable[[], object], times: int = 1) -> CommitPorts:
    return CommitPorts(hooks=BeforeIndex(action, times))


@pytest.fixture
def bed(tmp_path: Path) -> InlineBed:
    made = InlineBed(tmp_path / "lake", indexes=(BY_NAME,))
    made.create()
    made.load(rows(0, 20))
    return made


def test_a_reindex_that_enters_the_same_files_first_leaves_nothing_to_enter(bed: InlineBed) -> None:
    report = bed.load(rows(20, 20), held(lambda: bed.lake.reindex(BY_NAME)))
    assert report.message == ""
    bed.assert_in_sync(report)
    assert bed.lake.state(BY_NAME).entries == 40


def test_another_inline_run_gets_in_between_and_both_are_entered(bed: InlineBed) -> None:
    report = bed.load(rows(20, 20), held(lambda: bed.load(rows(40, 20))))
    assert report.message == ""
    bed.assert_in_sync(report)
    assert bed.lake.state(BY_NAME).entries == 60


def test_a_merge_that_replaces_the_files_meanwhile_leaves_stale_entries_at_most(bed: InlineBed) -> None:
    def replace_all() -> None:
        bed.merge([change(number) for number in range(20, 40)])

    bed.assert_in_sync(bed.load(rows(20, 20), held(replace_all)))


def test_runs_that_keep_committing_leave_the_segment_to_the_next_reindex(bed: InlineBed) -> None:
    starts = iter(range(100, 200, 10))
    report = bed.load(rows(20, 20), held(lambda: bed.load(rows(next(starts), 10)), times=9))
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.COMMITTED)
    assert "another run of this index keeps committing" in report.message
    (state,) = report.table_states[0].indexes
    assert state.segments_missing == 1
    bed.assert_exact()
    bed.lake.reindex(BY_NAME)
    assert synced(bed.lake.state(BY_NAME))
    bed.lake.assert_every_row_once(BY_NAME)

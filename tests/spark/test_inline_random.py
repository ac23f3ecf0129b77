"""Random histories of jobs and foreign commits on a table with Inline indexes: only foreign segments are ever missing.

The rows are compared with a dictionary after each step. `make test` takes one history, `make soak-merge` has more,
drawn by SKIPSTONE_SOAK_SEED.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from skipstone_core.contract.reports import JobReport, RunOutcome

from tests.spark.inline_bed import KINDS, InlineBed, row

SOAK_HISTORIES = 40
STEPS = 12
SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "15"))


class History:
    """A table ``t`` and its rows by id. ``is_behind``: others added segments that nobody has entered yet."""

    def __init__(self, root: Path, seed: int) -> None:
        """Make the table; both modes of merges have their turn."""
        self.random = random.Random(seed)
        self.bed = InlineBed(root)
        self.bed.create(**{"write.merge.mode": self.random.choice(["copy-on-write", "merge-on-read"])})
        self.rows: dict[int, dict[str, Any]] = {}
        self.next_id = 0
        self.is_behind = False

    def new_rows(self) -> list[dict[str, object]]:
        """Rows with ids that no row had."""
        count = self.random.randint(1, 12)
        self.next_id += count
        found = [row(number) for number in range(self.next_id - count, self.next_id)]
        self.rows.update((int(str(one["id"])), one) for one in found)
        return found

    def load(self) -> JobReport:
        """A LoadJob."""
        return self.bed.load(self.new_rows())

    def merge(self) -> JobReport:
        """A MergeJob that updates, deletes and inserts."""
        old = sorted(self.rows)
        picked = self.random.sample(old, min(len(old), self.random.randint(0, 6)))
        feed = [{**row(number, "new"), "op": self.random.choice("UUD")} for number in picked]
        for one in feed:
            number = int(str(one["id"]))
            if one["op"] == "D":
                del self.rows[number]
            else:
                self.rows[number] = row(number, "new")
        return self.bed.merge([*feed, *({**one, "op": "U"} for one in self.new_rows())])

    def append(self) -> None:
        """A commit of another engine."""
        table = self.bed.merges.table()
        table.append(pa.Table.from_pylist(self.new_rows(), schema=table.schema().as_arrow()))
        self.is_behind = True

    def reindex(self) -> None:
        """Reindex runs of all indexes."""
        for index in KINDS:
            self.bed.lake.reindex(index)
        self.is_behind = False

    def step(self) -> None:
        """One of them, and what holds after it."""
        report = self.random.choice([self.load, self.merge, self.merge, self.append, self.reindex])()
        if report is not None:
            assert (report.outcome, report.message) == (RunOutcome.COMMITTED, "")
            self.assert_own_files_are_entered()
        if not self.is_behind and report is not None:
            self.bed.assert_in_sync(report)

    def assert_own_files_are_entered(self) -> None:
        """The files of the newest snapshot, which is a job's, are in all indexes."""
        head = self.bed.merges.table().metadata.current_snapshot()
        assert head is not None
        for index in KINDS:
            assert head.sequence_number not in self.bed.lake.state(index).missing_segments

    def end(self) -> None:
        """Nothing is lost or doubled, whatever was missing."""
        self.bed.assert_exact()
        self.reindex()
        found = {one["id"]: one for one in self.bed.merges.table().scan().to_arrow().to_pylist()}
        assert found == self.rows
        for index in KINDS:
            self.bed.lake.assert_every_row_once(index)
        self.bed.assert_exact()


def seeds() -> list[Any]:
    """One history, and those of a soak."""
    return [pytest.param(SEED + at, marks=[pytest.mark.soak] if at else []) for at in range(SOAK_HISTORIES)]


@pytest.mark.parametrize("seed", seeds())
def test_jobs_never_leave_their_own_segments_missing(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "lake", seed)
    history.bed.assert_in_sync(history.load())
    for _ in range(STEPS):
        history.step()
    history.end()

"""Rollback, expiry and restored snapshots in any order: what a table says of a transaction fits the rows it holds.

Each history is steps on a real table. Every commit adds one row, so that what is really there can be read.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.runs.confirm import run_confirm
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import TableCommit, commit_table, find_digest, find_txn
from skipstone.tables.filesets import pin_table
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import ConfirmTask, JobRequest, RunKind, WarehouseRef
from skipstone_core.history.commits import Absent, Committed, Present, RolledBack, TxnRecord, Untold

from tests.spark.lake import append, ref_of, write_files


class Past:
    """A table, its commits by letter, and the steps that change its history."""

    def __init__(self, catalog: Catalog) -> None:
        """An empty table."""
        self.catalog = catalog
        catalog.create_table(("ns", "t"), pa.schema([("id", pa.string())]))
        self.snapshots: dict[str, int] = {}
        self.picked: dict[str, str] = {}
        self.jobs: list[str] = []

    @property
    def table(self) -> Table:
        """As it is now."""
        return self.catalog.load_table(("ns", "t"))

    def job(self, letter: str) -> None:
        """A commit of ours."""
        record = TxnRecord(time_ms=0, source_digest=f"digest-{letter}")
        table = self.table
        added = write_files(table, pa.table({"id": [letter]}))
        change = TableCommit(pinned=pin_table(table), added=added, txn=letter, record=record)
        outcome = commit_table(self.catalog, ref_of(table), change)
        assert isinstance(outcome, Committed), outcome
        self.jobs.append(letter)
        self._note(letter)

    def other(self, letter: str) -> None:
        """A commit of another engine."""
        append(self.table, pa.table({"id": [letter]}))
        self._note(letter)

    def compact(self, letter: str) -> None:
        """Another engine writes all rows into one file."""
        self.table.overwrite(self.table.scan().to_arrow())
        self._note(letter)

    def pick(self, letter: str, picked: str) -> None:
        """A cherry-pick: the rows of a snapshot in a new one that names it."""
        self.picked[letter] = self.picked.get(picked, picked)
        rows = pa.table({"id": [self.picked[letter]]})
        self.table.append(rows, snapshot_properties={"source-snapshot-id": str(self.snapshots[picked])})
        self._note(letter)

    def set_main(self, letter: str) -> None:
        """Roll back or forward."""
        self.table.manage_snapshots().set_current_snapshot(self.snapshots[letter]).commit()

    def expire(self, *letters: str) -> None:
        """Expire snapshots."""
        expiry = self.table.maintenance.expire_snapshots()
        for letter in letters:
            expiry = expiry.by_id(self.snapshots[letter])
        expiry.commit()

    def take(self, steps: str) -> None:
        """Take steps such as "job A, expire A B"."""
        for step in steps.split(", "):
            word, *arguments = step.split()
            method: Callable[..., None] = getattr(self, word)
            method(*arguments)

    def rows(self) -> set[str]:
        """What is in the table."""
        return set(self.table.scan().to_arrow()["id"].to_pylist())

    def said(self) -> str:
        """What the table says of each job: P(resent), R(olled back), U(ntold)."""
        names = {Present: "P", RolledBack: "R", Untold: "U", Absent: "A"}
        return " ".join(f"{job}:{names[type(find_txn(self.table, job))]}" for job in self.jobs)  # type: ignore[index]

    def _note(self, letter: str) -> None:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        self.snapshots[letter] = snapshot.snapshot_id


#: Steps as "word argument ..."; jobs have capital letters, other engines small ones.
HISTORIES = {
    "rolled back, then expired": ("other a, job B, set_main a, expire B", "B:R"),
    "rolled back, continued by others, all older snapshots expired": (
        "other a, job B, set_main a, other c, expire a B",
        "B:U",
    ),
    "seen by a later job before all older snapshots expired": (
        "other a, job B, set_main a, job C, expire a B",
        "B:R C:P",
    ),
    "applied, then expired": ("job A, other b, expire A", "A:P"),
    "applied, expired and compacted by others": ("job A, compact b, other c, expire A", "A:U"),
    "applied, expired and compacted after a later job": ("job A, job B, compact c, expire A", "A:P B:P"),
    "an ancestor in the middle expired": ("job A, other b, job C, expire b", "A:P C:P"),
    "an ancestor in the middle expired, and others went on": ("job A, compact b, other c, expire b", "A:U"),
    "rolled back and restored": ("other a, job B, set_main a, set_main B", "B:P"),
    "restored after another job, which that undid": ("other a, job B, set_main a, job C, set_main B", "B:P C:R"),
    "restored, continued, expired": (
        "other a, job B, set_main a, job C, set_main B, job D, compact e, expire a B C",
        "B:P C:R D:P",
    ),
    "rolled back twice": (
        "job A, job B, set_main A, job C, job D, set_main C, job E, expire A B C D",
        "A:P B:R C:P D:R E:P",
    ),
    "cherry-picked": ("other a, job B, set_main a, pick c B", "B:P"),
    "cherry-picked, and the picking snapshot expired": (
        "other a, job B, set_main a, pick c B, job D, compact e, expire a B c",
        "B:U D:P",
    ),
    "cherry-picked from a cherry-pick": ("other a, job B, set_main a, pick c B, set_main a, pick d c", "B:P"),
    "cherry-picked from a cherry-pick that expired": (
        "other a, job B, set_main a, pick c B, set_main a, pick d c, expire c",
        "B:U",
    ),
    "cherry-picked from a cherry-pick that expired, and all older snapshots after a later job": (
        "other a, job B, set_main a, pick c B, set_main a, pick d c, expire B c, job E, other f, expire a d",
        "B:U E:P",
    ),
    "rolled back after a cherry-pick of something that expired": (
        "other a, other b, set_main a, pick c b, expire b, job D, set_main c",
        "D:R",
    ),
    "main set to a snapshot that others made beside ours": (
        "other a, other b, set_main a, job C, set_main b, job D, expire a",
        "C:R D:P",
    ),
}


@pytest.mark.parametrize(("steps", "said"), HISTORIES.values(), ids=HISTORIES.keys())
def test_what_a_table_says_of_a_job_fits_its_rows(steps: str, said: str, catalog: Catalog) -> None:
    past = Past(catalog)
    past.take(steps)
    assert past.said() == said
    told = dict(pair.split(":") for pair in said.split())
    rows = past.rows()
    for job, letter in told.items():
        assert letter != "P" or job in rows
        assert letter != "R" or job not in rows
        assert find_digest(past.table, f"digest-{job}") == (None if letter == "R" else job)


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ("other a, job B, set_main a, expire B", RunOutcome.FAILED),
        ("other a, job B, set_main a, other c, expire a B", RunOutcome.UNKNOWN),
        ("job B, other c, expire B", RunOutcome.ALREADY_COMMITTED),
    ],
    ids=["rolled back", "not to be told", "applied"],
)
def test_a_confirm_run_claims_no_more_than_the_history_tells(
    steps: str, outcome: RunOutcome, catalog: Catalog, warehouse: WarehouseRef
) -> None:
    past = Past(catalog)
    past.take(steps)
    request = JobRequest(
        kind=RunKind.CONFIRM,
        run_id="r-1",
        attempt=1,
        warehouse=warehouse,
        owner_kind="LoadJob",
        owner_name="l",
        owner_uid="B",
        table=ref_of(past.table),
        confirm=ConfirmTask(txn="B"),
    )
    snapshots = len(past.table.metadata.snapshots)
    report = run_confirm(request, Reporter(request))
    assert report.outcome is outcome
    assert report.message or outcome is RunOutcome.ALREADY_COMMITTED
    assert len(past.table.metadata.snapshots) == snapshots

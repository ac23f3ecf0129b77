"""What consumers and merges of feeds remember of each branch: as if it was the only one, whatever the others get."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from skipstone.runs.intake import consumption
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.merging.leavingout import HoldsUpdate
from skipstone.runs.reporting.report import Reporter
from skipstone.sources.listing import SourceListing
from skipstone.storage.opening import open_storage
from skipstone.storage.port import Entry
from skipstone.tables.catalogs import load_table, open_catalog
from skipstone.tables.committing.changes import Ledger
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import pin_table
from skipstone.tables.records.heldrows import HeldTable, HoldsMemory
from skipstone.tables.records.ledger import ConsumedFiles
from skipstone.tables.records.tablereads import SourceReading, find_reads, newest_commit
from skipstone_core.contract.branches import BranchSpec
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    MaintainTask,
    RunKind,
    TableRef,
    WarehouseRef,
)
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.history.commits import Committed, Conflicted, TxnRecord
from skipstone_core.history.tablereads import MAX_READS
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy
from skipstone_core.merging.holds import HeldRow

from tests.examples import cases
from tests.spark.lake import write_files

AUDIT = "audit"
CONSUMER = "MergeSchedule ns/feed"
KEYS = '["id"]'
SCHEMA = pa.schema([pa.field("id", pa.int64())])


@dataclass(frozen=True)
class Both:
    """Two ledgers of one commit."""

    first: Ledger
    second: Ledger

    def find_conflict(self, table: Table) -> Conflicted | None:
        return self.first.find_conflict(table) or self.second.find_conflict(table)

    def properties(self, table: Table, snapshot_id: int) -> Mapping[str, str]:
        return {**self.first.properties(table, snapshot_id), **self.second.properties(table, snapshot_id)}


class Bed:
    """A table of numbers. Each job brings one, from a file of that name and from a snapshot of that id, and leaves out
    a change of the row with that key.
    """

    def __init__(self, root: Path) -> None:
        self.warehouse = WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL))
        self.catalog = open_catalog(self.warehouse)
        self.catalog.create_namespace("ns")
        self.catalog.create_table("ns.t", SCHEMA, properties={"format-version": "2"})
        self.ref = TableRef(namespace="ns", name="t", uid="t")
        self.number = 0
        self.foreign()

    def close(self) -> None:
        self.catalog.close()

    def on(self, branch: str) -> TableRef:
        return self.ref if branch == MAIN_BRANCH else replace(self.ref, branch=BranchSpec(name=branch))

    def table(self, branch: str = MAIN_BRANCH) -> Table:
        return load_table(self.catalog, self.on(branch))

    def head(self, branch: str) -> int:
        head = self.table(branch).current_snapshot()
        assert head is not None
        return head.snapshot_id

    def listing(self, *numbers: int) -> SourceListing:
        files = tuple(Entry(path=f"feed/{number}", size=1, version=number) for number in numbers)
        return SourceListing(storage=open_storage(self.warehouse), files=files)

    def job(self, branch: str) -> int:
        """A job that commits to the branch; its number."""
        self.number += 1
        table, memory = self.table(branch), ConsumedFiles(warehouse=self.warehouse, consumer=CONSUMER)
        reading = SourceReading(
            consumer=CONSUMER, after=newest_commit(find_reads(table, CONSUMER)), table_uuid="source",
            until=self.number, start="",
        )  # fmt: skip
        held = HeldTable.of(HoldsMemory(warehouse=self.warehouse), table, KEYS)
        row = HeldRow(missing=(f"log:{self.number}",))
        ledger = HoldsUpdate(
            held=held,
            rows={str(self.number): row},
            other=Both(consumption(self.listing(self.number), memory), reading),
        )
        self.commit(branch, self.number, f"job-{self.number}", ledger)
        return self.number

    def foreign(self, branch: str = MAIN_BRANCH) -> None:
        """Another writer commits to the branch a row that no job has."""
        self.commit(branch, 0)

    def commit(self, branch: str, number: int, txn: str = "", ledger: Ledger | None = None) -> None:
        table = self.table(branch)
        change = TableCommit(
            pinned=pin_table(table),
            added=write_files(table, pa.table({"id": [number]}, SCHEMA)),
            txn=txn,
            record=TxnRecord(time_ms=0) if txn else None,
            ledger=ledger,
        )
        outcome = commit_table(self.catalog, self.on(branch), change)
        assert isinstance(outcome, Committed), outcome

    def make(self, at: str = MAIN_BRANCH) -> None:
        """Create the branch at the head of another one."""
        self.table().manage_snapshots().create_branch(self.head(at), AUDIT).commit()

    def remove(self) -> None:
        self.table().manage_snapshots().remove_branch(AUDIT).commit()

    def publish(self) -> None:
        self.table().manage_snapshots().set_current_snapshot(ref_name=AUDIT).commit()

    def expire(self) -> None:
        """Expire all snapshots but the heads of branches, by a maintain run."""
        policy = MaintenancePolicy(snapshots=SnapshotPolicy(max_age_seconds=0))
        request = JobRequest(
            kind=RunKind.MAINTAIN, run_id="maintain-1", attempt=1, warehouse=self.warehouse, owner_kind="Table",
            owner_name="t", owner_uid="maintain", txn="", table=self.ref,
            maintain=MaintainTask(policy=policy, steps=(MaintenanceStep.SNAPSHOTS,)),
        )  # fmt: skip
        (step,) = run_maintain(request, Reporter(request)).steps
        assert step.is_done, step

    def rows(self, branch: str) -> list[int]:
        """The numbers of jobs that the branch has, as often as it has them."""
        found = self.table().scan(snapshot_id=self.head(branch)).to_arrow()["id"].to_pylist()
        return sorted(number for number in found if number)

    def assert_remembers(self, branch: str, numbers: list[int]) -> None:
        """Each memory of the branch is that of the jobs with these ``numbers``."""
        table = self.table(branch)
        memory = ConsumedFiles(warehouse=self.warehouse, consumer=CONSUMER)
        known = {name for name, _ in memory.entries(table, memory.find_head(table))}
        assert known == {*consumption(self.listing(*numbers), memory).taken}
        reads = find_reads(table, CONSUMER)
        assert [int(read.snapshot_id) for read in reads[:1]] == numbers[-1:]
        held = HeldTable.of(HoldsMemory(warehouse=self.warehouse), table, KEYS)
        assert sorted(held.rows) == sorted(map(str, numbers))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.close()


def test_jobs_on_two_branches_in_turn_remember_what_each_has(bed: Bed) -> None:
    first = bed.job(MAIN_BRANCH)
    bed.make()
    numbers = [bed.job(branch) for branch in (AUDIT, MAIN_BRANCH) * 3]
    for branch, own in ((AUDIT, numbers[::2]), (MAIN_BRANCH, numbers[1::2])):
        assert bed.rows(branch) == [first, *own]
        bed.assert_remembers(branch, [first, *own])


def test_a_rolled_back_commit_that_is_the_head_again_counts_although_others_came_in_between(bed: Bed) -> None:
    first, before = bed.job(MAIN_BRANCH), bed.head(MAIN_BRANCH)
    second, after = bed.job(MAIN_BRANCH), bed.head(MAIN_BRANCH)
    bed.table().manage_snapshots().rollback_to_snapshot(before).commit()
    third = bed.job(MAIN_BRANCH)
    bed.assert_remembers(MAIN_BRANCH, [first, third])
    bed.table().manage_snapshots().set_current_snapshot(after).commit()
    bed.assert_remembers(MAIN_BRANCH, [first, second])


def test_many_reads_of_another_branch_hide_no_read_of_main(bed: Bed) -> None:
    bed.make()
    bed.job(MAIN_BRANCH)
    for _ in range(MAX_READS):
        bed.job(AUDIT)
    assert len(find_reads(bed.table(AUDIT), CONSUMER)) == MAX_READS
    with pytest.raises(DependencyUnavailable, match=f"none of the last {MAX_READS} commits") as error:
        find_reads(bed.table(), CONSUMER)
    way_out = re.search(r"remove the table property (\S+)", str(error.value))
    assert way_out is not None
    bed.table().transaction().remove_properties(way_out[1]).commit_transaction()
    assert find_reads(bed.table(), CONSUMER) == ()


def test_what_expired_before_a_branch_was_continued_is_neither_left_out_nor_read_twice(bed: Bed) -> None:
    bed.make()
    bed.job(MAIN_BRANCH)  # not in the history of the branch
    bed.foreign(AUDIT)
    bed.foreign()
    bed.assert_remembers(AUDIT, [])
    bed.expire()
    with pytest.raises(DependencyUnavailable, match="drop the branch and create it again") as error:
        bed.job(AUDIT)
    assert "'audit'" in str(error.value)
    bed.remove()
    bed.make()
    bed.assert_remembers(AUDIT, [1])


class Branches(RuleBasedStateMachine):
    """Any order of jobs, other writers, branches, rollbacks and expiries against a model of each history."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.bed = Bed(self.root)
        self.histories: dict[int, list[int]] = {self.bed.head(MAIN_BRANCH): []}
        self.has_expired = False

    def teardown(self) -> None:
        self.bed.close()
        shutil.rmtree(self.root)

    def numbers(self, branch: str) -> list[int]:
        return self.histories[self.bed.head(branch)]

    @property
    def branches(self) -> list[str]:
        return sorted(self.bed.table().metadata.refs)

    @rule(data=st.data())
    def job(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(self.branches))
        before = self.numbers(branch)
        try:
            number = self.bed.job(branch)
        except DependencyUnavailable as error:
            assert branch == AUDIT
            assert self.has_expired, error
            self.bed.remove()
            return
        self.histories[self.bed.head(branch)] = [*before, number]
        assert self.bed.rows(branch) == [*before, number]

    @rule(data=st.data())
    def foreign(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(self.branches))
        before = self.numbers(branch)
        self.bed.foreign(branch)
        self.histories[self.bed.head(branch)] = before

    @precondition(lambda self: AUDIT not in self.branches)
    @rule()
    def make(self) -> None:
        self.bed.make()

    @precondition(lambda self: AUDIT in self.branches)
    @rule(is_published=st.booleans())
    def remove(self, is_published: bool) -> None:
        if is_published:
            self.bed.publish()
        self.bed.remove()

    @rule(data=st.data())
    def go_to(self, data: st.DataObject) -> None:
        """Main is set to any snapshot that is retained."""
        retained = [snapshot.snapshot_id for snapshot in self.bed.table().metadata.snapshots]
        chosen = data.draw(st.sampled_from(retained))
        self.bed.table().manage_snapshots().set_current_snapshot(chosen).commit()

    @rule()
    def expire(self) -> None:
        self.bed.expire()
        self.has_expired = True

    @invariant()
    def each_branch_remembers_its_own(self) -> None:
        for branch in self.branches:
            try:
                self.bed.assert_remembers(branch, self.numbers(branch))
            except DependencyUnavailable as error:
                assert branch == AUDIT
                assert self.has_expired, error


Branches.TestCase.settings = settings(max_examples=cases(5, 200), stateful_step_count=15, deadline=None)
TestBranches = Branches.TestCase

"""Loads and merges into a branch: main stays as it is, and each job happens once in the history of its branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone.runs.confirm import run_confirm
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.merging.merge import run_dry
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import load_table
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.branches import BranchSpec, MissingBranch
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ConfirmTask,
    JobRequest,
    LoadMode,
    MaintainTask,
    RunKind,
)
from skipstone_core.errors import BadSpec
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy
from skipstone_core.reasons import Reason

from tests.spark.inline_bed import KINDS, InlineBed, change, row, rows, synced
from tests.spark.merge_bed import AtSwap, MergeBed
from tests.spark.restserver import rest_catalog

AUDIT = BranchSpec(name="audit")
CREATE = BranchSpec(name="audit", if_missing=MissingBranch.CREATE)


class Branches(InlineBed):
    """A table of ten rows, and jobs for its branches."""

    def on(self, request: JobRequest, branch: BranchSpec | None = AUDIT) -> JobRequest:
        """The request for a branch."""
        assert request.table is not None
        return replace(request, table=replace(request.table, branch=branch))

    def make(self, name: str = "audit", **retention: int) -> Table:
        """Create a branch at the head of main."""
        table = self.merges.table()
        head = table.current_snapshot()
        assert head is not None
        with table.manage_snapshots() as manage:
            manage.create_branch(head.snapshot_id, name, **retention)
        return self.merges.table()

    def drop(self, name: str = "audit") -> None:
        with self.merges.table().manage_snapshots() as manage:
            manage.remove_branch(name)

    def publish(self, name: str = "audit") -> None:
        """Let main be the branch, as fast_forward does."""
        with self.merges.table().manage_snapshots() as manage:
            manage.set_current_snapshot(ref_name=name)

    def head(self, name: str) -> Snapshot:
        found = self.merges.table().metadata.snapshot_by_name(name)
        assert found is not None
        return found

    def ids(self, name: str = "main") -> list[int]:
        table = self.merges.table()
        found = table.scan(snapshot_id=self.head(name).snapshot_id).to_arrow()
        for task in table.scan(snapshot_id=self.head(name).snapshot_id).plan_files():
            assert table.io.new_input(task.file.file_path).exists()
        return sorted(found.column("id").to_pylist())

    def confirm(self, request: JobRequest) -> JobReport:
        asked = replace(request, kind=RunKind.CONFIRM, merge=None, load=None, confirm=ConfirmTask(txn=request.txn))
        return run_confirm(asked, Reporter(asked))

    def change(self, **fields: Any) -> JobRequest:
        """A merge that deletes row 3 and adds row 20."""
        return self.merge_request([change(3, "D"), change(20)], **fields)


MERGED = [1, 2, 4, 5, 6, 7, 8, 9, 20]
BEFORE = list(range(1, 10))


@pytest.fixture
def bed(tmp_path: Path) -> Branches:
    made = Branches(tmp_path, indexes=())
    made.create()
    made.load(rows(1, 9))
    return made


@pytest.mark.parametrize(("mode", "version"), [("copy-on-write", "2"), ("merge-on-read", "2"), ("merge-on-read", "3")])
def test_a_branch_gets_the_rows_and_publishing_it_brings_them_to_main(tmp_path: Path, mode: str, version: str) -> None:
    bed = Branches(tmp_path)
    bed.create(**{"write.merge.mode": mode, "format-version": version})
    bed.load(rows(1, 9))
    bed.make(max_ref_age_ms=7 * 86_400_000, min_snapshots_to_keep=3)
    report = bed.run(bed.on(bed.change()))
    assert report.outcome is RunOutcome.COMMITTED
    assert report.snapshot_id == str(bed.head("audit").snapshot_id)
    bed.run(bed.on(bed.load_request([row(30)])))
    assert (bed.ids(), bed.ids("audit")) == (BEFORE, [*MERGED, 30])
    kept = bed.merges.table().metadata.refs["audit"]
    assert (kept.max_ref_age_ms, kept.min_snapshots_to_keep) == (7 * 86_400_000, 3)
    # the table's state is that of main; the Inline indexes have the files of the branch already
    (state,) = report.table_states
    assert state.snapshot_id == str(bed.head("main").snapshot_id)
    assert all(synced(index) for index in state.indexes)
    bed.publish()
    assert bed.ids() == [*MERGED, 30]
    for index in KINDS:
        assert synced(bed.lake.state(index))
    bed.assert_exact()


def test_a_commit_to_main_keeps_its_retention(bed: Branches) -> None:
    table = bed.merges.table()
    with table.manage_snapshots() as manage:
        manage.create_branch(table.metadata.current_snapshot_id, "main", min_snapshots_to_keep=7)  # type: ignore[arg-type]
    bed.merge([change(3, "D")])
    assert bed.merges.table().metadata.refs["main"].min_snapshots_to_keep == 7


def test_a_branch_that_is_missing_begins_at_the_head_of_main_if_the_job_says_so(bed: Branches) -> None:
    main = bed.head("main")
    request = bed.on(bed.change(), CREATE)
    dry = run_dry(replace(request, kind=RunKind.DRY_RUN, txn=""), Reporter(request))
    assert dry.counts["rowsDeleted"] == 1
    assert "audit" not in bed.merges.table().metadata.refs
    bed.run(request)
    assert bed.head("audit").parent_snapshot_id == main.snapshot_id
    assert (bed.ids(), bed.ids("audit")) == (BEFORE, MERGED)
    bed.run(bed.on(bed.load_request([row(30)]), CREATE))  # it is there now
    assert bed.ids("audit") == [*MERGED, 30]


def test_a_branch_that_cannot_be_written_is_refused_with_a_way_out(bed: Branches) -> None:
    request = bed.on(bed.change())
    with pytest.raises(BadSpec, match=r"does not have the branch 'audit', it has main: .*ifMissing to Create") as error:
        bed.run(request)
    assert error.value.reason == Reason.BRANCH_NOT_FOUND
    assert bed.run(bed.on(request, CREATE)).outcome is RunOutcome.COMMITTED
    table = bed.merges.table()
    with table.manage_snapshots() as manage:
        manage.create_tag(bed.head("main").snapshot_id, "v1")
    with pytest.raises(BadSpec, match="'v1' is a tag"):
        bed.run(bed.on(bed.change(), BranchSpec(name="v1")))


def test_an_empty_table_has_no_place_for_a_branch(tmp_path: Path) -> None:
    bed = Branches(tmp_path)
    bed.create()
    with pytest.raises(BadSpec, match="load rows into the branch main first"):
        bed.run(bed.on(bed.load_request([row(1)]), CREATE))
    bed.load([row(2)])
    assert bed.run(bed.on(bed.load_request([row(1)]), CREATE)).outcome is RunOutcome.COMMITTED


@pytest.mark.parametrize("branch", [AUDIT, CREATE], ids=["Refuse", "Create"])
def test_a_job_happens_once_whatever_became_of_its_branch(bed: Branches, branch: BranchSpec) -> None:
    bed.make()
    request = bed.on(bed.change(), branch)
    bed.run(request)
    assert bed.run(request).outcome is RunOutcome.ALREADY_COMMITTED
    before = bed.merges.table().metadata
    # dropped: the job is not applied to what takes its place
    bed.drop()
    gone = bed.run(request)
    assert (gone.outcome, gone.reason) == (RunOutcome.FAILED, Reason.ROLLED_BACK)
    assert "the branch 'audit'" in gone.message
    assert bed.confirm(request).reason == Reason.ROLLED_BACK
    bed.make()
    assert bed.run(request).reason == Reason.ROLLED_BACK
    assert bed.ids("audit") == BEFORE
    # published, and dropped then: it is in main
    with bed.merges.table().manage_snapshots() as manage:
        manage.set_current_snapshot(snapshot_id=before.refs["audit"].snapshot_id)
    bed.drop()
    assert bed.run(request).outcome is RunOutcome.ALREADY_COMMITTED
    assert bed.confirm(request).outcome is RunOutcome.ALREADY_COMMITTED
    assert bed.ids() == MERGED


def test_a_source_counts_as_applied_where_it_is_in_the_history(bed: Branches) -> None:
    bed.make()
    request = bed.change()
    bed.run(bed.on(request))
    other = replace(request, txn="another-job", owner_uid="another-job")
    on_branch = bed.run(bed.on(other))
    assert on_branch.reason == Reason.SOURCE_ALREADY_APPLIED
    assert bed.run(other).outcome is RunOutcome.COMMITTED  # main does not have it yet
    assert bed.ids() == MERGED
    third = replace(request, txn="third-job", owner_uid="third-job")
    assert bed.run(third).reason == Reason.SOURCE_ALREADY_APPLIED


def test_a_published_source_counts_as_applied_on_main_also_when_its_snapshot_expired(bed: Branches) -> None:
    first, second = bed.load_request([row(100)]), bed.change()
    bed.run(first)
    bed.make()
    bed.run(bed.on(second))
    bed.publish()
    bed.drop()
    bed.load([row(200)])
    expire(bed)
    assert len(bed.merges.table().metadata.snapshots) == 1
    for request in (first, second):
        again = replace(request, txn="another-job", owner_uid="another-job")
        assert bed.run(again).reason == Reason.SOURCE_ALREADY_APPLIED
        assert bed.run(request).outcome is RunOutcome.ALREADY_COMMITTED


def test_what_stayed_on_a_branch_can_be_applied_to_main_after_expiry(bed: Branches) -> None:
    first, second = bed.load_request([row(100)]), bed.change()
    bed.make()
    bed.run(first)  # on main, beside the branch
    bed.run(bed.on(second))
    bed.drop()
    bed.load([row(200)])
    expire(bed)
    applied = replace(first, txn="another-job", owner_uid="another-job")
    assert bed.run(applied).reason == Reason.SOURCE_ALREADY_APPLIED
    assert bed.run(replace(second, txn="third-job", owner_uid="third-job")).outcome is RunOutcome.COMMITTED
    assert bed.ids() == [*MERGED, 100, 200]


def expire(bed: Branches) -> None:
    """Expire all snapshots but the head of main."""
    policy = MaintenancePolicy(snapshots=SnapshotPolicy(max_age_seconds=0))
    request = replace(
        bed.change(),
        kind=RunKind.MAINTAIN,
        merge=None,
        maintain=MaintainTask(policy=policy, steps=(MaintenanceStep.SNAPSHOTS,)),
        txn="",
    )
    run_maintain(request, Reporter(request))


def test_a_fence_on_a_branch_makes_late_commits_fail(bed: Branches) -> None:
    bed.make()
    request, main = bed.on(bed.change()), bed.head("main")
    ports = CommitPorts(hooks=AtSwap(before=lambda: fence(bed, request)))
    late = bed.run(request, ports)
    assert (late.outcome, late.reason) == (RunOutcome.FAILED, Reason.ABORTED)
    assert bed.head("main") == main
    assert bed.ids("audit") == BEFORE
    assert bed.run(request).reason == Reason.ABORTED


def check_fenced(bed: Branches, branch: BranchSpec, *, is_old: bool) -> None:
    """A job whose branch is gone is fenced off, also if the branch is made again: at its old head or that of main."""
    bed.make()
    request, old = bed.on(bed.change(), branch), bed.head("audit").snapshot_id

    def drop_and_fence() -> None:
        bed.drop()
        fence(bed, request)
        if branch is CREATE:
            bed.drop()  # the fence began it
        if is_old:
            bed.merges.table().manage_snapshots().create_branch(old, "audit").commit()
        else:
            bed.make()

    late = bed.run(request, CommitPorts(hooks=AtSwap(before=drop_and_fence)))
    assert (late.outcome, late.reason) == (RunOutcome.FAILED, Reason.ABORTED)
    assert (bed.ids(), bed.ids("audit")) == (BEFORE, BEFORE)


@pytest.mark.parametrize("is_old", [False, True], ids=["at main", "at its old head"])
@pytest.mark.parametrize("branch", [AUDIT, CREATE], ids=["Refuse", "Create"])
def test_a_job_whose_branch_is_gone_is_fenced_off(bed: Branches, branch: BranchSpec, *, is_old: bool) -> None:
    check_fenced(bed, branch, is_old=is_old)


def fence(bed: Branches, request: JobRequest) -> None:
    assert bed.confirm(request).outcome is RunOutcome.ABSENT


Meanwhile = Callable[[Branches], object]
#: What others do just before the swap, and the rows of main and of the branch then.
OTHERS: dict[str, tuple[Meanwhile, list[int], list[int]]] = {
    "main moves": (lambda bed: bed.load([row(50)]), [*BEFORE, 50], MERGED),
    "the branch moves": (lambda bed: bed.run(bed.on(bed.load_request([row(50)]))), BEFORE, [*MERGED, 50]),
    "the branch gets a key of the feed": (
        lambda bed: bed.run(bed.on(bed.merge_request([change(20), change(4)]))),
        BEFORE,
        MERGED,
    ),
    "the branch is made again": (
        lambda bed: (bed.drop(), bed.load([row(50)]), bed.make()),
        [*BEFORE, 50],
        [*MERGED, 50],
    ),
}


def check_others(bed: Branches, name: str) -> None:
    act, main, branch = OTHERS[name]
    bed.make()
    report = bed.run(bed.on(bed.change()), CommitPorts(hooks=AtSwap(before=lambda: act(bed))))
    assert report.outcome is RunOutcome.COMMITTED
    assert (bed.ids(), bed.ids("audit")) == (main, branch)


@pytest.mark.parametrize("name", OTHERS)
def test_other_writers_may_get_in_between(bed: Branches, name: str) -> None:
    check_others(bed, name)


def test_a_branch_that_another_writer_creates_meanwhile_is_continued(bed: Branches) -> None:
    def act() -> None:
        bed.run(bed.on(bed.load_request([row(50)]), CREATE))

    bed.run(bed.on(bed.change(), CREATE), CommitPorts(hooks=AtSwap(before=act)))
    assert (bed.ids(), bed.ids("audit")) == (BEFORE, [*MERGED, 50])


def test_a_branch_that_is_dropped_meanwhile_fails_the_job_and_leaves_no_file(bed: Branches) -> None:
    bed.make()
    files = bed.merges.on_disk()
    report = bed.run(bed.on(bed.load_request([row(50)])), CommitPorts(hooks=AtSwap(before=bed.drop)))
    assert (report.outcome, report.reason) == (RunOutcome.FAILED, Reason.BRANCH_NOT_FOUND)
    assert bed.merges.on_disk() == files


def test_a_file_is_registered_in_a_branch(bed: Branches) -> None:
    bed.make()
    given = pa.table({"id": pa.array([70], pa.int64()), "name": ["x"], "city": ["c"]})
    bed.run(bed.on(bed.load_request(given, mode=LoadMode.REGISTER)))
    assert (bed.ids(), bed.ids("audit")) == (BEFORE, [*BEFORE, 70])


def test_a_table_in_memory_shows_the_files_of_its_branch(bed: Branches) -> None:
    bed.make()
    bed.run(bed.on(bed.load_request([row(30)])))
    main, branch = (load_table(bed.merges.catalog, replace(bed.merges.ref, branch=spec)) for spec in (None, AUDIT))
    assert len(read_file_set(branch)) == len(read_file_set(main)) + 1


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogRef]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        yield CatalogRef(type=CatalogType.REST, uri=address)


def of_rest(rest: CatalogRef, root: Path, namespace: str) -> Branches:
    bed = Branches(root, indexes=())
    bed.merges = MergeBed(root, namespace=namespace, kind=rest)
    bed.create()
    bed.load(rows(1, 9))
    return bed


@pytest.mark.parametrize("name", OTHERS)
def test_a_rest_catalog_judges_commits_to_branches(rest: CatalogRef, tmp_path: Path, name: str) -> None:
    check_others(of_rest(rest, tmp_path, f"n{list(OTHERS).index(name)}"), name)


def test_a_rest_catalog_refuses_late_commits_to_a_branch_at_its_old_head(rest: CatalogRef, tmp_path: Path) -> None:
    check_fenced(of_rest(rest, tmp_path, "fenced"), AUDIT, is_old=True)

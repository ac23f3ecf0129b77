"""Which files a compaction rewrites together: each once, nothing left to do afterwards, each row O(log n) times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.maintenance.compaction import FileFacts, RewriteGroup, outputs_of, plan_commits, plan_groups
from skipstone_core.maintenance.policies import CompactionPolicy

TARGET = 1000


def a_policy(fan_in: int = 5, permille: int = 100) -> CompactionPolicy:
    return CompactionPolicy(target_file_size=TARGET, min_input_files=fan_in, delete_permille=permille)


def plan(
    files: Sequence[FileFacts], policy: CompactionPolicy, *, is_sorted: bool = False, most: int = 10 * TARGET
) -> tuple[RewriteGroup, ...]:
    return plan_groups(files, policy, is_sorted=is_sorted, max_bytes=most)


def rewritten(files: Sequence[FileFacts], groups: Sequence[RewriteGroup]) -> list[FileFacts]:
    """The files after the rewrite, each new one as large as planned."""
    known = {file.file_id: file for file in files}
    left = [file for file in files if not any(file.file_id in group.file_ids for group in groups)]
    number = max(known, default=0)
    for group in groups:
        members = [known[one] for one in group.file_ids]
        rows, nbytes = sum(one.live_rows for one in members), sum(one.live_bytes for one in members)
        for part in range(group.outputs):
            number += 1
            made = FileFacts(
                number,
                members[0].partition,
                (nbytes + part) // group.outputs,
                max((rows + part) // group.outputs, 1),
                order=members[0].order,
            )
            left.append(made)
    return left


@st.composite
def tables(draw: st.DrawFn) -> list[FileFacts]:
    sizes = st.one_of(st.integers(1, 50), st.integers(1, 2 * TARGET))
    files = []
    for number in range(draw(st.integers(0, 20))):
        rows = draw(st.integers(1, 5000))
        deleted = draw(st.one_of(st.just(0), st.integers(0, rows)))
        facts = FileFacts(number, draw(st.integers(0, 2)), draw(sizes), rows, deleted, order=draw(st.integers(0, 9)))
        files.append(facts)
    return files


@given(tables(), st.booleans(), st.integers(2, 7), st.integers(0, 300))
def test_each_file_is_in_one_group_and_nothing_is_due_afterwards(
    files: list[FileFacts], is_sorted: bool, fan_in: int, permille: int
) -> None:
    policy = a_policy(fan_in, permille)
    groups = plan(files, policy, is_sorted=is_sorted)
    taken = Counter(one for group in groups for one in group.file_ids)
    assert set(taken.values()) <= {1}
    known = {file.file_id: file for file in files}
    for group in groups:
        members = [known[one] for one in group.file_ids]
        assert len({one.partition for one in members}) == 1
        assert group.size == sum(one.size for one in members)
        is_decayed = any(0 < permille * one.rows <= 1000 * one.deleted for one in members)
        assert len(members) > group.outputs or is_decayed
    due = {one for one in known.values() if 0 < permille * one.rows <= 1000 * one.deleted}
    assert due <= {known[one] for one in taken}
    assert plan(rewritten(files, groups), policy, is_sorted=is_sorted) == ()


@given(st.integers(2, 8), st.integers(1, 60), st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_a_row_is_written_again_a_logarithm_of_times(fan_in: int, size: int, appended: list[int]) -> None:
    policy = a_policy(fan_in)
    files: list[FileFacts] = []
    writes: dict[int, int] = {}  # by file: how often its oldest row was written
    number = total = 0
    for rows in appended:
        number, total = number + 1, total + rows
        files.append(FileFacts(number, 0, size, rows, order=number))
        writes[number] = 0
        while groups := plan(files, policy):
            after = rewritten(files, groups)
            new = [file for file in after if file not in files]
            for file, group in zip(new, groups, strict=True):
                writes[file.file_id] = 1 + max(writes[one] for one in group.file_ids)
            files = after
            number = max(number, *(file.file_id for file in files))
    tiers, left = 1, total
    while left >= fan_in:
        tiers, left = tiers + 1, left // fan_in
    assert max(writes.values()) <= tiers + 1
    small = [file for file in files if file.size < policy.small_below]
    assert len(small) <= tiers * (fan_in - 1)


def test_small_files_wait_for_company() -> None:
    files = [FileFacts(number, 0, 10, 100) for number in range(4)]
    assert plan(files, a_policy()) == ()
    assert plan([*files, FileFacts(4, 1, 10, 100)], a_policy()) == ()
    assert [group.file_ids for group in plan([*files, FileFacts(4, 0, 10, 100)], a_policy())] == [(0, 1, 2, 3, 4)]


def test_a_large_file_is_not_written_again_for_a_small_one() -> None:
    files = [FileFacts(0, 0, 700, 70_000), *(FileFacts(number, 0, 10, 100) for number in range(1, 6))]
    assert [group.file_ids for group in plan(files, a_policy())] == [(1, 2, 3, 4, 5)]


def test_two_files_that_fill_one_are_merged() -> None:
    assert [group.file_ids for group in plan([FileFacts(n, 0, 500, 50) for n in (0, 1)], a_policy())] == [(0, 1)]


def test_many_deleted_rows_make_a_file_due_alone() -> None:
    whole, decayed = FileFacts(0, 0, 1000, 100, deleted=9), FileFacts(1, 0, 1000, 100, deleted=10)
    assert [group.file_ids for group in plan([whole, decayed], a_policy())] == [(1,)]
    assert plan([decayed], a_policy(permille=0)) == ()


def test_files_of_an_old_spec_are_due() -> None:
    file = FileFacts(0, 0, 5000, 100, is_outdated=True)
    assert [group.file_ids for group in plan([file], a_policy())] == [(0,)]


def test_groups_that_are_sorted_hold_neighbors() -> None:
    files = [FileFacts(number, 0, 500, 50, order=-number) for number in range(8)]
    groups = plan(files, a_policy(), is_sorted=True, most=2000)
    assert [(group.file_ids, group.outputs) for group in groups] == [((7, 6, 5, 4), 2), ((3, 2, 1, 0), 2)]


@given(st.lists(st.integers(1, 300)), st.integers(1, 1000))
def test_a_commit_is_bounded(sizes: list[int], most: int) -> None:
    groups = [RewriteGroup((number,), size, 1) for number, size in enumerate(sizes)]
    commits = plan_commits(groups, most)
    assert [group for commit in commits for group in commit] == groups
    assert all(len(commit) == 1 or sum(group.size for group in commit) <= most for commit in commits)


@given(st.integers(1, 100 * TARGET))
def test_no_output_of_several_is_small(nbytes: int) -> None:
    outputs = outputs_of(nbytes, TARGET)
    assert outputs == 1 or nbytes / outputs >= a_policy().small_below
    assert nbytes / outputs <= 1.5 * TARGET


def test_partitions_are_planned_by_themselves() -> None:
    files = [FileFacts(number, number % 2, 10, 100) for number in range(10)]
    moved = [replace(file, partition=0) for file in files]
    assert len(plan(files, a_policy())) == 2
    assert len(plan(moved, a_policy())) == 1

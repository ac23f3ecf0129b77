"""The rules of lookup indexes: coverage by file, what to build next, what to merge next."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.contract.indextypes import IndexParameters
from skipstone_core.indexing.indexes import (
    MERGE_FAN_IN,
    ROWS_PER_BUCKET,
    IndexColumn,
    IndexDefinition,
    LiveFile,
    SegmentSync,
    SortedRun,
    is_purge_worthwhile,
    is_spread,
    plan_builds,
    plan_run_merge,
    synced_up_to,
)
from skipstone_core.indexing.snapshots import FileIdentity


def live_file(number: int, segment: int, snapshot: int = 0, records: int = 10) -> LiveFile:
    return LiveFile(FileIdentity(f"f{number}", 100, records), segment, snapshot or segment * 1000)


identities = st.builds(
    FileIdentity,
    st.integers(0, 30).map(lambda number: f"f{number}"),
    st.sampled_from([100, 101]),
    st.sampled_from([0, 1, 7]),
)
live_files = st.lists(
    st.builds(LiveFile, identities, st.integers(0, 6), st.integers(1, 4)), unique_by=lambda file: file.identity.path
)
indexed_files = st.frozensets(identities)


@settings(max_examples=500)
@given(live_files, indexed_files)
def test_builds_enter_every_live_file_that_the_index_lacks_once(
    live: list[LiveFile], indexed: frozenset[FileIdentity]
) -> None:
    units = plan_builds(live, indexed, None)
    built = [identity for unit in units for identity in unit.files]
    assert max(Counter(built).values(), default=0) <= 1
    assert set(built) == {file.identity for file in live} - indexed
    assert [unit.segment for unit in units] == sorted(unit.segment for unit in units)


@settings(max_examples=300)
@given(live_files, indexed_files, st.integers(0, 5))
def test_a_run_that_stops_after_any_unit_is_continued_by_the_next_plan(
    live: list[LiveFile], indexed: frozenset[FileIdentity], done: int
) -> None:
    units = plan_builds(live, indexed, None)
    kept = indexed | {identity for unit in units[:done] for identity in unit.files}
    assert plan_builds(live, kept, None) == units[done:]


@given(live_files, st.integers(0, 4))
def test_the_bound_on_segments_takes_the_oldest_first(live: list[LiveFile], limit: int) -> None:
    assert plan_builds(live, (), limit) == plan_builds(live, (), None)[:limit]


def test_a_rewritten_file_is_built_in_its_new_segment() -> None:
    old, new = live_file(1, 1), live_file(2, 3)
    units = plan_builds([new, live_file(3, 2)], [old.identity, FileIdentity("f3", 100, 10)], None)
    assert [(unit.segment, unit.files) for unit in units] == [(3, (new.identity,))]


def test_a_file_of_the_same_path_and_another_size_is_another_file() -> None:
    units = plan_builds([live_file(1, 1)], [FileIdentity("f1", 99, 10)], None)
    assert [unit.segment for unit in units] == [1]


def test_files_without_sequence_number_are_built_snapshot_by_snapshot() -> None:
    files = [live_file(1, 0, 11), live_file(2, 0, 12), live_file(3, 0, 11), live_file(4, 2, 13)]
    units = plan_builds(files, (), None)
    assert [(unit.segment, unit.added_snapshot_id, len(unit.files)) for unit in units] == [
        (0, 11, 2),
        (0, 12, 1),
        (2, None, 1),
    ]


@pytest.mark.parametrize(
    ("segments", "expected"),
    [([], 0), ([(1, False)], 0), ([(1, True), (4, True)], 4), ([(1, True), (4, False), (5, True)], 1)],
)
def test_synced_up_to_stops_before_the_first_gap(segments: list[tuple[int, bool]], expected: int) -> None:
    assert synced_up_to(SegmentSync(*one) for one in segments) == expected


def test_names_are_not_part_of_a_definition_but_types_and_order_are() -> None:
    a, b = IndexColumn(1, "long"), IndexColumn(2, "string")
    assert IndexDefinition((a, b)).digest == IndexDefinition((a, b)).digest
    assert len({IndexDefinition(one).digest for one in [(a, b), (b, a), (a,), (IndexColumn(1, "string"), b)]}) == 4


def test_an_index_without_included_columns_keeps_the_digest_that_it_always_had() -> None:
    a, b, c = IndexColumn(1, "long"), IndexColumn(2, "string"), IndexColumn(3, "double")
    assert IndexDefinition((a, b)).digest == "9a488019"
    keyed = [IndexDefinition((a,)), IndexDefinition((a, b)), IndexDefinition((a,), (b,)), IndexDefinition((a,), (b, c))]
    assert len({one.digest for one in (*keyed, IndexDefinition((a,), (c, b)))}) == 5


def test_buckets_are_part_of_a_definition() -> None:
    a = IndexColumn(1, "long")
    parameters = [IndexParameters(buckets=buckets) for buckets in (None, 2, 4)]
    assert len({IndexDefinition((a,), (), known).digest for known in parameters}) == 3


def test_small_runs_are_not_spread_over_buckets_beside_large_ones() -> None:
    enough = 16 * ROWS_PER_BUCKET
    assert is_spread(enough, 100 * enough, 16)
    assert not is_spread(enough - 1, 100 * enough, 16)
    assert is_spread(100, 100 * MERGE_FAN_IN, 16)
    assert not is_spread(100, 100 * MERGE_FAN_IN + 1, 16)


def test_the_lowest_full_tier_is_merged_first_and_whole() -> None:
    large = [SortedRun(1, n, 0, 50) for n in range(9)]
    small = [SortedRun(0, n, n % 2, 5) for n in range(10)]
    assert set(plan_run_merge([*large, *small])) == set(small)


def test_fewer_runs_than_the_fan_in_are_left_alone() -> None:
    few = range(MERGE_FAN_IN - 1)
    assert plan_run_merge([SortedRun(0, n, 0, rows) for rows in (5, 50, 50_000_000) for n in few]) == ()


def merged_until_none_is_due(runs: list[SortedRun], sequence: int) -> tuple[list[SortedRun], int]:
    """The runs that are left, and how many rows were written again."""
    rewritten = 0
    while merged := plan_run_merge(runs):
        rows = sum(run.rows for run in merged)
        rewritten += rows
        level = max(run.level for run in merged) + 1
        runs = [run for run in runs if run not in merged] + [SortedRun(level, sequence, 0, rows)]
    return runs, rewritten


def test_every_entry_is_rewritten_once_per_tier_however_many_segments_come() -> None:
    runs: list[SortedRun] = []
    rewritten = 0
    for segment in range(400):
        runs, again = merged_until_none_is_due([*runs, SortedRun(0, segment, 0, 1)], segment)
        rewritten += again
    assert sum(run.rows for run in runs) == 400
    assert rewritten <= 400 * 3
    assert len(runs) <= 3 * (MERGE_FAN_IN - 1)


@given(st.lists(st.integers(1, 10**6), max_size=200), st.integers(1, MERGE_FAN_IN - 1))
def test_segments_of_any_size_leave_few_runs_and_never_have_larger_ones_written_again(
    segments: list[int], large: int
) -> None:
    runs = [SortedRun(0, 0, part, 10**9) for part in range(large)]
    rewritten = 0
    for segment, rows in enumerate(segments, 1):
        runs, again = merged_until_none_is_due([*runs, SortedRun(0, segment, 0, rows)], segment)
        rewritten += again
    tiers = SortedRun(0, 0, 0, sum(segments)).tier + 1
    assert rewritten <= tiers * sum(segments)
    assert [run for run in runs if run.sequence == 0] == [SortedRun(0, 0, part, 10**9) for part in range(large)]
    assert len(runs) - large <= tiers * (MERGE_FAN_IN - 1)


@pytest.mark.parametrize(
    ("stale", "everything", "expected"), [(0, 0, False), (0, 9, False), (24, 100, False), (25, 100, True)]
)
def test_a_purge_is_worth_it_from_a_quarter_of_the_entries(stale: int, everything: int, expected: bool) -> None:
    assert is_purge_worthwhile(stale, everything) is expected

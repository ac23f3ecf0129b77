"""Segments that an index run enters together: all of their files, in order, in so few waves that merges are spared."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from skipstone.indexes.building.waves import (
    SCRATCH_BYTES,
    BuildPower,
    MissingUnit,
    plan_waves,
    task_count,
    wave_weight,
)
from skipstone_core.indexing.indexes import MERGE_FAN_IN, IndexColumn, IndexDefinition, SortedRun, plan_run_merge

K = IndexDefinition((IndexColumn(1, "long"),))
#: What an entry takes with such a key.
ENTRY_BYTES = 24
MIB = 1024 * 1024
#: What fits into the buffers of two tasks.
BUFFERED = 2 * 96 * MIB * 7 // 8 // 8


def unit(segment: int, records: list[int]) -> MissingUnit:
    return MissingUnit(segment, tuple(range(len(records))), tuple(records))


UNITS = st.lists(
    st.builds(unit, st.integers(0, 9), st.lists(st.integers(0, 600_000), min_size=1, max_size=12)), max_size=20
)


def files_of(units: list[MissingUnit]) -> list[tuple[int, int, int]]:
    return [(one.segment, *file) for one in units for file in zip(one.ordinals, one.records, strict=True)]


@given(UNITS, st.integers(1, 5_000_000))
def test_every_file_is_in_one_wave_in_order(units: list[MissingUnit], weight: int) -> None:
    waves = plan_waves(units, weight)
    assert files_of([*chain.from_iterable(waves)]) == files_of(units)


@given(UNITS, st.integers(1, 5_000_000))
def test_waves_are_full_and_hold_at_most_half_more_or_one_file(units: list[MissingUnit], weight: int) -> None:
    waves = plan_waves(units, weight)
    assert all(sum(one.weight for one in wave) >= weight for wave in waves[:-1])
    for wave in waves:
        before = sum(one.weight for one in wave[:-1])
        assert before < weight
        assert wave[-1].weight <= max(1, weight // 2) or len(wave[-1].ordinals) == 1


@given(UNITS, st.integers(1, 5_000_000))
def test_a_segment_of_less_than_half_a_wave_is_entered_whole(units: list[MissingUnit], weight: int) -> None:
    entered = [*chain.from_iterable(plan_waves(units, weight))]
    assert all(one in entered for one in units if one.weight <= weight // 2)


@given(
    st.lists(st.lists(st.integers(1, 6_000_000), min_size=1, max_size=5), min_size=1, max_size=20),
    st.integers(1, MERGE_FAN_IN - 1),
    st.integers(1, 96),
)
def test_what_a_bulk_build_writes_is_never_written_again(segments: list[list[int]], tasks: int, buffer: int) -> None:
    """A run a task and wave, of rows that are dealt out evenly."""
    units = [unit(number, records) for number, records in enumerate(segments)]
    waves = plan_waves(units, wave_weight(BuildPower(tasks, buffer * MIB), K, units))
    runs: list[SortedRun] = []
    for sequence, wave in enumerate(waves):
        entered = sum(one.rows for one in wave)
        count = task_count(entered, tasks)
        runs += [SortedRun(0, sequence, part, entered // count) for part in range(count)]
    if sum(one.weight for one in units) <= tasks * 80_000_000:
        assert plan_run_merge(runs) == ()


def test_waves_fill_the_buffers_of_all_tasks_once_where_that_makes_few_enough_runs() -> None:
    units = [unit(number, [1_000_000]) for number in range(60)]
    waves = plan_waves(units, wave_weight(BuildPower(2, 96 * MIB), K, units))
    assert len(waves) == 3
    assert all(sum(one.rows for one in wave) <= BUFFERED for wave in waves)


def test_one_large_segment_is_entered_in_several_waves() -> None:
    units = [unit(7, [1_000_000] * 200)]
    waves = plan_waves(units, wave_weight(BuildPower(2, 96 * MIB), K, units))
    assert len(waves) == 3
    assert all(one.segment == 7 for wave in waves for one in wave)


def test_what_waits_in_files_of_a_machine_is_bounded() -> None:
    units = [unit(0, [10_000_000] * 1000)]
    waves = plan_waves(units, wave_weight(BuildPower(2, 96 * MIB), K, units))
    assert all(sum(one.rows for one in wave) <= 2 * SCRATCH_BYTES // ENTRY_BYTES for wave in waves)


def test_many_small_files_are_not_entered_in_one_wave() -> None:
    units = [unit(0, [1] * 100_000)]
    waves = plan_waves(units, wave_weight(BuildPower(1, 96 * MIB), K, units))
    assert len(waves) > MERGE_FAN_IN
    assert max(sum(len(one.ordinals) for one in wave) for wave in waves) <= 4000

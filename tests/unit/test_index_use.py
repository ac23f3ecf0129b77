"""The rule of cost: when reading an index pays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.ids import index_table_name
from skipstone_core.indexing.asked import is_full_reindex, reindex_mark
from skipstone_core.indexing.hints import IndexHint, read_hint
from skipstone_core.indexing.use import (
    CostLimits,
    ReadCost,
    Sampled,
    are_few,
    are_worth_their_keys,
    covers_too_little,
    is_driver_faster,
    is_narrow,
    is_small_side,
    is_worthwhile,
    may_decode,
    part_in_pages,
)

MIB = 1024 * 1024
COSTS = st.builds(
    ReadCost, st.integers(0, 10_000), st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**9)
)


@pytest.mark.parametrize(
    ("index", "candidates", "worthwhile"),
    [
        (ReadCost(5, 4 * MIB), ReadCost(400, 2500 * MIB), True),
        (ReadCost(5, 4 * MIB), ReadCost(1, 8 * MIB), False),
        (ReadCost(40, 1280 * MIB), ReadCost(400, 2500 * MIB), True),
        (ReadCost(40, 1500 * MIB), ReadCost(400, 2500 * MIB), False),
        (ReadCost(5, 4 * MIB, 500 * MIB), ReadCost(400, 2500 * MIB), True),
        (ReadCost(5, 4 * MIB, 700 * MIB), ReadCost(400, 2500 * MIB), False),
        (ReadCost(5, 4 * MIB, rows=16 * MIB), ReadCost(400, 2500 * MIB), True),
        (ReadCost(5, 4 * MIB, rows=24 * MIB), ReadCost(400, 2500 * MIB), False),
        (ReadCost(5, MIB // 2), ReadCost(1, 1000), True),
        (ReadCost(0, 0), ReadCost(0, 0), False),
    ],
    ids=[
        *("point", "one small file", "half", "more than half", "values", "too many values", "rows", "too many rows"),
        *("next to nothing", "nothing to save"),
    ],
)
def test_an_index_may_read_half_of_what_it_may_save(index: ReadCost, candidates: ReadCost, worthwhile: bool) -> None:
    assert is_worthwhile(index, candidates) is worthwhile


@given(index=COSTS, more=COSTS, candidates=COSTS)
def test_reading_more_never_makes_an_index_worthwhile(index: ReadCost, more: ReadCost, candidates: ReadCost) -> None:
    assert is_worthwhile(index, candidates) or not is_worthwhile(index + more, candidates)


@given(index=COSTS, candidates=COSTS, part=st.floats(0, 1), more=st.floats(0, 1))
def test_a_larger_part_never_turns_an_index_away(
    index: ReadCost, candidates: ReadCost, part: float, more: float
) -> None:
    small, large = (CostLimits(worthwhile=limit, narrow=limit) for limit in sorted((part, more)))
    assert is_worthwhile(index, candidates, large) or not is_worthwhile(index, candidates, small)
    assert is_worthwhile(index, candidates, CostLimits(worthwhile=0.5)) is is_worthwhile(index, candidates)
    assert is_worthwhile(index, candidates, small.forced()) is bool(candidates.files)
    assert is_narrow(index.bytes, candidates.bytes, large) or not is_narrow(index.bytes, candidates.bytes, small)
    assert is_narrow(index.bytes, candidates.bytes, small.forced())


@pytest.mark.parametrize(
    ("covered", "live", "percent", "too_little"),
    [
        (0, 0, 100, False),
        (0, 10, 0, False),
        (0, 10, 1, True),
        (5, 10, 50, False),
        (5, 10, 51, True),
        (999, 1000, 100, True),
    ],
)
def test_an_index_covers_too_little_below_a_percentage(covered: int, live: int, percent: int, too_little: bool) -> None:
    assert covers_too_little(covered, live, percent) is too_little


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)


@given(names=st.lists(NAMES, min_size=1, max_size=4, unique_by=lambda name: name.replace("-", "_")), data=st.data())
def test_a_hint_names_an_index_by_its_resource_or_its_table(names: list[str], data: st.DataObject) -> None:
    tables = {name: index_table_name("t", name, "1f0c2a9b-0000") for name in names}
    name = data.draw(st.sampled_from(names))
    for wanted in (name, name.upper(), name.replace("-", "_"), tables[name]):
        hint = IndexHint((wanted, "none-of-them-is-it"))
        assert hint.chosen("t", tables.values()) == {tables[name]}
        assert hint.unknown("t", tables.values()) == ("none-of-them-is-it",)
        assert read_hint((hint | IndexHint(is_none=True)).text()).chosen("t", tables.values()) == frozenset()
    assert IndexHint(is_any=True).chosen("t", tables.values()) == {*tables.values()}


@given(NAMES)
def test_a_full_reindex_is_told_from_others_by_its_mark(mark: str) -> None:
    assert is_full_reindex(reindex_mark(mark, full=True))
    assert is_full_reindex(reindex_mark(mark, full=False)) is (mark == "full")


@given(candidate_bytes=st.integers(1, 10**12))
def test_hits_everywhere_are_not_narrow(candidate_bytes: int) -> None:
    assert not is_narrow(candidate_bytes, candidate_bytes)
    assert is_narrow(candidate_bytes / 2, candidate_bytes)


@given(data=st.data(), pages=st.integers(1, 10_000), times=st.floats(1, 1000))
def test_more_keys_hit_more_until_they_hit_all_that_can_be_hit(data: st.DataObject, pages: int, times: float) -> None:
    first, second = (data.draw(st.integers(0, pages)) for _ in range(2))
    both = data.draw(st.integers(max(0, first + second - pages), min(first, second)))
    sampled = Sampled(first, second, both, pages)
    found = sampled.expected_part(times)
    union = first + second - both
    assert 0 <= found <= min(1.0, times * union / pages) + 1e-9
    assert found <= sampled.expected_part(times + 1) + 1e-9
    assert found >= union / pages - 1e-9


def test_samples_that_meet_tell_how_much_can_be_hit() -> None:
    assert Sampled(0, 0, 0, 100).expected_part(50) == 0
    assert Sampled(25, 25, 0, 100).expected_part(2) == 0.75
    assert Sampled(60, 60, 60, 200).expected_part(50) == pytest.approx(0.3)
    assert Sampled(60, 60, 36, 100).expected_part(50) == pytest.approx(1)


def test_more_rows_are_in_more_pages() -> None:
    assert part_in_pages(0, 1000, 100) == 0
    assert part_in_pages(1, 1000, 100) == pytest.approx(0.1)
    assert part_in_pages(2, 1000, 100) == pytest.approx(0.19)
    assert part_in_pages(1, 50, 100) == 1


def test_few_rows_are_one_in_a_hundred() -> None:
    assert are_few(10, 1000)
    assert not are_few(11, 1000)


@pytest.mark.parametrize(
    ("here", "there", "cores", "faster"),
    [
        (ReadCost(14, MIB), ReadCost(14, 20 * MIB), 2, True),
        (ReadCost(400, 30 * MIB), ReadCost(400, 240 * MIB), 2, True),
        (ReadCost(400, 30 * MIB), ReadCost(400, 240 * MIB), 8, False),
        (ReadCost(3, 1000 * MIB), ReadCost(3, 3000 * MIB), 2, True),
        (ReadCost(3, 2000 * MIB), ReadCost(3, 3000 * MIB), 2, False),
    ],
    ids=["few files", "many small files", "and many tasks", "less to decode", "more to decode"],
)
def test_the_driver_reads_the_rows_of_few_files(here: ReadCost, there: ReadCost, cores: int, faster: bool) -> None:
    assert is_driver_faster(here, there, task_cores=cores) is faster


@pytest.mark.parametrize(
    ("nbytes", "driver_cores", "task_cores", "most"),
    [(480, 2, 2, 736), (480, 4, 16, 376), (480, 1, 480, 257), (0, 8, 8, 256), (2000, 2, 2, 1024), (100, 2, 0, 456)],
    ids=["as many cores", "more tasks", "many tasks", "unknown", "too much", "no task"],
)
def test_the_driver_decodes_what_it_can_while_tasks_do_all(
    nbytes: int, driver_cores: int, task_cores: int, most: int
) -> None:
    assert may_decode(nbytes * MIB, driver_cores=driver_cores, task_cores=task_cores) == most * MIB


def test_a_small_side_costs_an_eighth_at_most() -> None:
    assert is_small_side(ReadCost(), ReadCost())
    assert is_small_side(ReadCost(1, 26 * MIB), ReadCost(56, 200 * MIB))
    assert not is_small_side(ReadCost(1, 27 * MIB), ReadCost(56, 200 * MIB))
    assert is_small_side(ReadCost(1, 106 * MIB), ReadCost(56, 200 * MIB), gives_few=True)
    assert not is_small_side(ReadCost(1, 107 * MIB), ReadCost(56, 200 * MIB), gives_few=True)


def test_a_side_may_give_more_keys_where_more_can_be_saved() -> None:
    assert are_worth_their_keys(2000, ReadCost())
    assert not are_worth_their_keys(2001, ReadCost(1, 40 * MIB))
    assert are_worth_their_keys(20_000, ReadCost(400, 400 * MIB))
    assert not are_worth_their_keys(30_000, ReadCost(400, 400 * MIB))


def test_a_side_that_takes_a_job_is_worth_it_only_beside_a_large_one() -> None:
    assert is_small_side(ReadCost(1, 1), ReadCost(28, 121 * MIB))
    assert not is_small_side(ReadCost(1, 1), ReadCost(28, 120 * MIB))

"""The rule of cost: when reading an index pays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.indexing.use import ReadCost, are_few, is_narrow, is_worthwhile

MIB = 1024 * 1024
COSTS = st.builds(ReadCost, st.integers(0, 10_000), st.integers(0, 10**12))


@pytest.mark.parametrize(
    ("index", "candidates", "worthwhile"),
    [
        (ReadCost(5, 4 * MIB), ReadCost(400, 2500 * MIB), True),
        (ReadCost(5, 4 * MIB), ReadCost(1, 8 * MIB), False),
        (ReadCost(40, 1300 * MIB), ReadCost(400, 2500 * MIB), True),
        (ReadCost(40, 1500 * MIB), ReadCost(400, 2500 * MIB), False),
        (ReadCost(5, MIB // 2), ReadCost(1, 1000), True),
        (ReadCost(0, 0), ReadCost(0, 0), False),
    ],
    ids=["point", "one small file", "half", "more than half", "next to nothing", "nothing to save"],
)
def test_an_index_may_read_half_of_what_it_may_save(index: ReadCost, candidates: ReadCost, worthwhile: bool) -> None:
    assert is_worthwhile(index, candidates) is worthwhile


@given(index=COSTS, more=COSTS, candidates=COSTS)
def test_reading_more_never_makes_an_index_worthwhile(index: ReadCost, more: ReadCost, candidates: ReadCost) -> None:
    assert is_worthwhile(index, candidates) or not is_worthwhile(index + more, candidates)


@given(candidate_bytes=st.integers(1, 10**12))
def test_hits_everywhere_are_not_narrow(candidate_bytes: int) -> None:
    assert not is_narrow(candidate_bytes, candidate_bytes)
    assert is_narrow(candidate_bytes / 2, candidate_bytes)


def test_few_rows_are_one_in_a_hundred() -> None:
    assert are_few(10, 1000)
    assert not are_few(11, 1000)

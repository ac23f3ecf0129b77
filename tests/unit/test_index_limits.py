"""The limits of the cost rule as settings of a session: what a text names, and a sentence on what is none."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.indexing import use
from skipstone_core.indexing.limits import SETTINGS, read_limits
from skipstone_core.indexing.use import (
    CostLimits,
    ReadCost,
    are_worth_their_keys,
    is_bucketed_faster,
    is_small_side,
    leaves_few,
    may_decode,
)

MIB = 1024 * 1024


def test_every_limit_has_a_setting_and_every_default_changes_nothing() -> None:
    assert {setting.field for setting in SETTINGS} == {field.name for field in fields(CostLimits)}
    usual, problems = read_limits({setting.name: str(setting.usual) for setting in SETTINGS})
    assert problems == ()
    side, other = ReadCost(1, 10 * MIB), ReadCost(10, 120 * MIB)
    assert is_small_side(side, other, usual) is is_small_side(side, other)
    assert is_bucketed_faster(100, 150, 40, usual) is is_bucketed_faster(100, 150, 40)
    assert read_limits({}) == (CostLimits(), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("67108864", 64 * MIB), ("64m", 64 * MIB), ("64MB", 64 * MIB), ("64 MiB", 64 * MIB), ("0", 0), ("2g", 2048 * MIB)],
)
def test_bytes_may_have_a_unit(text: str, expected: int) -> None:
    assert read_limits({"skipstone.driverBytes": text, "skipstone.joinBytes": text}) == (
        CostLimits(driver_bytes=expected, join_bytes=expected),
        (),
    )


@pytest.mark.parametrize("text", ["", "much", "-1", "1.5", "nan", "inf", "-0.1", "m64", "64x"])
def test_a_text_that_is_not_a_value_counts_as_the_default(text: str) -> None:
    limits, problems = read_limits({setting.name: text for setting in SETTINGS})
    assert limits == CostLimits()
    assert len(problems) == len(SETTINGS)
    assert (
        f"skipstone.narrowPart is {text!r}, not a number from 0 to 1: it counts as {use.NARROW_PART}, the default"
        in problems
    )


parts = st.floats(0, 1)
costs = st.builds(ReadCost, st.integers(0, 1000), st.integers(0, 1 << 40))


@given(parts, parts, costs, costs, st.integers(0, 10**7))
def test_a_greater_part_never_forbids_what_a_smaller_one_allows(
    part: float, more: float, side: ReadCost, other: ReadCost, count: int
) -> None:
    small, large = (
        CostLimits(small_side=limit, covering=limit, runtime_filter=limit, join_bytes=0)
        for limit in sorted((part, more))
    )
    assert is_small_side(side, other, large) or not is_small_side(side, other, small)
    assert are_worth_their_keys(count, other, large) or not are_worth_their_keys(count, other, small)
    assert is_bucketed_faster(count, side.bytes, side.files, large) or not is_bucketed_faster(
        count, side.bytes, side.files, small
    )
    assert leaves_few(side.files, count, large) or not leaves_few(side.files, count, small)


@given(st.integers(0, 10**6))
def test_a_tenth_of_the_files_are_few(tenth: int) -> None:
    assert leaves_few(tenth, 10 * tenth)
    assert not leaves_few(tenth + 1, 10 * tenth)


def test_what_a_driver_decodes_is_never_more_than_a_session_allows() -> None:
    assert may_decode(0, driver_cores=2, task_cores=2, most=MIB) == MIB
    assert may_decode(0, driver_cores=2, task_cores=2, most=1 << 40) == use.DECODED_BYTES
    relation = ReadCost(1, 60 * MIB)
    assert not is_small_side(ReadCost(1, MIB), relation)
    assert is_small_side(ReadCost(1, MIB), relation, CostLimits(join_bytes=32 * MIB))

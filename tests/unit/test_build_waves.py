"""Segments that an index run enters together: all of them, in order, within the limits or alone."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st
from skipstone.indexes.building.build import MissingUnit, WaveLimit, plan_waves

LIMIT = WaveLimit(rows=100, files=5)
UNITS = st.builds(
    lambda segment, rows, files: MissingUnit(segment, tuple(range(files)), rows),
    st.integers(0, 9),
    st.integers(0, 150),
    st.integers(1, 7),
)


def is_within(wave: list[MissingUnit]) -> bool:
    return sum(unit.rows for unit in wave) <= LIMIT.rows and sum(len(unit.ordinals) for unit in wave) <= LIMIT.files


@given(st.lists(UNITS, max_size=20))
def test_every_unit_is_in_one_wave_in_order_and_waves_are_as_large_as_the_limit_lets_them(
    units: list[MissingUnit],
) -> None:
    waves = plan_waves(units, LIMIT)
    assert list(chain.from_iterable(waves)) == units
    assert all(len(wave) == 1 or is_within(wave) for wave in waves)
    assert not any(is_within([*wave, following[0]]) for wave, following in pairwise(waves))

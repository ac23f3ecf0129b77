"""The value of the annotation that asks for maintenance: written by the command line, read by the operator."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.maintenance.asked import find_asked_steps, maintain_request
from skipstone_core.maintenance.policies import MaintenanceStep

EVERY = tuple(MaintenanceStep)


@given(st.lists(st.sampled_from(EVERY), min_size=1), st.text("0123456789-:TZ", min_size=1))
def test_what_is_written_is_read(steps: Sequence[MaintenanceStep], mark: str) -> None:
    assert find_asked_steps(maintain_request(mark, steps)) == tuple(step for step in EVERY if step in steps)


@pytest.mark.parametrize("value", ["", "1764126000", "2026-11-26T03:04:05Z", "now/later", "Compaction", "Compact/1"])
def test_a_value_that_begins_with_no_names_of_steps_asks_for_all(value: str) -> None:
    assert find_asked_steps(value) == EVERY


def test_names_are_read_in_any_case_and_with_spaces() -> None:
    assert find_asked_steps("orphanfiles, compaction/7") == (MaintenanceStep.COMPACTION, MaintenanceStep.ORPHAN_FILES)


def test_a_mark_alone_asks_for_all() -> None:
    assert maintain_request("7") == "7"

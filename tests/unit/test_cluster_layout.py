"""A checkout may lie anywhere: unix sockets must not care."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.layout import LONGEST_STATE_PATH, find_state_root


def test_state_of_a_checkout_with_a_short_path_stays_in_it() -> None:
    assert find_state_root(Path("/work/main/.cache/cluster")) == Path("/work/main/.cache/cluster")


def test_state_of_a_deep_checkout_gets_a_short_path_of_its_own() -> None:
    one, two = (find_state_root(Path("/deep") / ("x" * 60) / name) for name in ("one", "two"))
    assert one != two
    assert max(len(str(one)), len(str(two))) <= LONGEST_STATE_PATH

"""The clock jumps at any write of each kind of work: nothing runs twice, and all ends, though the clock is wrong.

One clock for all, as where `skipstone local` runs everything on a machine that slept, or whose time was corrected.
`make test` takes a few writes; which ones changes with the commit. `make soak-kill` takes all of them.
"""

from __future__ import annotations

import pytest

from tests.examples import cases, turn
from tests.unit.test_reconcile_crashes import WORKS, Watched, finish, number_of_writes, ready_world

#: One of so many writes is taken.
EVERY = cases(17, 1)
HOUR = 3600.0


def finish_with_jump(watched: Watched, work: str, at: int, seconds: float) -> None:
    """Do the work; all clocks move by ``seconds`` behind its write number ``at``."""
    kube = watched.world.kube
    fatal, moved = len(kube.writes) + at, False

    def jump(number: int, moment: str) -> bool:
        nonlocal moved
        if (number, moment) == (fatal, "landed"):
            kube.clock.advance(seconds)
            moved = True
        return False

    kube.crash = jump
    finish(watched, work)
    assert moved, f"write {at} was never reached"


@pytest.mark.parametrize("seconds", [HOUR, -HOUR, 48 * HOUR, -48 * HOUR], ids=["+1h", "-1h", "+48h", "-48h"])
# A job with one attempt that waits for a node for hours, as it seems, has failed; nothing of it is in the table.
@pytest.mark.parametrize("work", [work for work in WORKS if work != "confirmed load"])
def test_a_clock_that_jumps_at_any_write_doubles_nothing_and_all_ends(work: str, seconds: float) -> None:
    writes = number_of_writes(work)
    for at in range(turn(EVERY), writes, EVERY):
        watched = ready_world(work)
        finish_with_jump(watched, work, at, seconds)
        lake_table = watched.world.lake.tables["air", "flights"]
        assert set(lake_table.commits.values()) == {1}
        assert len(lake_table.segments) == 1 + WORKS[work].commits
        assert set(watched.most_alive.values()) == {1}

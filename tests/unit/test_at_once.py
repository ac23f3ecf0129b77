"""Work on many files keeps their order and tells what failed, in threads and without."""

from __future__ import annotations

import threading

import pytest
from skipstone.parallel import AT_ONCE, at_once

#: In threads from the first item on, and never in one.
PATIENCES = (0.0, 1e9)


@pytest.mark.parametrize("patience", PATIENCES)
@pytest.mark.parametrize("count", [0, 1, 2, AT_ONCE + 1, 1000])
def test_results_stand_in_the_order_of_their_items(count: int, patience: float) -> None:
    assert at_once(lambda number: number * 2, range(count), patience_seconds=patience) == list(range(0, count * 2, 2))


@pytest.mark.parametrize("patience", PATIENCES)
def test_what_work_raises_is_raised_when_the_rest_is_over(patience: float) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 20:
            raise OSError("the storage is away")
        done.append(number)

    with pytest.raises(OSError, match="the storage is away"):
        at_once(work, range(100), patience_seconds=patience)
    assert len(done) == (99 if patience == 0 else 20)


def test_slow_work_is_done_at_the_same_time() -> None:
    """Each item waits for all others: one after the other would wait for ever."""
    together = threading.Barrier(AT_ONCE, timeout=60)
    assert at_once(lambda _: together.wait() >= 0, range(AT_ONCE), patience_seconds=0) == [True] * AT_ONCE

"""Many callers of one table: the first reads its manifests alone, and the others find them read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from skipstone.serving.workers import FirstAlone


def test_the_first_is_alone_and_the_others_are_not() -> None:
    first, lock = FirstAlone(), threading.Lock()
    inside, most_before, both = 0, 0, threading.Barrier(2)
    is_done = False

    def work() -> None:
        nonlocal inside, most_before, is_done
        with first.entered("a"):
            with lock:
                inside += 1
                if not is_done:
                    most_before = max(most_before, inside)
            is_done = True
            with lock:
                inside -= 1

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(work) for _ in range(64)]:
            done.result()

        def meet() -> None:
            with first.entered("a"):
                both.wait(60)

        for done in [threads.submit(meet) for _ in range(2)]:
            done.result()
    assert most_before == 1


def test_whoever_fails_leaves_it_to_the_next() -> None:
    first = FirstAlone()
    with pytest.raises(KeyError), first.entered("a"):
        raise KeyError
    entered: list[str] = []

    def enter() -> None:
        with first.entered("a"):
            entered.append("other")

    other = threading.Thread(target=enter)
    with first.entered("a"):
        other.start()
        entered.append("first")
    other.join()
    assert entered == ["first", "other"]

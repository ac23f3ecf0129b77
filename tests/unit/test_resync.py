"""The resync: everything is enqueued, deletions that the watch missed are found, a deaf watch ends the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import pytest
from skipstone_operator.runtime.resync import Deliveries, Resync, WatchStalled

from tests.unit.runtime_doubles import RecordingMeter, VirtualTime


class Bench:
    """A resync over a cluster that is a dict. ``during`` is called while the watch is given time."""

    def __init__(self) -> None:
        self.time, self.meter = VirtualTime(), RecordingMeter()
        self.cluster: dict[str, str] = {}
        self.enqueued: list[Collection[str]] = []
        self.forgotten: list[Collection[str]] = []
        self.during: Callable[[], None] = lambda: None
        self.fault: OSError | None = None
        self.deliveries: Deliveries[str] = Deliveries(self.time.time)
        self.resync = Resync(
            list_all=self.list_all,
            enqueue=lambda found: self.enqueued.append(sorted(found)),
            forget=lambda found: self.forgotten.append(sorted(found)),
            deliveries=self.deliveries,
            meter=self.meter,
            sleep=self.sleep,
        )

    async def list_all(self) -> Mapping[str, str]:
        if self.fault:
            raise self.fault
        return dict(self.cluster)

    async def sleep(self, seconds: float) -> None:
        self.time.advance(seconds / 2)
        self.during()
        self.time.advance(seconds / 2)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.time.advance(1)
            asyncio.run(self.resync.round())


def test_all_that_is_listed_is_enqueued_whether_it_changed_or_not() -> None:
    bench = Bench()
    bench.cluster = {"a": "1", "b": "2"}
    bench.deliveries.seen("a", "1")
    bench.deliveries.seen("b", "2")
    bench.rounds(2)
    assert bench.enqueued == [["a", "b"], ["a", "b"]]
    assert bench.meter.stale == [0, 0]


def test_an_object_that_vanished_unseen_is_forgotten_once() -> None:
    bench = Bench()
    bench.deliveries.seen("a", "1")
    bench.rounds(2)
    assert bench.forgotten == [["a"], []]


def test_a_change_that_the_watch_delivers_in_time_is_fine() -> None:
    bench = Bench()
    bench.cluster = {"a": "2"}
    bench.deliveries.seen("a", "1")
    bench.during = lambda: bench.deliveries.seen("a", "2")
    bench.rounds(3)
    assert bench.meter.stale == [0, 0, 0]


def test_a_watch_that_is_ahead_of_the_list_is_fine() -> None:
    bench = Bench()
    bench.cluster = {"a": "1"}

    async def overtaken() -> Mapping[str, str]:
        listed = dict(bench.cluster)
        bench.time.advance(0.1)
        bench.deliveries.seen("a", "2")
        return listed

    bench.resync.list_all = overtaken
    bench.rounds(3)
    assert bench.meter.stale == [0, 0, 0]


def test_a_deletion_that_arrives_while_waiting_is_fine() -> None:
    bench = Bench()
    bench.cluster = {"a": "1"}
    bench.during = lambda: bench.deliveries.gone("a")
    bench.rounds(1)
    assert bench.meter.stale == [0]


@pytest.mark.parametrize("seen_before", [False, True], ids=["never seen", "seen at an older version"])
def test_a_change_not_delivered_in_two_rounds_in_a_row_ends_the_operator(seen_before: bool) -> None:
    bench = Bench()
    bench.cluster = {"a": "2"}
    if seen_before:
        bench.deliveries.seen("a", "1")
    bench.rounds(1)
    with pytest.raises(WatchStalled, match="for example a"):
        bench.rounds(1)
    assert bench.meter.stale == [1, 1]


def test_one_late_round_is_forgiven() -> None:
    bench = Bench()
    bench.cluster = {"a": "2"}
    bench.rounds(1)
    bench.deliveries.seen("a", "2")
    bench.rounds(1)
    bench.cluster = {"a": "3"}
    bench.rounds(1)
    assert bench.meter.stale == [1, 0, 1]


def test_a_list_that_fails_judges_nothing_and_is_tried_again() -> None:
    bench = Bench()
    bench.cluster = {"a": "2"}
    bench.fault = ConnectionError("refused")
    bench.rounds(3)
    bench.fault = None
    bench.rounds(1)
    assert bench.enqueued == [["a"]]


def test_the_time_of_the_last_good_list_is_known() -> None:
    bench = Bench()
    bench.rounds(1)
    first = bench.resync.listed_at
    bench.fault = ConnectionError("refused")
    bench.rounds(2)
    assert bench.resync.listed_at == first == 1.0

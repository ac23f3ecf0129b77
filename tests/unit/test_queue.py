"""The work queue: no key twice at once, none lost, fair turns, back-off. Time is virtual throughout."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from skipstone_operator.runtime.queue import Backoff, QueueClosed, WorkQueue

from tests.examples import cases
from tests.unit.runtime_doubles import RecordingMeter, VirtualTime


@dataclass(frozen=True, order=True)
class Name:
    """A key in a namespace."""

    namespace: str
    name: str


A, B, C = Name("one", "a"), Name("one", "b"), Name("two", "c")


def make_queue(time: VirtualTime, *, jitter: float = 0.0) -> WorkQueue[Name]:
    backoff = Backoff(jitter=jitter)
    return WorkQueue(timer=time, lane=lambda key: key.namespace, meter=RecordingMeter(), backoff=backoff)


def taken(queue: WorkQueue[Name]) -> list[Name]:
    """All keys that are ready, each done at once."""
    found = []
    while (key := queue.take_nowait()) is not None:
        found.append(key)
        queue.done(key)
    return found


def test_a_key_put_twice_is_given_out_once() -> None:
    queue = make_queue(VirtualTime())
    queue.put(A)
    queue.put(A)
    assert taken(queue) == [A]


def test_a_busy_key_put_again_comes_after_its_worker_is_done() -> None:
    queue = make_queue(VirtualTime())
    queue.put(A)
    assert queue.take_nowait() == A
    queue.put(A)
    assert queue.take_nowait() is None
    queue.done(A)
    assert taken(queue) == [A]


def test_a_key_asked_for_later_comes_when_its_time_is_up() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    queue.put_later(A, 10)
    time.advance(9.9)
    assert taken(queue) == []
    time.advance(0.2)
    assert taken(queue) == [A]


def test_the_earlier_of_two_delays_counts() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    queue.put_later(A, 10)
    queue.put_later(A, 5)
    queue.put_later(A, 7)
    time.advance(5)
    assert taken(queue) == [A]
    time.advance(60)
    assert taken(queue) == []


def test_a_change_does_not_wait_for_a_delay() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    queue.put_later(A, 60)
    queue.put(A)
    assert taken(queue) == [A]
    time.advance(120)
    assert taken(queue) == []


def test_a_requeue_time_of_a_busy_key_is_kept() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    queue.put(A)
    assert queue.take_nowait() == A
    queue.done(A, 30)
    time.advance(29)
    assert taken(queue) == []
    time.advance(1)
    assert taken(queue) == [A]


def test_a_wake_up_of_a_busy_key_is_not_lost() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    queue.put(A)
    assert queue.take_nowait() == A
    queue.put_later(A, 5)
    time.advance(5)
    queue.done(A)
    assert taken(queue) == [A]


def test_failures_double_the_delay_from_one_second_to_a_minute() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    delays = []
    for _ in range(9):
        queue.put(A)
        assert queue.take_nowait() == A
        delays.append(queue.failed(A))
        time.advance(delays[-1])
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_success_starts_the_back_off_anew() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    for _ in range(5):
        queue.put(A)
        assert queue.take_nowait() == A
        queue.failed(A)
    queue.put(A)
    assert queue.take_nowait() == A
    queue.done(A)
    queue.put(A)
    assert queue.take_nowait() == A
    assert queue.failed(A) == 1


def test_a_failing_key_that_changes_all_the_time_keeps_its_back_off() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    queue.put(A)
    assert queue.take_nowait() == A
    queue.put(A)
    delay = queue.failed(A)
    assert queue.take_nowait() is None
    time.advance(delay)
    assert taken(queue) == [A]


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
def test_jitter_shortens_a_delay_by_half_at_most(draw: float) -> None:
    backoff = Backoff(draw=lambda: draw)
    assert [backoff.delay(n) for n in (1, 4, 40)] == [full * (1 - draw / 2) for full in (1, 8, 60)]


def test_a_namespace_with_many_keys_does_not_keep_another_waiting() -> None:
    queue = make_queue(VirtualTime())
    crowd = [Name("crowd", str(n)) for n in range(100)]
    for key in crowd:
        queue.put(key)
    queue.put(C)
    assert taken(queue)[:2] == [crowd[0], C]


def test_keys_of_one_namespace_come_in_the_order_they_were_put() -> None:
    queue = make_queue(VirtualTime())
    for key in (B, A):
        queue.put(key)
    assert taken(queue) == [B, A]


def test_depth_and_latency_are_told() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    meter = queue.meter
    assert isinstance(meter, RecordingMeter)
    queue.put(A)
    time.advance(1)
    queue.put(B)
    time.advance(2)
    taken(queue)
    assert meter.latencies == [3, 2]
    assert max(meter.depths) == 2
    assert meter.depths[-1] == 0


def test_a_closed_queue_gives_out_nothing_and_ends_its_workers() -> None:
    async def scenario() -> None:
        queue = make_queue(VirtualTime())
        waiting = [asyncio.create_task(queue.take()) for _ in range(2)]
        await asyncio.sleep(0)
        queue.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [QueueClosed, QueueClosed]
        queue.put(A)
        with pytest.raises(QueueClosed):
            await queue.take()

    asyncio.run(scenario())


def test_closing_drops_what_is_ready_and_what_is_to_come() -> None:
    time = VirtualTime()
    queue = make_queue(time)
    queue.put(A)
    queue.put_later(B, 5)
    queue.close()
    time.advance(10)
    assert queue.take_nowait() is None


def test_every_waiting_worker_gets_a_key_of_its_own() -> None:
    async def scenario() -> None:
        queue = make_queue(VirtualTime())
        waiting = [asyncio.create_task(queue.take()) for _ in range(3)]
        await asyncio.sleep(0)
        for key in (A, B, C):
            queue.put(key)
        assert sorted(await asyncio.gather(*waiting)) == [A, B, C]

    asyncio.run(scenario())


class QueueMachine(RuleBasedStateMachine):
    """Any order of events: a key is with one worker at most, and one that was asked for comes."""

    keys = st.sampled_from([A, B, C, Name("two", "d")])

    def __init__(self) -> None:
        super().__init__()
        self.time = VirtualTime()
        self.queue = make_queue(self.time, jitter=0.5)
        self.busy: set[Name] = set()
        self.owed: set[Name] = set()

    @rule(key=keys)
    def put(self, key: Name) -> None:
        self.queue.put(key)
        self.owed.add(key)

    @rule(key=keys, delay=st.floats(0, 100))
    def put_later(self, key: Name, delay: float) -> None:
        self.queue.put_later(key, delay)
        self.owed.add(key)

    @rule()
    def take(self) -> None:
        key = self.queue.take_nowait()
        if key is not None:
            assert key not in self.busy
            self.busy.add(key)
            self.owed.discard(key)

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), after=st.none() | st.floats(0, 100))
    def done(self, data: st.DataObject, after: float | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.busy)))
        self.busy.discard(key)
        self.queue.done(key, after)
        if after is not None:
            self.owed.add(key)

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.busy)))
        self.busy.discard(key)
        assert 0.5 <= self.queue.failed(key) <= 60
        self.owed.add(key)

    @rule(seconds=st.floats(0, 50))
    def wait(self, seconds: float) -> None:
        self.time.advance(seconds)

    @invariant()
    def depth_counts_keys_that_are_not_busy(self) -> None:
        assert 0 <= self.queue.depth <= 4 - len(self.busy)

    def teardown(self) -> None:
        for key in self.busy:
            self.queue.done(key)
        self.time.advance(1000)
        assert self.owed <= set(taken(self.queue))


QueueMachine.TestCase.settings = settings(max_examples=cases(30, 200), stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase

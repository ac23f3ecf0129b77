"""The loop: a fault of one key is logged, counted and tried again; it ends neither the worker nor the operator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from skipstone_operator.runtime.loop import ReconcileLoop
from skipstone_operator.runtime.queue import Backoff, WorkQueue

from tests.unit.runtime_doubles import RecordingMeter, VirtualTime


@dataclass(frozen=True)
class Again:
    """What a reconcile answers."""

    after: float | None = None


class Bench:
    """A loop on a queue with virtual time; ``answers`` by key, an exception is raised."""

    def __init__(self, workers: int = 2) -> None:
        self.time, self.meter = VirtualTime(), RecordingMeter()
        self.queue: WorkQueue[str] = WorkQueue(
            timer=self.time, lane=lambda key: key[0], meter=self.meter, backoff=Backoff(jitter=0)
        )
        self.calls: list[str] = []
        self.at_once = self.most_at_once = 0
        self.answers: dict[str, Again | Exception] = {}
        self.loop = ReconcileLoop(
            queue=self.queue, reconcile=self.reconcile, kind_of=lambda key: key[0], meter=self.meter, workers=workers
        )

    async def reconcile(self, key: str) -> Again:
        self.calls.append(key)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        answer = self.answers.get(key, Again())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, *steps: Callable[[], object]) -> None:
        """Run the loop; after each step let everything settle; close at the end."""

        async def scenario() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.loop.run())
                for step in steps:
                    step()
                    for _ in range(20):
                        await asyncio.sleep(0)
                self.queue.close()

        asyncio.run(scenario())


def test_a_key_is_reconciled_and_rests() -> None:
    bench = Bench()
    bench.run(lambda: bench.queue.put("a"), lambda: bench.time.advance(3600))
    assert bench.calls == ["a"]
    assert [(kind, result) for kind, result, _ in bench.meter.reconciles] == [("a", "done")]


def test_a_key_comes_again_when_its_reconcile_asks_for_it() -> None:
    bench = Bench()
    bench.answers["a"] = Again(30)
    bench.run(lambda: bench.queue.put("a"), lambda: bench.time.advance(29), lambda: bench.time.advance(1))
    assert bench.calls == ["a", "a"]


def test_a_key_that_asks_to_come_at_once_does() -> None:
    bench = Bench()
    answers = iter([Again(0.0), Again()])

    async def twice(key: str) -> Again:
        bench.calls.append(key)
        return next(answers)

    bench.loop = ReconcileLoop(
        queue=bench.queue, reconcile=twice, kind_of=lambda key: key, meter=bench.meter, workers=1
    )
    bench.run(lambda: bench.queue.put("a"))
    assert bench.calls == ["a", "a"]


def test_a_fault_is_tried_again_after_its_back_off(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.answers["a"] = ConnectionError("no route")
    with caplog.at_level(logging.WARNING, "skipstone_operator"):
        bench.run(lambda: bench.queue.put("a"), lambda: bench.time.advance(1), lambda: bench.time.advance(2))
    assert bench.calls == ["a", "a", "a"]
    assert [result for _, result, _ in bench.meter.reconciles] == ["failed"] * 3
    first = caplog.records[0]
    assert (first.getMessage(), vars(first)["key"], vars(first)["retryAfterSeconds"]) == (
        "reconcile failed, trying again: no route",
        "a",
        1,
    )
    assert not first.exc_info


def test_a_bug_is_logged_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.answers["a"] = KeyError("spec")
    with caplog.at_level(logging.WARNING, "skipstone_operator"):
        bench.run(lambda: bench.queue.put("a"))
    assert caplog.records[0].exc_info


def test_a_failing_key_does_not_stop_the_others() -> None:
    bench = Bench(workers=1)
    bench.answers["a"] = RuntimeError("broken")
    bench.run(lambda: [bench.queue.put(key) for key in "abc"])
    assert bench.calls == ["a", "b", "c"]


def test_as_many_keys_are_at_work_as_there_are_workers() -> None:
    bench = Bench(workers=3)
    bench.run(lambda: [bench.queue.put(key) for key in "abcdef"])
    assert (sorted(bench.calls), bench.most_at_once) == (list("abcdef"), 3)


def test_a_closed_queue_lets_the_reconcile_at_work_end_and_starts_no_other() -> None:
    bench = Bench(workers=1)

    def put_and_close() -> None:
        bench.queue.put("a")
        bench.queue.put("b")

    async def closing(key: str) -> Again:
        bench.queue.close()
        await asyncio.sleep(0)
        bench.calls.append(key)
        return Again(0.0)

    bench.loop = ReconcileLoop(
        queue=bench.queue, reconcile=closing, kind_of=lambda key: key, meter=bench.meter, workers=1
    )
    bench.run(put_and_close)
    assert bench.calls == ["a"]

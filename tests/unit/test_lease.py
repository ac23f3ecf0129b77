"""The Lease: one holder at a time, judged by the local clock; a holder that cannot renew stops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from skipstone_operator.adapters.connection import Connection
from skipstone_operator.adapters.kube import FencedClient, NotHolder
from skipstone_operator.runtime.apart import run_apart
from skipstone_operator.runtime.lease import Lease, LeaseLost, LeaseRecord, LeaseTiming

from tests.unit.runtime_doubles import VirtualTime

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Store:
    """A Lease in memory with compare-and-set. ``faults`` are raised before anything happens."""

    record: LeaseRecord | None = None
    faults: list[OSError] = field(default_factory=list)
    writes: int = 0

    async def read(self) -> LeaseRecord | None:
        self._fail()
        return self.record

    async def create(self, record: LeaseRecord) -> LeaseRecord | None:
        self._fail()
        return None if self.record else self._store(record)

    async def replace(self, record: LeaseRecord) -> LeaseRecord | None:
        self._fail()
        return self._store(record) if self.record and self.record.version == record.version else None

    def taken_by(self, holder: str) -> None:
        assert self.record is not None
        self._store(replace(self.record, holder=holder))

    def _store(self, record: LeaseRecord) -> LeaseRecord:
        self.writes += 1
        self.record = replace(record, version=str(self.writes))
        return self.record

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)


class Bench:
    """Candidates on one store and one virtual clock."""

    def __init__(self) -> None:
        self.time, self.store = VirtualTime(), Store()

    def lease(self, identity: str, *, skew: float = 0.0) -> Lease:
        return Lease(
            store=self.store,
            identity=identity,
            now=lambda: START + timedelta(seconds=self.time.now + skew),
            time=self.time.time,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.time.advance(seconds)
        await asyncio.sleep(0)

    @property
    def holder(self) -> str:
        assert self.store.record is not None
        return self.store.record.holder


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(work)


def test_a_missing_lease_is_created() -> None:
    bench = Bench()
    lease = bench.lease("one")
    run(lease.acquire())
    assert (bench.holder, lease.is_held, bench.time.now) == ("one", True, 0)


def test_a_second_candidate_waits_until_the_first_was_silent_for_the_duration() -> None:
    bench = Bench()
    run(bench.lease("one").acquire())
    run(bench.lease("two").acquire())
    assert bench.holder == "two"
    assert bench.time.now >= 15


def test_a_holder_that_renews_is_never_replaced() -> None:
    bench = Bench()
    first, second = bench.lease("one"), bench.lease("two")

    async def scenario() -> None:
        await first.acquire()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(first.keep()), group.create_task(second.acquire())]
            while bench.time.now < 600 and not tasks[0].done():
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()

    run(scenario())
    assert bench.holder == "one"
    assert not second.is_held


@pytest.mark.parametrize("skew", [-86_400.0, 86_400.0], ids=["a day behind", "a day ahead"])
def test_a_wrong_clock_neither_takes_too_early_nor_never(skew: float) -> None:
    bench = Bench()
    run(bench.lease("one").acquire())
    run(bench.lease("two", skew=skew).acquire())
    assert 15 <= bench.time.now <= 20


def test_a_released_lease_is_taken_at_once() -> None:
    bench = Bench()
    first = bench.lease("one")
    run(first.acquire())
    run(first.release())
    assert (bench.holder, first.is_held) == ("", False)
    run(bench.lease("two").acquire())
    assert (bench.holder, bench.time.now) == ("two", 0)


def test_our_own_lease_from_before_a_restart_is_taken_at_once() -> None:
    bench = Bench()
    run(bench.lease("one").acquire())
    run(bench.lease("one").acquire())
    assert bench.time.now == 0


def test_transitions_are_counted() -> None:
    bench = Bench()
    run(bench.lease("one").acquire())
    run(bench.lease("two").acquire())
    assert bench.store.record is not None
    assert bench.store.record.transitions == 1


def test_faults_while_acquiring_are_waited_out() -> None:
    bench = Bench()
    bench.store.faults = [ConnectionError("refused")] * 3
    lease = bench.lease("one")
    run(lease.acquire())
    assert (lease.is_held, bench.time.now) == (True, 6)


async def keep_until(bench: Bench, lease: Lease, end: float) -> None:
    keeping = asyncio.create_task(lease.keep())
    while bench.time.now < end and not keeping.done():
        await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


def keep_until_lost(bench: Bench, lease: Lease, spoil: Callable[[], None]) -> str:
    run(lease.acquire())
    spoil()
    with pytest.raises(LeaseLost) as caught:
        run(lease.keep())
    assert not lease.is_held
    return str(caught.value)


def test_a_holder_that_finds_another_stops_at_its_next_renewal() -> None:
    bench = Bench()
    lease = bench.lease("one")
    message = keep_until_lost(bench, lease, lambda: bench.store.taken_by("two"))
    assert message == "the lease is lost: held by two"
    assert bench.time.now == 5


def test_a_holder_whose_lease_was_deleted_stops() -> None:
    bench = Bench()
    lease = bench.lease("one")

    def delete() -> None:
        bench.store.record = None

    assert keep_until_lost(bench, lease, delete) == "the lease is lost: deleted"


def test_a_holder_that_cannot_renew_stops_before_the_lease_ends() -> None:
    bench = Bench()
    lease = bench.lease("one")

    def break_down() -> None:
        bench.store.faults = [ConnectionError("refused")] * 100

    assert "not renewed for 10 s" in keep_until_lost(bench, lease, break_down)
    assert bench.time.now < 15


def test_a_passing_fault_is_survived() -> None:
    bench = Bench()
    lease = bench.lease("one")

    async def scenario() -> None:
        await lease.acquire()
        bench.store.faults = [ConnectionError("refused")]
        await keep_until(bench, lease, 60)

    run(scenario())
    assert lease.is_held


def test_a_write_of_somebody_else_that_leaves_us_the_holder_is_survived() -> None:
    bench = Bench()
    lease = bench.lease("one")

    async def scenario() -> None:
        await lease.acquire()
        bench.store.taken_by("one")
        await keep_until(bench, lease, 60)

    run(scenario())
    assert lease.is_held


def test_a_process_that_slept_too_long_no_longer_counts_as_holder() -> None:
    bench = Bench()
    lease = bench.lease("one")
    run(lease.acquire())
    bench.time.advance(15)
    assert not lease.is_held
    with pytest.raises(LeaseLost):
        run(lease.keep())
    assert bench.store.writes == 1


def test_a_lease_that_cannot_be_released_is_left_to_expire() -> None:
    bench = Bench()
    lease = bench.lease("one")
    run(lease.acquire())
    bench.store.faults = [ConnectionError("refused")]
    run(lease.release())
    assert (bench.holder, lease.is_held) == ("one", False)


class TestApart:
    """Keeping the Lease on a thread of its own, with real time: nothing waits for a clock."""

    def lease(self, store: Store) -> Lease:
        timing = LeaseTiming(duration=900, renew=0.001, give_up=600.0, retry=0.001)
        return Lease(store=store, identity="a", now=lambda: datetime.now(UTC), time=time.monotonic, timing=timing)

    def test_a_busy_loop_does_not_lose_the_lease(self) -> None:
        store = CountingStore(renewals=3)

        async def main() -> None:
            lease = self.lease(store)
            await lease.acquire()
            keeping = asyncio.create_task(run_apart(lease.keep, "lease"))
            await asyncio.sleep(0)
            # The loop is blocked here, as it is by a pass that computes.
            assert store.enough.wait(timeout=300)
            keeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await keeping
            assert lease.is_held

        asyncio.run(main())

    def test_what_ends_the_lease_is_raised_where_it_is_waited_for(self) -> None:
        store = CountingStore(renewals=1)

        async def main() -> None:
            lease = self.lease(store)
            await lease.acquire()
            store.taken_by("b")
            with pytest.raises(LeaseLost, match="held by b"):
                await run_apart(lease.keep, "lease")
            assert not lease.is_held

        asyncio.run(main())


@dataclass
class CountingStore(Store):
    """Sets ``enough`` after so many renewals."""

    renewals: int = 1
    enough: threading.Event = field(default_factory=threading.Event)

    async def replace(self, record: LeaseRecord) -> LeaseRecord | None:
        stored = await super().replace(record)
        if self.writes > self.renewals:
            self.enough.set()
        return stored


@pytest.mark.parametrize("write", ["create", "replace", "replace_status", "delete"])
def test_without_the_lease_nothing_is_written(write: str) -> None:
    client = FencedClient(cast(Connection, None), may_write=lambda: False)
    obj = {"kind": "Table", "metadata": {"namespace": "lake", "name": "t"}}
    call: Any = getattr(client, write)
    answer = call("Table", "lake", "t", uid="u") if write == "delete" else call(obj)
    with pytest.raises(NotHolder):
        asyncio.run(answer)

"""The work queue: de-duplicating, one worker per key, fair between lanes, with back-off per key.

The watch and the resync put keys in, the loop takes them out. Never blocks a producer, knows no kind.
Time comes from the outside (an event loop, or a test's virtual one), so behavior does not depend on real time.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class Handle(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Do not call."""
        ...


class Timer(Protocol):
    """Monotonic time and calls in the future; an asyncio event loop is one."""

    def time(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle:
        """Call ``callback`` once, ``delay`` seconds from now."""
        ...


class QueueMeter(Protocol):
    """What the queue tells of itself."""

    def queue_depth(self, keys: int) -> None:
        """Keys that are ready and wait for a worker."""
        ...

    def queue_latency(self, seconds: float) -> None:
        """How long one key was ready before a worker took it."""
        ...


class QueueClosed(Exception):
    """The queue was closed: workers end."""


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Delays after failures: ``base`` doubled up to ``cap``, less up to ``jitter`` of it; ``draw`` answers 0..1."""

    base: float = 1.0
    cap: float = 60.0
    jitter: float = 0.5
    draw: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """Seconds to wait after the ``failures``-th failure in a row (from 1)."""
        full = min(self.cap, self.base * 2.0 ** min(failures - 1, 32))
        return max(self.base * (1 - self.jitter), full * (1 - self.jitter * self.draw()))


@dataclass(frozen=True)
class _Wake:
    due: float
    handle: Handle


@dataclass
class WorkQueue(Generic[K]):
    """Keys to reconcile. A key is never with two workers, and a key put in is always taken out again.

    ``lane`` groups keys that share their turns (a namespace). Not thread-safe: one event loop owns it.
    """

    timer: Timer
    lane: Callable[[K], Hashable]
    meter: QueueMeter
    backoff: Backoff = field(default_factory=Backoff)
    _lanes: OrderedDict[Hashable, OrderedDict[K, float]] = field(default_factory=OrderedDict)
    _busy: set[K] = field(default_factory=set)
    _dirty: set[K] = field(default_factory=set)
    _later: dict[K, _Wake] = field(default_factory=dict)
    _failures: dict[K, int] = field(default_factory=dict)
    _closed: bool = False
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, key: K) -> None:
        """Have ``key`` reconciled soon: now, or right after the worker that has it is done."""
        if self._closed:
            return
        self._forget_wake(key)
        if key in self._busy:
            self._dirty.add(key)
            return
        self._lanes.setdefault(self.lane(key), OrderedDict()).setdefault(key, self.timer.time())
        self._announce()

    def put_later(self, key: K, delay: float) -> None:
        """Have ``key`` reconciled in ``delay`` seconds, or earlier when something else asks for it."""
        if delay <= 0:
            self.put(key)
            return
        due = self.timer.time() + delay
        pending = self._later.get(key)
        if self._closed or self._is_waiting(key) or (pending and pending.due <= due):
            return
        self._forget_wake(key)
        self._later[key] = _Wake(due, self.timer.call_later(delay, lambda: self._wake_up(key)))

    def take_nowait(self) -> K | None:
        """The next key, which is then busy until ``done`` or ``failed``; None when nothing is ready."""
        if self._closed or not self._lanes:
            return None
        lane, keys = self._lanes.popitem(last=False)
        key, since = keys.popitem(last=False)
        if keys:
            self._lanes[lane] = keys
        self._busy.add(key)
        self.meter.queue_latency(self.timer.time() - since)
        self._announce()
        return key

    async def take(self) -> K:
        """Wait for the next key. Raises QueueClosed."""
        while (key := self.take_nowait()) is None:
            if self._closed:
                raise QueueClosed
            self._ready.clear()
            await self._ready.wait()
        return key

    def done(self, key: K, after: float | None = None) -> None:
        """The worker is through with ``key``; it comes again when it was put meanwhile, or ``after`` seconds."""
        self._failures.pop(key, None)
        self._release(key, after)

    def failed(self, key: K) -> float:
        """The worker could not reconcile ``key``; it comes again after its back-off, whose seconds are returned."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = self.backoff.delay(self._failures[key])
        self._dirty.discard(key)
        self._release(key, delay)
        return delay

    def failures(self, key: K) -> int:
        """How often in a row ``key`` has failed."""
        return self._failures.get(key, 0)

    @property
    def depth(self) -> int:
        """Keys that are ready and wait for a worker."""
        return sum(len(keys) for keys in self._lanes.values())

    def close(self) -> None:
        """Give out no more keys, at once; workers that wait get QueueClosed."""
        self._closed = True
        for key in list(self._later):
            self._forget_wake(key)
        self._lanes.clear()
        self._announce()
        self._ready.set()

    def _release(self, key: K, after: float | None) -> None:
        self._busy.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.put(key)
        elif after is not None:
            self.put_later(key, after)

    def _wake_up(self, key: K) -> None:
        self._later.pop(key, None)
        self.put(key)

    def _forget_wake(self, key: K) -> None:
        wake = self._later.pop(key, None)
        if wake is not None:
            wake.handle.cancel()

    def _is_waiting(self, key: K) -> bool:
        return key in self._lanes.get(self.lane(key), ())

    def _announce(self) -> None:
        self.meter.queue_depth(self.depth)
        if self._lanes:
            self._ready.set()

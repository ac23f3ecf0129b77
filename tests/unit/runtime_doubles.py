"""Doubles of time for the runtime's tests: a clock that moves only when told to."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count


@dataclass
class VirtualHandle:
    """A call to come, which can be taken back."""

    callback: Callable[[], None]
    canceled: bool = False

    def cancel(self) -> None:
        self.canceled = True


@dataclass
class VirtualTime:
    """Implements the queue's Timer, and sleeping, on a clock that ``advance`` moves."""

    now: float = 0.0
    _calls: list[tuple[float, int, VirtualHandle]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> VirtualHandle:
        handle = VirtualHandle(callback)
        heapq.heappush(self._calls, (self.now + delay, next(self._order), handle))
        return handle

    def advance(self, seconds: float) -> None:
        """Move the clock, calling what falls due on the way, in order."""
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, handle = heapq.heappop(self._calls)
            self.now = max(self.now, due)
            if not handle.canceled:
                handle.callback()
        self.now = end

    async def sleep(self, seconds: float) -> None:
        """Sleep at no cost: the clock jumps, other tasks get their turn."""
        self.advance(seconds)
        await asyncio.sleep(0)


@dataclass
class RecordingMeter:
    """What the runtime told of itself, in order."""

    depths: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    reconciles: list[tuple[str, str, float]] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)

    def queue_depth(self, keys: int) -> None:
        self.depths.append(keys)

    def queue_latency(self, seconds: float) -> None:
        self.latencies.append(seconds)

    def reconcile_time(self, kind: str, result: str, seconds: float) -> None:
        self.reconciles.append((kind, result, seconds))

    def watch_stale(self, objects: int) -> None:
        self.stale.append(objects)

"""The safety net under the watch: list everything now and then, and notice a watch that went deaf.

Started by ``__main__``. A watch stream can stall without an error, and one that begins again does not tell what
vanished in between; when changes that a LIST shows are not delivered in time for several rounds, the process ends and
is started again. Knows no kind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
#: How long a round that was asked for waits for others that are about to ask.
SETTLE_SECONDS = 2.0
logger = logging.getLogger(__name__)


class WatchStalled(Exception):
    """The watch did not deliver changes that the API server shows: only a restart is known to help."""


class ResyncMeter(Protocol):
    """What the resync tells of itself."""

    def watch_stale(self, objects: int) -> None:
        """Objects whose last change the watch had not delivered in time, in the round that just ended."""
        ...


@dataclass(frozen=True)
class _Delivery:
    version: str
    at: float


@dataclass
class Deliveries(Generic[S]):
    """The last version of each object that the watch delivered, and when; a deletion counts as a version."""

    time: Callable[[], float]
    _last: dict[S, _Delivery] = field(default_factory=dict)

    def seen(self, identity: S, version: str) -> None:
        """The watch delivered ``identity`` at ``version`` (its resourceVersion)."""
        self._last[identity] = _Delivery(version, self.time())

    def gone(self, identity: S) -> None:
        """The watch delivered the deletion of ``identity``."""
        self._last[identity] = _Delivery("", self.time())

    def missing(self, listed: Mapping[S, str], since: float) -> frozenset[S]:
        """Identities listed at a version that the watch has not delivered, and nothing of them since ``since``.

        A later delivery excuses: the watch may be ahead of the list, and versions have no order.
        """
        return frozenset(identity for identity, version in listed.items() if self._is_late(identity, version, since))

    def vanished(self, listed: Mapping[S, str], since: float) -> frozenset[S]:
        """Identities known from the watch before ``since`` that the list no longer holds; forgotten hereby."""
        lost = {identity for identity, last in self._last.items() if identity not in listed and last.at < since}
        for identity in lost:
            del self._last[identity]
        return frozenset(lost)

    def _is_late(self, identity: S, version: str, since: float) -> bool:
        last = self._last.get(identity)
        return last is None or (last.version != version and last.at < since)


@dataclass(frozen=True, kw_only=True)
class ResyncTiming:
    """Seconds between rounds, seconds the watch gets to deliver, rounds in a row that may be late."""

    interval: float = 240.0
    patience: float = 30.0
    tolerated_rounds: int = 1

    @property
    def pause(self) -> float:
        """Seconds between the end of a round and the next."""
        return self.interval - self.patience


@dataclass(kw_only=True)
class Resync(Generic[S]):
    """Lists all objects and enqueues what they concern.

    ``list_all`` answers every object as (identity, version); ``enqueue`` takes all that were listed, ``forget`` those
    that the watch knew and the list does not. ``listed_at`` is when the last LIST succeeded.
    """

    list_all: Callable[[], Awaitable[Mapping[S, str]]]
    enqueue: Callable[[Collection[S]], None]
    forget: Callable[[Collection[S]], None]
    deliveries: Deliveries[S]
    meter: ResyncMeter
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    timing: ResyncTiming = ResyncTiming()
    listed_at: float = 0.0
    _late_rounds: int = 0
    _failed: bool = False
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    def hurry(self) -> None:
        """Have the next round soon: a watch began again, and what vanished in between only a LIST shows."""
        self._asked.set()

    async def run(self) -> None:
        """Go round for ever. Raises WatchStalled when the watch is deaf; faults of a LIST skip the round."""
        self.listed_at = self.deliveries.time()
        while True:
            await self._pause()
            await self.round()

    async def _pause(self) -> None:
        # A watch that was late is looked at again soon, and so is an API server that did not answer.
        soon = self._late_rounds or self._failed
        seconds = min(self.timing.pause, self.timing.patience) if soon else self.timing.pause
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
                # Watches begin one after the other, and one round serves all of them.
                await self.sleep(min(SETTLE_SECONDS, seconds))
        self._asked.clear()

    async def round(self) -> None:
        """One round: list, enqueue all, give the watch time, judge it. Raises WatchStalled."""
        since = self.deliveries.time()
        try:
            listed = await self.list_all()
        except (OSError, TimeoutError) as error:
            logger.warning("resync could not list: %s", str(error) or type(error).__name__)
            self._failed = True
            await self.sleep(self.timing.patience)
            return
        self._failed = False
        self.listed_at = since
        self.enqueue(listed)
        self.forget(self.deliveries.vanished(listed, since))
        suspects = self.deliveries.missing(listed, since)
        await self.sleep(self.timing.patience)
        self._judge(self.deliveries.missing({identity: listed[identity] for identity in suspects}, since))

    def _judge(self, late: frozenset[S]) -> None:
        self.meter.watch_stale(len(late))
        self._late_rounds = self._late_rounds + 1 if late else 0
        if not late:
            return
        example = min(map(str, late))
        logger.warning("watch is late", extra={"objects": len(late), "example": example, "rounds": self._late_rounds})
        if self._late_rounds > self.timing.tolerated_rounds:
            raise WatchStalled(
                f"the watch delivered no change of {len(late)} objects for {self.timing.patience:g} s in "
                f"{self._late_rounds} rounds in a row, for example {example}"
            )

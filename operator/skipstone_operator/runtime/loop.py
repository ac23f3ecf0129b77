"""Workers: take a key, reconcile it, put it back when asked to.

Started by ``__main__``. Whatever a reconcile raises is a fault of the network, of the API server or of us; it is
logged, counted, and the key tried again after its back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from skipstone_core.errors import SkipstoneError

from skipstone_operator.runtime.queue import QueueClosed, WorkQueue

K = TypeVar("K", bound=Hashable)
logger = logging.getLogger(__name__)


class Delay(Protocol):
    """What a reconcile answers."""

    @property
    def after(self) -> float | None:
        """Seconds until the key is to be looked at again; None is not before something is seen."""
        ...


class LoopMeter(Protocol):
    """What the loop tells of itself."""

    def reconcile_time(self, kind: str, result: str, seconds: float) -> None:
        """One reconcile of a key of ``kind`` took ``seconds``; ``result`` is ``done`` or ``failed``."""
        ...


@dataclass(frozen=True, kw_only=True)
class ReconcileLoop(Generic[K]):
    """N workers on one queue. ``kind_of`` names a key in metrics."""

    queue: WorkQueue[K]
    reconcile: Callable[[K], Awaitable[Delay]]
    kind_of: Callable[[K], str]
    meter: LoopMeter
    workers: int = 8

    async def run(self) -> None:
        """Work until the queue is closed (returns) or the task is canceled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.workers):
                group.create_task(self._work(), name=f"worker-{number}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.take()
            except QueueClosed:
                return
            await self._reconcile(key)

    async def _reconcile(self, key: K) -> None:
        started = self.queue.timer.time()
        try:
            answer = await self.reconcile(key)
        except Exception as error:
            delay = self.queue.failed(key)
            self._count(key, "failed", started)
            logger.warning(
                "reconcile failed, trying again: %s",
                str(error) or type(error).__name__,
                exc_info=_unexpected(error),
                extra={"key": str(key), "failures": self.queue.failures(key), "retryAfterSeconds": round(delay, 3)},
            )
        else:
            self.queue.done(key, answer.after)
            self._count(key, "done", started)
            logger.debug("reconciled", extra={"key": str(key), "afterSeconds": answer.after})

    def _count(self, key: K, result: str, started: float) -> None:
        self.meter.reconcile_time(self.kind_of(key), result, self.queue.timer.time() - started)


def _unexpected(error: Exception) -> bool:
    """Return whether the stack adds to the message: faults of the network and our own sentences explain themselves."""
    return not isinstance(error, OSError | TimeoutError | SkipstoneError)

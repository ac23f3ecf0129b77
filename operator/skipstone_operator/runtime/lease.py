"""The Lease that lets one operator work at a time.

Acquired by ``__main__`` before anything is watched, kept until the end. It saves work; correctness does not rest on
it: every write carries a resourceVersion and every commit proves itself in the table.
Expiry is judged by the local monotonic clock only, so clocks that disagree do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

logger = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Somebody else holds the Lease, or it could not be renewed in time: stop working at once."""


@dataclass(frozen=True, kw_only=True)
class LeaseRecord:
    """A Lease as stored. ``holder`` empty is free; ``version`` is the resourceVersion of the read."""

    holder: str
    duration_seconds: int
    renewed: datetime
    acquired: datetime
    transitions: int = 0
    version: str = ""


class LeaseStore(Protocol):
    """Where the Lease is kept. Faults of the network are raised as OSError."""

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is, or None when there is none yet."""
        ...

    async def create(self, record: LeaseRecord) -> LeaseRecord | None:
        """The Lease as stored, or None when somebody else was faster."""
        ...

    async def replace(self, record: LeaseRecord) -> LeaseRecord | None:
        """The Lease as stored, or None when it changed since ``record.version``."""
        ...


@dataclass(frozen=True, kw_only=True)
class LeaseTiming:
    """Seconds. ``give_up`` without a renewal the holder stops, well before ``duration`` frees the Lease."""

    duration: int = 15
    renew: float = 5.0
    give_up: float = 10.0
    retry: float = 2.0


@dataclass(kw_only=True)
class Lease:
    """One candidate. ``now`` is UTC for the record, ``time`` is monotonic for judging."""

    store: LeaseStore
    identity: str
    now: Callable[[], datetime]
    time: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    timing: LeaseTiming = LeaseTiming()
    _held: LeaseRecord | None = None
    _renewed_at: float = 0.0
    _watched: tuple[str, str, float] | None = None

    @property
    def is_held(self) -> bool:
        """Return whether we may work now."""
        return self._held is not None and self.time() - self._renewed_at < self.timing.duration

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        waiting_for = None
        while not await self._try_acquire():
            if self._watched and self._watched[0] != waiting_for:
                waiting_for = self._watched[0]
                logger.info("waiting for the lease", extra={"holder": waiting_for})
            await self.sleep(self.timing.retry)
        logger.info("lease acquired", extra={"holder": self.identity})

    async def keep(self) -> None:
        """Renew for ever, sooner again after a fault. Raises LeaseLost."""
        renewed = True
        while True:
            await self.sleep(self.timing.renew if renewed else self.timing.retry)
            renewed = await self._renew()

    async def release(self) -> None:
        """Free the Lease for the next one, if it is ours; a fault is logged, the Lease then expires by itself."""
        if self._held is None:
            return
        record, self._held = replace(self._held, holder="", renewed=self.now()), None
        try:
            await self.store.replace(record)
        except OSError as error:
            logger.warning("lease not released, it expires in %d s: %s", self.timing.duration, error)

    async def _try_acquire(self) -> bool:
        started = self.time()
        try:
            current = await self.store.read()
            if current is None:
                stored = await self.store.create(self._fresh(transitions=0, version=""))
            elif self._is_free(current):
                stored = await self.store.replace(self._fresh(current.transitions + 1, current.version))
            else:
                return False
        except OSError as error:
            logger.warning("lease could not be read or taken: %s", str(error) or type(error).__name__)
            return False
        return self._took(stored, started)

    async def _renew(self) -> bool:
        started = self.time()
        held, remaining = self._held, self._renewed_at + self.timing.give_up - started
        if held is None or remaining <= 0:
            raise self._lost(f"not renewed for {self.timing.give_up:g} s")
        try:
            async with asyncio.timeout(remaining):
                stored = await self.store.replace(replace(held, renewed=self.now()))
                if stored is None:
                    await self._reread()
        except OSError as error:
            logger.warning("lease not renewed: %s", str(error) or type(error).__name__)
            if self.time() - self._renewed_at >= self.timing.give_up:
                raise self._lost(f"not renewed for {self.timing.give_up:g} s") from error
            return False
        return self._took(stored, started)

    async def _reread(self) -> None:
        current = await self.store.read()
        if current is None or current.holder != self.identity:
            raise self._lost(f"held by {current.holder or 'nobody'}" if current else "deleted")
        self._held = current

    def _took(self, stored: LeaseRecord | None, started: float) -> bool:
        if stored is None:
            return False
        self._held, self._renewed_at = stored, started
        return True

    def _is_free(self, current: LeaseRecord) -> bool:
        if current.holder in ("", self.identity):
            return True
        if self._watched is None or self._watched[:2] != (current.holder, current.version):
            self._watched = (current.holder, current.version, self.time())
        return self.time() - self._watched[2] >= current.duration_seconds

    def _fresh(self, transitions: int, version: str) -> LeaseRecord:
        now = self.now()
        return LeaseRecord(
            holder=self.identity,
            duration_seconds=self.timing.duration,
            renewed=now,
            acquired=now,
            transitions=transitions,
            version=version,
        )

    def _lost(self, why: str) -> LeaseLost:
        self._held = None
        return LeaseLost(f"the lease is lost: {why}")

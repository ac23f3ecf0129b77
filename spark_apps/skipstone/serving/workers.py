"""Threads that plan: so many at once, so many that wait, and each caller only for so long.

Whoever finds no place gets 503 at once: a queue that grows only makes everybody late. Must not know what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from threading import Lock
from typing import Final, TypeVar

from cachetools import LRUCache

from skipstone.serving.answers import unavailable

#: How many wait for each thread.
_WAITING: Final = 8
Result = TypeVar("Result")


class PlanWorkers:
    """``threads`` that work at once. ``seconds``: until a caller gives up, whatever he waits for; a thread that is
    working then goes on until it ends.
    """

    def __init__(self, threads: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="plan")
        self._most = threads * (1 + _WAITING)
        self._seconds = seconds
        self.pending = 0

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """A block in which a request is answered. Raises Refused (503) when too many are, or it takes too long."""
        if self.pending >= self._most:
            message = f"{self.pending} requests are running or waiting already: try again, or add replicas"
            raise unavailable(message, outcome="overloaded")
        self.pending += 1
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            message = f"the answer was not ready within {self._seconds:g} s: try again, or narrow the filter"
            raise unavailable(message, outcome="late") from None
        finally:
            self.pending -= 1

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return the result of ``work`` in a thread; within ``admitted``."""
        return await asyncio.wrap_future(self._pool.submit(work))

    def close(self) -> None:
        """Wait for what is running."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class FirstAlone:
    """Lets the first of several threads do alone what later ones find done, such as reading a table's manifests.

    Without it, all callers of a table that was just committed to would read the same files at once.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._done: LRUCache[Hashable, bool] = LRUCache(most)
        self._locks: dict[Hashable, Lock] = {}
        self._guard = Lock()

    @contextmanager
    def entered(self, key: Hashable) -> Iterator[None]:
        """A block that runs alone for ``key`` until it has ended well once."""
        with self._guard:
            lock = None if key in self._done else self._locks.setdefault(key, Lock())
        if lock is None:
            yield
            return
        with lock:
            is_first = not self._is_done(key)
            if is_first:
                try:
                    yield
                    self._end(key, is_done=True)
                except BaseException:  # the next one tries; nothing is kept of keys that never end well
                    self._end(key, is_done=False)
                    raise
        if not is_first:
            yield

    def _is_done(self, key: Hashable) -> bool:
        with self._guard:
            return key in self._done

    def _end(self, key: Hashable, *, is_done: bool) -> None:
        with self._guard:
            self._locks.pop(key, None)
            if is_done:
                self._done[key] = True

"""Where requests are carried out: one after the other, in a thread of its own, each in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from skipstone_local.server.judging import Judge
from skipstone_local.server.kinds.served import Catalog
from skipstone_local.server.writing.session import ApiSession
from skipstone_local.store import Store

T = TypeVar("T")


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="skipstone-local-store")


@dataclass
class Desk:
    """The store with what judges, and the thread that works on them."""

    store: Store
    judge: Judge
    catalog: Catalog
    token: str
    pool: ThreadPoolExecutor = field(default_factory=_one_thread)

    async def run(self, work: Callable[[ApiSession], T]) -> T:
        """Do ``work`` in a transaction; it is committed when this returns. Raises what ``work`` raises."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, self.do, work)

    def do(self, work: Callable[[ApiSession], T]) -> T:
        """Do ``work`` in a transaction, in this thread."""
        with self.store.transaction() as transaction:
            return work(ApiSession(transaction, self.catalog, self.judge, self.token))

"""Small work on many files: at the same time where storage answers late, one after the other where it answers at once.

Threads that do not wait for anything hinder each other in Python: reading what a local disk or memory holds takes
several times as long with them. Used by whoever reads or deletes what metadata names, and by bloom filters. Work must
not come back here: all of it shares a few threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

#: Files that are asked for at the same time.
AT_ONCE = 16
#: How long one file after the other is asked for before it is judged how fast the answers come, ...
PATIENCE_SECONDS = 0.02
#: ... and how long an answer may take that is not worth a thread.
_SOON_SECONDS = 0.001
#: Cores that this process may use.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(
    work: Callable[[Item], Result], items: Sequence[Item], *, patience_seconds: float = PATIENCE_SECONDS
) -> list[Result]:
    """Return the results of ``work`` in the order of items. Raises as ``work`` does, when all threads are done."""
    begin, results = time.monotonic(), list[Result]()
    for number, item in enumerate(items):
        passed = time.monotonic() - begin
        if passed >= patience_seconds and passed >= number * _SOON_SECONDS:
            return results + _in_threads(work, items[number:])
        results.append(work(item))
    return results


def _in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    begun = [_threads().submit(work, item) for item in items]
    failed = [error for future in begun if (error := future.exception()) is not None]
    if failed:
        raise failed[0]
    return [future.result() for future in begun]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, "files")

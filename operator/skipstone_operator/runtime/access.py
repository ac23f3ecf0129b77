"""Namespaces that may not be watched yet.

A namespace that is deleted, or whose Role is not bound yet, must not keep the operator from the others: it is left
out at start, and when access is given the process ends to start again with it. Called by ``__main__``; knows no API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

logger = logging.getLogger(__name__)

Check = Callable[[str], Awaitable[str | None]]


class AccessGained(Exception):
    """A namespace can be watched that could not before: start again."""


async def split_by_access(namespaces: Sequence[str], check: Check) -> tuple[tuple[str, ...], dict[str, str]]:
    """The namespaces that ``check`` has no objection to, and the objections to the others."""
    objections = {namespace: await check(namespace) for namespace in namespaces}
    watched = tuple(namespace for namespace, objection in objections.items() if objection is None)
    return watched, {namespace: text for namespace, text in objections.items() if text is not None}


async def wait_for_access(
    barred: Sequence[str],
    check: Check,
    *,
    interval: float = 30.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Ask every ``interval`` seconds; raises AccessGained. Returns at once when nothing is barred."""
    while barred:
        await sleep(interval)
        for namespace in barred:
            try:
                objection = await check(namespace)
            except OSError as error:
                logger.debug("access to namespace %s could not be checked: %s", namespace, error)
                continue
            if objection is None:
                raise AccessGained(f"namespace {namespace} can be watched now: starting again")

"""Access to namespaces: what may not be watched is left out, and awaited."""

from __future__ import annotations

import asyncio

import pytest
from skipstone_operator.runtime.access import AccessGained, split_by_access, wait_for_access

from tests.unit.runtime_doubles import VirtualTime


def test_namespaces_are_split_by_objection() -> None:
    async def check(namespace: str) -> str | None:
        return f"{namespace} is barred" if namespace == "sea" else None

    assert asyncio.run(split_by_access(["air", "sea", "land"], check)) == (("air", "land"), {"sea": "sea is barred"})


def test_nothing_barred_is_nothing_to_wait_for() -> None:
    async def check(namespace: str) -> str | None:
        raise AssertionError(namespace)

    asyncio.run(wait_for_access((), check))


def test_access_that_is_given_later_asks_for_a_new_start() -> None:
    time = VirtualTime()

    async def check(namespace: str) -> str | None:
        return None if namespace == "sea" and time.now >= 90 else "barred"

    with pytest.raises(AccessGained, match="namespace sea can be watched now"):
        asyncio.run(wait_for_access(("land", "sea"), check, sleep=time.sleep))
    assert time.now == 90


def test_a_check_that_fails_is_made_again() -> None:
    time = VirtualTime()

    async def check(namespace: str) -> str | None:
        if time.now < 60:
            raise ConnectionError("refused")
        return None

    with pytest.raises(AccessGained):
        asyncio.run(wait_for_access(("sea",), check, sleep=time.sleep))
    assert time.now == 60

"""Threads that need the files of a table while one of them asks for other credentials."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from skipstone.storage.buckets.vending import EXPIRES_AT, Vending

SECONDS = 60


def credentials(end: float) -> Mapping[str, str]:
    return {EXPIRES_AT: str(int(end * 1000))}


def test_nobody_waits_for_other_credentials_while_those_that_are_there_are_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    asked, answered = Event(), Event()
    taken: list[Mapping[str, str]] = []

    def ask() -> Mapping[str, str]:
        asked.set()
        answered.wait(SECONDS)
        return credentials(now + 3600)

    vending = Vending(ask, credentials(now + 3600))
    now += 1801
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(vending.renew, taken.append)
        assert asked.wait(SECONDS)
        vending.renew(taken.append)
        assert taken == []
        answered.set()
        asking.result()
    assert taken == [credentials(now + 3600)]


def test_credentials_that_ended_are_used_by_nobody_once_others_came(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    asked, answered, waits = Event(), Event(), Event()
    taken: list[Mapping[str, str]] = []

    def ask() -> Mapping[str, str]:
        asked.set()
        answered.wait(SECONDS)
        return credentials(now + 3600)

    def wait() -> int:
        waits.set()
        vending.renew(taken.append)
        return len(taken)

    vending = Vending(ask, credentials(now + 3600))
    now += 3601
    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(vending.renew, taken.append)
        assert asked.wait(SECONDS)
        waiting = pool.submit(wait)
        assert waits.wait(SECONDS)
        answered.set()
        asking.result()
        assert waiting.result() == 1
    assert len(taken) == 1

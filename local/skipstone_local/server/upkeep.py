"""What the server does by itself: it removes what lost its owners, and Events of long ago."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta

from skipstone_local.server.answers.refusals import Refusal
from skipstone_local.server.desk import Desk
from skipstone_local.server.requests.calls import ApiTarget
from skipstone_local.server.writing.creating import create
from skipstone_local.server.writing.deleting import release
from skipstone_local.server.writing.session import ApiSession
from skipstone_local.store import JsonObject, ObjectPlace

#: Seconds between two looks for objects without owners, and between two for Events that have had their time.
COLLECT_SECONDS = 1.0
EXPIRE_SECONDS = 600.0
EVENTS_LIFETIME = timedelta(hours=1)
FIRST_NAMESPACE = "default"
_log = logging.getLogger(__name__)


def prepare(session: ApiSession) -> None:
    """Create what every cluster has."""
    if session.get(ObjectPlace("namespaces", "", FIRST_NAMESPACE)) is None:
        create(session, ApiTarget(session.catalog.of_resource("namespaces"), "", FIRST_NAMESPACE), {})


async def keep_up(desk: Desk) -> None:
    """Look after the store until canceled."""
    rounds = round(EXPIRE_SECONDS / COLLECT_SECONDS)
    while True:
        for _ in range(rounds):
            await _try(desk, collect)
            await asyncio.sleep(COLLECT_SECONDS)
        await _try(desk, expire)


async def _try(desk: Desk, work: Callable[[ApiSession], None]) -> None:
    try:
        await desk.run(work)
    except (Refusal, sqlite3.Error):
        _log.exception("the store is looked after again later")


def collect(session: ApiSession) -> None:
    """Remove objects whose owners are gone."""
    for place in session.transaction.ownerless():
        release(session, place)


def expire(session: ApiSession) -> None:
    """Remove Events that nothing was added to for an hour."""
    oldest = session.now - EVENTS_LIFETIME
    for event in list(session.transaction.select("events")):
        if (seen := _last_seen(event)) is not None and seen < oldest:
            session.transaction.remove(ObjectPlace("events", event["metadata"]["namespace"], event["metadata"]["name"]))


def _last_seen(event: JsonObject) -> datetime | None:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event["metadata"]["creationTimestamp"])
    try:
        return datetime.fromisoformat(next(time for time in times if time))
    except ValueError:
        return None

"""What changed, in which order: the log that watches and lists of an earlier moment read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]
#: The log is cut when it has this many changes more than are kept, or holds more characters.
KEPT = 10_000
SLACK = 1_000
MOST_CHARACTERS = 128 * 1024 * 1024


class Compacted(Exception):
    """The log no longer reaches back to that version."""


@dataclass(frozen=True, order=True)
class ObjectPlace:
    """Where an object is. ``resource``: the plural and the group, such as tables.skipstone.dev; pods has none."""

    resource: str
    namespace: str
    name: str


@dataclass(frozen=True)
class StoredChange:
    """One write: the object before it (None: created) and after it (None: removed)."""

    version: int
    place: ObjectPlace
    before: JsonObject | None
    after: JsonObject | None


def add_change(
    connection: sqlite3.Connection, version: int, place: ObjectPlace, before: str | None, after: str | None
) -> None:
    """Write one change down, and cut the log now and then."""
    size = len(before or "") + len(after or "")
    row = (version, place.resource, place.namespace, place.name, before, after, size)
    connection.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    if version % SLACK == 0:
        _compact(connection, version)


def list_changes(connection: sqlite3.Connection, resource: str, namespace: str, since: int) -> list[StoredChange]:
    """The changes after version ``since``, oldest first; of all namespaces for "". Raises Compacted."""
    check_reach(connection, since)
    query = "SELECT version, namespace, name, before, after FROM changes WHERE resource = ? AND version > ?"
    arguments: list[str | int] = [resource, since]
    if namespace:
        query += " AND namespace = ?"
        arguments.append(namespace)
    return [
        StoredChange(version, ObjectPlace(resource, within, name), _parsed(before), _parsed(after))
        for version, within, name, before, after in connection.execute(f"{query} ORDER BY version", arguments)
    ]


def check_reach(connection: sqlite3.Connection, version: int) -> None:
    """Raise Compacted when changes after ``version`` are no longer in the log."""
    if version < read_counter(connection, "compacted"):
        raise Compacted


def read_counter(connection: sqlite3.Connection, name: str) -> int:
    """The value of a counter."""
    (value,) = connection.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return int(value)


def cut_log(connection: sqlite3.Connection, version: int) -> None:
    """Forget all changes up to ``version``: whoever watches from before it must list again."""
    connection.execute("DELETE FROM changes WHERE version <= ?", (version,))
    connection.execute("UPDATE counters SET value = max(value, ?) WHERE name = 'compacted'", (version,))


def _compact(connection: sqlite3.Connection, version: int) -> None:
    (characters,) = connection.execute("SELECT total(size) FROM changes").fetchone()
    kept = KEPT
    if characters > MOST_CHARACTERS:
        kept = min(KEPT, (version - read_counter(connection, "compacted")) // 2)
    cut_log(connection, version - kept)


def _parsed(text: str | None) -> JsonObject | None:
    return None if text is None else json.loads(text)


def read_moment(
    connection: sqlite3.Connection, resource: str, namespace: str, moment: int, after: ObjectPlace | None
) -> Iterator[str]:
    """The bodies of all objects as they were at version ``moment``, in order of places, those behind ``after``."""
    check_reach(connection, moment)
    query = """
    SELECT body FROM (
        SELECT namespace, name, body FROM objects WHERE resource = :resource AND version <= :moment
        UNION ALL
        SELECT namespace, name, before AS body FROM (
            SELECT namespace, name, before, min(version) FROM changes
            WHERE resource = :resource AND version > :moment GROUP BY namespace, name
        ) WHERE before IS NOT NULL
    ) WHERE (:namespace = '' OR namespace = :namespace) AND (namespace, name) > (:after_namespace, :after_name)
    ORDER BY namespace, name
    """
    arguments = {
        "resource": resource,
        "namespace": namespace,
        "moment": moment,
        "after_namespace": after.namespace if after else "",
        "after_name": after.name if after else "",
    }
    for (body,) in connection.execute(query, arguments):
        yield body

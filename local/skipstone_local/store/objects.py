"""Objects and their versions: a transaction reads and writes, and whoever listens is told what a commit touched."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from skipstone_local.store import changes
from skipstone_local.store.changes import JsonObject, ObjectPlace, StoredChange
from skipstone_local.store.database import connect

#: Told after each commit: the resources that it changed.
Listener = Callable[[frozenset[str]], None]


class Store:
    """All objects of a root folder. One transaction at a time, of any thread."""

    def __init__(self, path: Path) -> None:
        """Open the file at ``path``. Raises ForeignLayout, OSError."""
        self._connection = connect(path)
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """ApiCall ``listener`` after every commit, in the thread that committed."""
        self._listeners.append(listener)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Begin; at the end commit, or take everything back: after an exception, and when it was discarded."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(self._connection)
            try:
                yield transaction
                self._connection.execute("ROLLBACK" if transaction.discarded else "COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        if transaction.touched and not transaction.discarded:
            for listener in self._listeners:
                listener(frozenset(transaction.touched))

    def close(self) -> None:
        """Close the file, when nobody is in a transaction."""
        with self._lock:
            self._connection.close()


@dataclass
class Transaction:
    """Reads and writes that happen together. ``discarded``: set it to take back what was written."""

    connection: sqlite3.Connection
    touched: set[str] = field(default_factory=set)
    discarded: bool = False

    @property
    def version(self) -> int:
        """The version of the last write."""
        return changes.read_counter(self.connection, "version")

    def get(self, place: ObjectPlace) -> JsonObject | None:
        """The object, or None."""
        body = self._body(place)
        return None if body is None else json.loads(body)

    def select(
        self, resource: str, namespace: str = "", *, after: ObjectPlace | None = None, moment: int | None = None
    ) -> Iterator[JsonObject]:
        """Objects in order of namespace and name, those behind ``after``; as they were at version ``moment``.

        Raises Compacted when the log no longer reaches back to that moment.
        """
        version = self.version if moment is None else moment
        bodies = changes.read_moment(self.connection, resource, namespace, version, after)
        yield from (json.loads(body) for body in bodies)

    def put(self, place: ObjectPlace, obj: JsonObject) -> JsonObject:
        """Store the object; what is stored, which has a new resourceVersion and the uid that ``obj`` has."""
        before, version = self._body(place), self._next_version()
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        body = _text(stored)
        self.connection.execute(
            "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (resource, namespace, name) "
            "DO UPDATE SET uid = excluded.uid, version = excluded.version, body = excluded.body",
            (place.resource, place.namespace, place.name, stored["metadata"]["uid"], version, body),
        )
        self._own(place, stored["metadata"].get("ownerReferences") or ())
        self._note(version, place, before, body)
        return stored

    def remove(self, place: ObjectPlace) -> None:
        """Remove the object, if it is there."""
        before = self._body(place)
        if before is None:
            return
        where = (place.resource, place.namespace, place.name)
        self.connection.execute("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", where)
        self._own(place, ())
        self._note(self._next_version(), place, before, None)

    def changes(self, resource: str, namespace: str, since: int) -> list[StoredChange]:
        """The changes after version ``since``, oldest first. Raises Compacted."""
        return changes.list_changes(self.connection, resource, namespace, since)

    def find_uid(self, uid: str) -> ObjectPlace | None:
        """Where the object with this uid is, or None."""
        row = self.connection.execute("SELECT resource, namespace, name FROM objects WHERE uid = ?", (uid,)).fetchone()
        return ObjectPlace(*row) if row else None

    def dependents(self, uid: str) -> list[ObjectPlace]:
        """The objects that name the object with this uid as an owner."""
        query = "SELECT resource, namespace, name FROM owners WHERE owner = ? ORDER BY resource, namespace, name"
        return [ObjectPlace(*row) for row in self.connection.execute(query, (uid,))]

    def ownerless(self) -> list[ObjectPlace]:
        """Objects of which an owner does not exist."""
        query = """
        SELECT DISTINCT resource, namespace, name FROM owners
        WHERE NOT EXISTS (SELECT 1 FROM objects WHERE objects.uid = owners.owner)
        ORDER BY resource, namespace, name
        """
        return [ObjectPlace(*row) for row in self.connection.execute(query)]

    def places_in(self, namespace: str) -> list[ObjectPlace]:
        """Everything in a namespace."""
        query = "SELECT resource, namespace, name FROM objects WHERE namespace = ? ORDER BY resource, name"
        return [ObjectPlace(*row) for row in self.connection.execute(query, (namespace,))]

    def count(self, resource: str, namespace: str) -> int:
        """How many objects of a resource a namespace has."""
        query = "SELECT count(*) FROM objects WHERE resource = ? AND namespace = ?"
        (number,) = self.connection.execute(query, (resource, namespace)).fetchone()
        return int(number)

    def compact(self) -> None:
        """Forget every change so far."""
        changes.cut_log(self.connection, self.version)

    def _body(self, place: ObjectPlace) -> str | None:
        where = (place.resource, place.namespace, place.name)
        query = "SELECT body FROM objects WHERE resource = ? AND namespace = ? AND name = ?"
        row = self.connection.execute(query, where).fetchone()
        return row[0] if row else None

    def _next_version(self) -> int:
        self.connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'version'")
        return self.version

    def _own(self, place: ObjectPlace, references: Iterable[JsonObject]) -> None:
        where = (place.resource, place.namespace, place.name)
        self.connection.execute("DELETE FROM owners WHERE resource = ? AND namespace = ? AND name = ?", where)
        rows = [(reference["uid"], *where) for reference in references if reference.get("uid")]
        self.connection.executemany("INSERT OR IGNORE INTO owners VALUES (?, ?, ?, ?)", rows)

    def _note(self, version: int, place: ObjectPlace, before: str | None, after: str | None) -> None:
        changes.add_change(self.connection, version, place, before, after)
        self.touched.add(place.resource)


def _text(obj: JsonObject) -> str:
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False)

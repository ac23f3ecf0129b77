"""Random histories of a table, and how each tool tells of them: messages in any order, with the places that order them.

Used by the random tests of feeds only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone_core.contract.requests import ChangeFormat

from tests.unit.feed_bed import Row

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "a", StringType()),
    NestedField(3, "b", StringType()),
)
PLACEHOLDER = "__debezium_unavailable_value"
State = dict[int, Row]


@dataclass(frozen=True)
class Event:
    """One change of a history. ``commit``: number of its transaction; ``lsn``: its place in the log."""

    op: str
    before: Row | None
    after: Row | None
    commit: int
    lsn: int


@dataclass
class History:
    """A table that changes, and the events that tell of it."""

    random: Random
    state: State = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    commit: int = 0

    def transaction(self) -> None:
        """Some changes; their places in the log may lie before those of earlier transactions."""
        self.commit += 1
        size = self.random.randint(1, 4)
        for lsn in sorted(self.random.sample(range(max(0, self.commit - 3) * 100, self.commit * 100), size)):
            op = self.random.choice("cccuuuuuddkrt" if self.random.random() < 0.2 else "cuuudk")
            before = self.random.choice(sorted(self.state)) if self.state else None
            for event in self._changes(op, before, lsn):
                self.events.append(event)
                self._replay(event)

    def _changes(self, op: str, number: int | None, lsn: int) -> Iterator[Event]:
        free = self.random.choice([n for n in range(80) if n not in self.state][:5])
        if op == "t":
            yield Event("t", None, None, self.commit, lsn)
        elif op == "c" or number is None:
            yield Event("c", None, self.row(free), self.commit, lsn)
        elif op == "d":
            yield Event("d", self.state[number], None, self.commit, lsn)
        elif op == "k":
            yield Event("u", self.state[number], self.row(free), self.commit, lsn)
        elif op == "r":
            yield Event("r", None, self.state[number], self.commit, lsn)
        else:
            yield Event("u", None, self.state[number] | self._some(), self.commit, lsn)

    def row(self, number: int) -> Row:
        """Some row with this key."""
        return {"id": number, "a": self.random.choice("xyz"), "b": self.random.choice(["p", None])}

    def _some(self) -> Row:
        return {name: value for name, value in self.row(0).items() if name != "id" and self.random.random() < 0.5}

    def _replay(self, event: Event) -> None:
        if event.op == "t":
            self.state.clear()
        if event.before is not None:
            self.state.pop(event.before["id"], None)
        if event.after is not None:
            self.state[event.after["id"]] = dict(event.after)


def debezium(source: Callable[[Event], Row]) -> Callable[[list[Event], State, Random], list[str]]:
    """Messages in any order: their places tell the right one. Some values are left out as unchanged."""

    def tell(events: list[Event], table: State, random: Random) -> list[str]:
        known = dict(table)
        messages = []
        for event in events:
            after = dict(event.after) if event.after else None
            if after and event.op == "u" and event.before is None:
                same = [name for name in ("a", "b") if known.get(after["id"], {}).get(name) == after[name] is not None]
                after |= {name: PLACEHOLDER for name in same if random.random() < 0.5}
            if event.op == "t":
                known.clear()
            if event.before:
                known.pop(event.before["id"], None)
            if event.after:
                known[event.after["id"]] = event.after
            told = {"connector": "?", "name": "s", "db": "d", "table": "t", "ts_ms": 1, "snapshot": "false"}
            told |= source(event)
            messages.append(json.dumps({"op": event.op, "before": event.before, "after": after, "source": told}))
        random.shuffle(messages)
        return messages

    return tell


def by_sequence(event: Event) -> Row:
    """A commit is behind all changes of its transaction."""
    sequence = json.dumps([str((event.commit - 1) * 100), str(event.lsn)])
    return {"connector": "postgresql", "schema": "public", "lsn": event.lsn, "sequence": sequence,
            "snapshot": "false"}  # fmt: skip


def by_binlog(event: Event) -> Row:
    return {"connector": "mysql", "server_id": 1, "file": f"bin.{event.commit:06}", "pos": 4, "row": event.lsn}


def maxwell(events: list[Event], _table: State, random: Random) -> list[str]:
    kinds = {"c": "insert", "u": "update", "d": "delete", "r": "bootstrap-insert"}
    messages = []
    for event in events:
        old = None
        if event.op == "u" and event.before and event.after:
            old = {name: value for name, value in event.before.items() if value != event.after[name]}
        place = f"bin.{event.commit:06}:{event.lsn}"
        message = {"type": kinds[event.op], "database": "d", "table": "t", "ts": 1, "position": place,
                   "data": event.after or event.before, **({"old": old} if old is not None else {})}  # fmt: skip
        messages.append(json.dumps(message))
    random.shuffle(messages)
    return messages


def wal2json(events: list[Event], table: State, random: Random) -> list[str]:
    """Messages in any order; some values that an update leaves as they are are not there."""
    known = dict(table)
    messages = []
    for event in events:
        told: Row = {"action": _ACTIONS[event.op], "lsn": f"0/{event.commit * 1000 + event.lsn % 1000:X}",
                     "schema": "s", "table": "t", "pk": ["id"]}  # fmt: skip
        if event.after:
            same = known.get(event.after["id"], {}) if event.op == "u" and event.before is None else {}
            left_out = {
                name for name in ("a", "b") if same.get(name, "") == event.after[name] and random.random() < 0.5
            }
            told["columns"] = _typed({name: value for name, value in event.after.items() if name not in left_out})
        if event.op in "ud" and (old := event.before or event.after):
            told["identity"] = _typed({"id": old["id"]})
        _remember(known, event)
        messages.append(json.dumps(told))
    random.shuffle(messages)
    return messages


def _remember(known: State, event: Event) -> None:
    if event.op == "t":
        known.clear()
    if event.before:
        known.pop(event.before["id"], None)
    if event.after:
        known[event.after["id"]] = event.after


def _typed(row: Row) -> list[Row]:
    return [{"name": name, "type": "bigint" if name == "id" else "text", "value": row[name]} for name in row]


_ACTIONS = {"r": "I", "c": "I", "u": "U", "d": "D", "t": "T"}
TOOLS = {
    "postgresql": (ChangeFormat.DEBEZIUM, debezium(by_sequence), True),
    "mysql": (ChangeFormat.DEBEZIUM, debezium(by_binlog), True),
    "maxwell": (ChangeFormat.MAXWELL, maxwell, False),
    "wal2json": (ChangeFormat.WAL2JSON, wal2json, True),
}

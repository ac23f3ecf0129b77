"""A random history of tables in PostgreSQL: transactions that lie across one another, and altered tables.

Used by the soak of Debezium.
"""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any

import psycopg2
from pyiceberg.types import BinaryType, DecimalType, DoubleType, FloatType, IcebergType, ListType, UUIDType

from tests.spark import debezium_odd
from tests.spark.postgres import PASSWORD, USER
from tests.spark.postgres_columns import Column
from tests.spark.postgres_tables import (
    ADDED,
    ALTERED,
    ALTERS,
    BY_NOTHING,
    KEYLESS,
    LATE_AGAIN,
    LATE_FULL,
    SHAPES,
    TYPES,
    Key,
    Shape,
)

#: Each of its rows is a mark.
MARKER = "marker"
OPEN_TRANSACTIONS = 3
#: object_not_in_prerequisite_state
_NO_IDENTITY = "55000"
Row = Mapping[str, Any]


@dataclass
class State:
    """What a table has. ``columns``: besides its key; ``present``: numbers of rows; ``initial``: not changed since
    the first mark.

    ``equal``: how often a table without key has each row, and ``collapsed``: rows of which one of several went.
    """

    shape: Shape
    columns: tuple[Column, ...]
    present: set[int] = field(default_factory=set)
    initial: set[int] = field(default_factory=set)
    equal: Counter[Key] = field(default_factory=Counter)
    collapsed: set[Key] = field(default_factory=set)


@dataclass
class _Transaction:
    """One that is open: its connection, for each row whether it was there and initial before, and equal rows."""

    connection: Any
    had: dict[tuple[str, int], tuple[bool, bool]] = field(default_factory=dict)
    equal: Counter[Key] | None = None


@dataclass(frozen=True)
class Seen:
    """A table at a mark: its rows by key. ``initial``: keys of rows of snapshots only; ``collapsed``: see State."""

    columns: tuple[Column, ...]
    rows: Mapping[Key, Row]
    initial: frozenset[Key]
    collapsed: frozenset[Key]


class History:
    """Changes SHAPES by statements that ``random`` draws. ``counts``: of what was done; ``version``: of the server."""

    def __init__(self, port: int, random: Random) -> None:
        """Make the tables, with rows. Call ``close`` at the end."""
        self.random = random
        self.counts: Counter[str] = Counter()
        self.states = {shape.name: State(shape, shape.columns) for shape in SHAPES}
        self.marks = 0
        self._open = [_Transaction(connect(port)) for _ in range(OPEN_TRANSACTIONS)]
        self.version: int = self._open[0].connection.info.server_version
        self._run(*TYPES, f"create table {MARKER} (id int primary key)", *(s for one in SHAPES for s in one.statements))
        self._run(*debezium_odd.statements())
        self.insert_odd(1)
        for state in self.states.values():
            for _ in range(state.shape.ids // 3):
                self._insert(self._open[0], state)
        self._commit(self._open[0])

    def close(self) -> None:
        """Close the connections."""
        for transaction in self._open:
            transaction.connection.close()

    def run(self, transactions: int) -> None:
        """Commit or roll back so many, which lie across one another; some are open afterwards."""
        done = 0
        while done < transactions:
            transaction = self.random.choice(self._open)
            self.counts["statements"] += 1
            self._savepoint(transaction) if self.random.random() < 0.05 else self._change(transaction)
            if self.random.random() < 0.35:
                self._commit(transaction) if self.random.random() < 0.92 else self._roll_back(transaction)
                done += 1

    def alter(self) -> None:
        """Commit what is open and run the next of ALTERS, the first behind a mark, and in their midst LATE_FULL."""
        self._settle()
        if self.marks == len(ALTERS) // 2 + 1:
            self._run(LATE_FULL)
        if self.marks <= len(ALTERS):
            self._run(*ALTERS[self.marks - 1])
            self.counts["altered tables"] += 1
            state = self.states[ALTERED.name]
            state.initial = set()
            with self._open[0].connection.cursor() as cursor:
                cursor.execute(
                    "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s::regclass "
                    "and attnum > 1 and not attisdropped order by attnum",
                    (ALTERED.name,),
                )
                state.columns = tuple(_altered(name, sql) for name, sql in cursor.fetchall())

    def truncate(self) -> None:
        """Empty the tables that are truncated within a transaction that changes them before and after."""
        self._settle()
        first = self._open[0]
        emptied = [state for state in self.states.values() if state.shape.is_truncated]
        for state in emptied * 3:
            self._insert(first, state)
        self._execute(first, f"truncate {', '.join(state.shape.name for state in emptied)}", ())
        for state in emptied:
            state.present.clear()
            state.initial.clear()
        first.had.clear()
        for state in emptied * 20:
            self._insert(first, state)
        self._commit(first)

    def insert_odd(self, first: int) -> None:
        """Insert all odd values, with ids from ``first`` on."""
        self._settle()
        for sql, values in debezium_odd.inserts(first):
            self._execute(self._open[0], sql, values)
        self._commit(self._open[0])

    def mark(self) -> Mapping[str, Seen]:
        """Commit what is open, return all rows, and let every reader of the log know that this is a mark."""
        self._settle()
        if not self.marks:  # what was changed before a snapshot is told by it only
            for state in self.states.values():
                state.initial = set(state.present)
        seen = {name: self._seen(state) for name, state in self.states.items()}
        for shape in SHAPES:
            for part in shape.partitions:
                seen[part] = self._seen(self.states[shape.name], part)
        self.marks += 1
        self._run(f"insert into {MARKER} values ({self.marks})")
        if self.marks == len(ALTERS) // 2 + 2:
            self._run(LATE_AGAIN)
            self.states["late"].initial = set()
        return seen

    def _seen(self, state: State, table: str = "") -> Seen:
        shape = state.shape
        columns = (*shape.key, *state.columns)
        with self._open[0].connection as connection, connection.cursor() as cursor:
            shown = ", ".join(column.shown.format(column.name) for column in columns)
            cursor.execute(f"select {shown} from {table or shape.name}")
            names = [column.name for column in columns]
            found = [tuple(map(_plain, row)) for row in cursor.fetchall()]
            rows = {row[: len(shape.key)]: dict(zip(names, row, strict=True)) for row in found}
        initial = frozenset(map(shape.key_of, state.initial))
        return Seen(columns, rows, initial, frozenset(state.collapsed))

    def _settle(self) -> None:
        for transaction in self._open:
            self._commit(transaction)

    def _change(self, transaction: _Transaction) -> None:
        states = list(self.states.values())
        (state,) = self.random.choices(states, [one.shape.weight for one in states])
        flow = self.random.choices(("insert", "update", "move", "delete"), (30, 45, 10, 15))[0]
        if state.shape is KEYLESS:
            self._change_equal(state, flow)
        elif state.shape is BY_NOTHING and flow != "insert":
            self._try(transaction, state)
        elif flow == "insert" or not state.present:
            self._insert(transaction, state)
        elif flow == "update":
            self._update(transaction, state)
        elif flow == "move":
            self._move(transaction, state)
        else:
            self._delete(transaction, state)

    def _insert(self, transaction: _Transaction, state: State) -> None:
        if state.shape is KEYLESS:
            self._change_equal(state, "insert")
            return
        number = self._pick(transaction, state, present=False)
        if number is None:
            return
        columns = [column for column in state.columns if not column.generated]
        names = ", ".join([*state.shape.keys, *(column.name for column in columns)])
        marks = ", ".join([*("%s" for _ in state.shape.keys), *(f"%s::{column.sql}" for column in columns)])
        values = [*state.shape.key_of(number), *self._values(columns)]
        self._execute(transaction, f"insert into {state.shape.name} ({names}) values ({marks})", values)
        self._note(transaction, state, number, present=True)
        self.counts["inserts"] += 1

    def _update(self, transaction: _Transaction, state: State) -> None:
        number = self._pick(transaction, state, present=True)
        if number is None:
            return
        columns = [column for column in state.columns if not column.generated]
        few = self.random.sample(columns, min(len(columns), self.random.randint(0, 4)))
        untold = [column for column in columns if column.is_untold and column not in few]
        self._set(transaction, state, number, [*few, *untold])
        self._note(transaction, state, number, present=True)
        self.counts["updates"] += 1

    def _move(self, transaction: _Transaction, state: State) -> None:
        """Change the key. By its key alone, PostgreSQL does not log large values that a row takes along."""
        old, new = (self._pick(transaction, state, present=present) for present in (True, False))
        if old is None or new is None:
            return
        columns = [column for column in state.columns if column.large]
        self._set(transaction, state, old, columns, state.shape.key_of(new))
        self._note(transaction, state, old, present=False)
        self._note(transaction, state, new, present=True)
        self.counts["changed keys"] += 1

    def _set(
        self, transaction: _Transaction, state: State, number: int, columns: Sequence[Column], new: Key = ()
    ) -> None:
        shape = state.shape
        sets = [f"{name} = %s" if new else f"{name} = {name}" for name in shape.keys]
        sets += [f"{column.name} = %s::{column.sql}" for column in columns]
        where = " and ".join(f"{name} = %s" for name in shape.keys)
        values = [*new, *self._values(columns), *shape.key_of(number)]
        self._execute(transaction, f"update {shape.name} set {', '.join(sets)} where {where}", values)

    def _delete(self, transaction: _Transaction, state: State) -> None:
        number = self._pick(transaction, state, present=True)
        if number is None:
            return
        where = " and ".join(f"{name} = %s" for name in state.shape.keys)
        self._execute(transaction, f"delete from {state.shape.name} where {where}", state.shape.key_of(number))
        self._note(transaction, state, number, present=False)
        self.counts["deletes"] += 1

    def _try(self, transaction: _Transaction, state: State) -> None:
        """Change a row without a replica identity, which PostgreSQL refuses while the table is published."""
        cursor = transaction.connection.cursor()
        cursor.execute("savepoint refused")
        try:
            cursor.execute(f"update {state.shape.name} set amount = 1 where id in (select id from by_nothing limit 1)")
        except psycopg2.Error as error:
            assert error.pgcode == _NO_IDENTITY, error
            self.counts["refused by PostgreSQL"] += 1
        cursor.execute("rollback to savepoint refused")

    def _change_equal(self, state: State, flow: str) -> None:
        """Change one of rows that may be equal. Only one transaction does: others would wait for it."""
        transaction = self._open[0]
        if transaction.equal is None:
            transaction.equal = Counter(state.equal)
        names = state.shape.keys
        drawn = state.shape.key_of(self.random.randrange(state.shape.ids))
        old = self.random.choice(sorted(+state.equal)) if +state.equal else None
        if flow == "insert" or old is None:
            self._execute(transaction, f"insert into {state.shape.name} values (%s, %s, %s)", drawn)
            state.equal[drawn] += 1
            return
        one = f"ctid = (select ctid from {state.shape.name} where {' and '.join(f'{n} = %s' for n in names)} limit 1)"
        if flow == "delete":
            self._execute(transaction, f"delete from {state.shape.name} where {one}", old)
        else:
            sets = ", ".join(f"{name} = %s" for name in names)
            self._execute(transaction, f"update {state.shape.name} set {sets} where {one}", (*drawn, *old))
            state.equal[drawn] += 1
        if state.equal[old] > 1 and old != drawn:
            state.collapsed.add(old)
        state.equal[old] -= 1
        self.counts["changed equal rows"] += 1

    def _savepoint(self, transaction: _Transaction) -> None:
        self.counts["savepoints"] += 1
        present = {name: set(state.present) for name, state in self.states.items()}
        initial = {name: set(state.initial) for name, state in self.states.items()}
        keyless = self.states[KEYLESS.name]
        had, equal = dict(transaction.had), Counter(keyless.equal)
        first = self._open[0]
        transaction.connection.cursor().execute("savepoint s")
        first.connection.cursor().execute("savepoint s")
        self._change(transaction)
        transaction.connection.cursor().execute("rollback to savepoint s")
        first.connection.cursor().execute("rollback to savepoint s")
        transaction.had, keyless.equal = had, equal
        for name, state in self.states.items():
            state.present, state.initial = present[name], initial[name]

    def _commit(self, transaction: _Transaction) -> None:
        transaction.connection.commit()
        self.counts["commits"] += 1
        transaction.had.clear()
        transaction.equal = None

    def _roll_back(self, transaction: _Transaction) -> None:
        transaction.connection.rollback()
        self.counts["rollbacks"] += 1
        for (name, number), (had, initial) in transaction.had.items():
            state = self.states[name]
            (state.present.add if had else state.present.discard)(number)
            if initial:
                state.initial.add(number)
        transaction.had.clear()
        if transaction.equal is not None:
            self.states[KEYLESS.name].equal = transaction.equal
        transaction.equal = None

    def _note(self, transaction: _Transaction, state: State, number: int, *, present: bool) -> None:
        transaction.had.setdefault((state.shape.name, number), (number in state.present, number in state.initial))
        (state.present.add if present else state.present.discard)(number)
        state.initial.discard(number)

    def _pick(self, transaction: _Transaction, state: State, *, present: bool) -> int | None:
        """A number with or without a row that no other open transaction has touched, if one is soon found."""
        for _ in range(40):
            number = self.random.randrange(state.shape.ids)
            held = any((state.shape.name, number) in other.had for other in self._open if other is not transaction)
            if (number in state.present) == present and not held:
                return number
        return None

    def _values(self, columns: Sequence[Column]) -> list[Any]:
        return [column.value(self.random) for column in columns]

    def _execute(self, transaction: _Transaction, sql: str, values: Sequence[Any]) -> None:
        with transaction.connection.cursor() as cursor:
            cursor.execute(sql, tuple(values))
            assert cursor.rowcount in (1, -1, 0), sql

    def _run(self, *statements: str) -> None:
        """Run ``statements`` in a transaction of their own."""
        self._commit(self._open[0])
        for statement in statements:
            self._open[0].connection.cursor().execute(statement)
        self._commit(self._open[0])


def _altered(name: str, sql: str) -> Column:
    """The column ``name`` of ALTERED, whose type is ``sql`` now."""
    known = (*ADDED, *ALTERED.columns)
    found = next((one for one in known if (one.name, one.sql) == (name, sql)), None)
    return found or replace(next(one for one in known if one.name == name), sql=sql)


def _plain(value: Any) -> Any:
    """Without the views of memory that psycopg2 has for bytes."""
    if isinstance(value, list):
        return list(map(_plain, value))
    return bytes(value) if isinstance(value, memoryview) else value


def connect(port: int) -> Any:
    """A connection whose times are in UTC."""
    connection = psycopg2.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, dbname="postgres")
    connection.cursor().execute("set time zone 'UTC'")
    connection.commit()
    return connection


def same(found: Any, expected: Any, kind: IcebergType) -> bool:
    """Whether a value in Iceberg is the one in PostgreSQL, of the same Python type, zeros with their sign."""
    if found is None or expected is None:
        return found is expected
    match kind:
        case ListType():
            return len(found) == len(expected) and all(
                same(one, other, kind.element_type) for one, other in zip(found, expected, strict=True)
            )
        case FloatType():
            return struct.pack("<f", found) == struct.pack("<f", expected)
        case DoubleType():
            return struct.pack("<d", found) == struct.pack("<d", expected)
        case DecimalType():
            return isinstance(found, Decimal) and found == expected
        case UUIDType():
            return uuid.UUID(bytes=getattr(found, "bytes", found)) == uuid.UUID(expected)
        case BinaryType():
            return bool(found == bytes(expected))
    return type(found) is type(expected) and bool(found == expected)

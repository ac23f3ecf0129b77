"""A random history of tables in PostgreSQL: of every replica identity, of partitions, and of columns that change.

Used by the soak of wal2json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from tests.spark.postgres_columns import COLUMNS, Column
from tests.spark.postgres_history import connect

KEYS = ("region", "id")
REGIONS = ("eu", "us-ä'\"\\")
IDS = 400
MARKER = "marker"
#: So many transactions are open at a time; each changes keys of its own.
OPEN = 3
Key = tuple[str, int]


def _finite(column: Column) -> Column:
    """``column`` without NaN and infinities, for which wal2json 2.5 writes null."""

    def make(random: Random) -> Any:
        while isinstance(made := column.make(random), float) and not math.isfinite(made):
            pass
        return made

    return replace(column, make=make)


#: Columns with a DEFAULT, which statements may leave to the database or set to null.
DEFAULTED = (
    (Column("defaulted", "integer", IntegerType(), lambda random: random.randint(0, 9)), "7"),
    (Column("noted", "text", StringType(), lambda random: random.choice(["", "none", "x"])), "'none'"),
    (Column("fee", "numeric(9,2)", DecimalType(9, 2), lambda random: random.randint(0, 9)), "1.50"),
    (Column("stamped", "timestamptz", TimestamptzType(), lambda random: "2024-05-01 10:00+00"), "now()"),
)
GENERATED = (
    (Column("doubled", "bigint", LongType(), lambda _random: None), "whole::bigint * 2"),
    (Column("shouted", "text", StringType(), lambda _random: None), "upper(large_text)"),
)
EVERY = tuple(map(_finite, COLUMNS))
SOME = tuple(
    column
    for column in EVERY
    if column.name in ("whole", "wide", "price", "ratio", "short_text", "day", "instant", "large_text", "large_list")
)


@dataclass(frozen=True)
class Flow:
    """One table. ``key``: its constraints; ``more``: statements after it is made; ``source``: what its merges declare.

    ``columns``: those of values that are drawn. ``grows``: rows are only inserted. ``logs_old``: old rows are logged
    whole, so that a key may change while large values stay. ``truncates``: the table may be emptied at once.
    """

    name: str
    key: str = "primary key (region, id)"
    more: tuple[str, ...] = ()
    columns: tuple[Column, ...] = SOME
    source: Mapping[str, Any] = field(default_factory=dict)
    logs_old: bool = False
    grows: bool = False
    truncates: bool = True

    @property
    def every(self) -> tuple[Column, ...]:
        """All columns but the keys."""
        return (*self.columns, *(column for column, _ in DEFAULTED), *(column for column, _ in GENERATED))

    @property
    def schema(self) -> Schema:
        """Of the table in Iceberg, before columns are added."""
        return Schema(
            NestedField(1, "region", StringType(), required=True),
            NestedField(2, "id", LongType(), required=True),
            *(NestedField(number, column.name, column.kind) for number, column in enumerate(self.every, 3)),
        )

    @property
    def created(self) -> Sequence[str]:
        """The statements that make it."""
        columns = [f"{column.name} {column.sql}" for column in self.columns]
        columns += [f"{column.name} {column.sql} default {default}" for column, default in DEFAULTED]
        columns += [f"{column.name} {column.sql} generated always as ({of}) stored" for column, of in GENERATED]
        keys = ("region text not null", "id bigint not null", *filter(None, [self.key]))
        parted = " partition by list (region)" if self.name == "parted" else ""
        large = [f"alter {column.name} set storage external" for column in self.columns if column.large]
        return (
            f"create table {self.name} ({', '.join([*keys, *columns])}){parted}",
            f"alter table {self.name} {', '.join(large)}",
            *self.more,
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_FULL = "alter table {} replica identity full"
FLOWS = (
    Flow("by_key", columns=EVERY),
    Flow("by_row", columns=EVERY, more=(_FULL.format("by_row"),), logs_old=True),
    Flow(
        "by_index",
        key="number serial primary key",
        more=(
            "create unique index by_index_key on by_index (region, id)",
            "alter table by_index replica identity using index by_index_key",
        ),
    ),
    Flow("not_logged", more=("alter table not_logged replica identity nothing",), grows=True, truncates=False),
    Flow("keyless", key="", more=(_FULL.format("keyless"),), logs_old=True, source={"replica_identity": KEYS}),
    Flow(
        "parted",
        more=tuple(
            statement
            for number, region in enumerate(REGIONS)
            for statement in (
                f"create table parted_{number} partition of parted for values in ({_quoted(region)})",
                f"alter table parted_{number} replica identity full",
            )
        ),
        logs_old=True,
        truncates=False,
        source={"tables": ("public.parted_*",)},
    ),
    Flow("altered", more=(_FULL.format("altered"),), logs_old=True),
)
#: What is done to the table ``altered`` in the midst of its feed. Rows that have new values then are touched, because
#: no message tells of them: so docs/guide/feeds.md says.
TOUCH = "update altered set id = id"
ALTERATIONS: tuple[tuple[str, ...], ...] = (
    ("alter table altered add column extra text", "update altered set extra = 'x' where id % 2 = 0"),
    ("alter table altered add column level integer default 5", TOUCH),
    ("alter table altered rename column noted to remarks", TOUCH),
    ("alter table altered alter defaulted set default 9", "alter table altered alter fee drop default"),
    ("alter table altered alter short_text type text", "alter table altered alter price type numeric(12,2)"),
    ("alter table altered alter wide type numeric(20)",),
    ("alter table altered alter ratio type double precision using -ratio", TOUCH),
    ("alter table altered drop column day",),
)


@dataclass
class _Transaction:
    connection: Any
    number: int


class History:
    """Changes the tables of FLOWS by statements that ``random`` draws. ``counts``: of what was done."""

    def __init__(self, port: int, random: Random) -> None:
        """Make the tables; wal2json tells what follows. Call ``close`` at the end."""
        self.random = random
        self.counts: dict[str, int] = {}
        self._present: dict[str, set[Key]] = {flow.name: set() for flow in FLOWS}
        self._open = [_Transaction(connect(port), number) for number in range(OPEN)]
        self._alterations = list(ALTERATIONS)
        self._renamed: dict[str, str | None] = {}
        self.execute("create type mood as enum ('sad', 'höchst ok')", f"create table {MARKER} (id int primary key)")
        for flow in FLOWS:
            self.execute(*flow.created)

    def close(self) -> None:
        """Close the connections."""
        for transaction in self._open:
            transaction.connection.close()

    def execute(self, *statements: str) -> None:
        """Run ``statements`` in a transaction of their own, while no other is open."""
        self._settle()
        with self._open[0].connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        self._open[0].connection.commit()

    def run(self, transactions: int) -> None:
        """Commit or roll back so many, which lie across one another."""
        for _ in range(transactions):
            transaction = self.random.choice(self._open)
            for _ in range(self.random.randint(1, 6)):
                self._change(transaction, self.random.choice(FLOWS))
            other = self.random.choice(self._open)
            if other is not transaction:
                self._change(other, self.random.choice(FLOWS))
                self._end(other)
            self._end(transaction)
        self._settle()

    def alter(self) -> None:
        """Change the columns of the table ``altered``."""
        if self._alterations:
            self._count("alterations")
            statements = self._alterations.pop(0)
            self.execute(*statements)
            for statement in statements:
                words = statement.split()
                if "rename" in words:
                    self._renamed[words[5]] = words[7]
                if "drop column" in statement:
                    self._renamed[words[-1]] = None

    def truncate(self) -> None:
        """Empty the tables that may be, and write some rows in the same transaction."""
        self._settle()
        first = self._open[0]
        for flow in FLOWS:
            if flow.truncates:
                self._count("truncates")
                first.connection.cursor().execute(f"truncate {flow.name}")
                self._present[flow.name].clear()
                for _ in range(20):
                    self._insert(first, flow)
        first.connection.commit()

    def rows(self, flow: Flow) -> dict[Key, Mapping[str, Any]]:
        """All rows of the table by key, as Iceberg is to have them."""
        self._settle()
        with self._open[0].connection as connection, connection.cursor() as cursor:
            cursor.execute(
                "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
                (flow.name,),
            )
            names = [name for (name,) in cursor.fetchall() if name != "number"]
            shown = {column.name: column.shown.format(column.name) for column in flow.every} | {"wide": "wide::bigint"}
            cursor.execute(f"select {', '.join(shown.get(name, name) for name in names)} from {flow.name}")
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {(row["region"], row["id"]): row for row in found}

    def _change(self, transaction: _Transaction, flow: Flow) -> None:
        draw = self.random.random()
        old = self._key(transaction, flow, present=True)
        if old is None or draw < 0.35 or flow.grows:
            self._insert(transaction, flow)
        elif draw < 0.7:
            self._update(transaction, flow, old)
        elif draw < 0.82:
            self._move(transaction, flow, old)
        else:
            self._count("deletes")
            self._run(transaction, f"delete from {flow.name} where region = %s and id = %s", old)
            self._present[flow.name].discard(old)

    def _insert(self, transaction: _Transaction, flow: Flow) -> None:
        key = self._key(transaction, flow, present=False)
        if key is None:
            return
        self._count("inserts")
        drawn = [column for column in self._columns(flow) if self.random.random() < 0.9]
        marks = ", ".join(f"%s::{column.sql}" for column in drawn)
        names = ", ".join(["region", "id", *(self._name(flow, column) for column in drawn)])
        values = [self._value(column) for column in drawn]
        self._run(transaction, f"insert into {flow.name} ({names}) values (%s, %s{', ' * bool(drawn)}{marks})",
                  (*key, *values))  # fmt: skip
        self._present[flow.name].add(key)

    def _update(self, transaction: _Transaction, flow: Flow, key: Key) -> None:
        self._count("updates")
        columns = self._columns(flow)
        drawn = self.random.sample(columns, self.random.randint(0, 4))
        self._set(transaction, flow, key, key, drawn)

    def _move(self, transaction: _Transaction, flow: Flow, old: Key) -> None:
        """Change the key. PostgreSQL logs no large value that the row takes along, unless it logs the old row."""
        new = self._key(transaction, flow, present=False)
        if new is None:
            return
        self._count("changed keys")
        drawn = [] if flow.logs_old else [column for column in self._columns(flow) if column.large]
        self._set(transaction, flow, old, new, drawn)
        self._present[flow.name].discard(old)
        self._present[flow.name].add(new)

    def _set(self, transaction: _Transaction, flow: Flow, old: Key, new: Key, drawn: Sequence[Column]) -> None:
        sets = [f"{self._name(flow, column)} = %s::{column.sql}" for column in drawn]
        values = [self._value(column) for column in drawn]
        statement = f"update {flow.name} set {', '.join(['region = %s', 'id = %s', *sets])}"
        self._run(transaction, f"{statement} where region = %s and id = %s", (*new, *values, *old))

    def _run(self, transaction: _Transaction, statement: str, values: Sequence[Any]) -> None:
        with transaction.connection.cursor() as cursor:
            cursor.execute(statement, tuple(values))
            assert cursor.rowcount == 1, statement

    def _columns(self, flow: Flow) -> list[Column]:
        """Those that statements set."""
        columns = [*flow.columns, *(column for column, _ in DEFAULTED)]
        return [
            column for column in columns if flow.name != "altered" or self._renamed.get(column.name, "") is not None
        ]

    def _name(self, flow: Flow, column: Column) -> str:
        return (self._renamed.get(column.name) or column.name) if flow.name == "altered" else column.name

    def _value(self, column: Column) -> Any:
        made = None if self.random.random() < 0.15 else column.make(self.random)
        # As text: PostgreSQL casts a number before it takes its sign, and so has no -2^63
        return str(made) if isinstance(made, int | float) else made

    def _key(self, transaction: _Transaction, flow: Flow, *, present: bool) -> Key | None:
        """A key with or without a row, of those that this transaction may touch."""
        for _ in range(40):
            key = self.random.choice(REGIONS), self.random.randrange(IDS // OPEN) * OPEN + transaction.number
            if (key in self._present[flow.name]) == present:
                return key
        return None

    def _end(self, transaction: _Transaction) -> None:
        if self.random.random() < 0.92:
            transaction.connection.commit()
            self._count("commits")
            return
        transaction.connection.rollback()
        self._count("rollbacks")
        self._read_present(transaction)

    def _read_present(self, transaction: _Transaction) -> None:
        """Which rows there are, of those that the transaction may touch."""
        for flow in FLOWS:
            with transaction.connection.cursor() as cursor:
                cursor.execute(f"select region, id from {flow.name} where id % {OPEN} = {transaction.number}")
                mine = set(cursor.fetchall())
            others = {key for key in self._present[flow.name] if key[1] % OPEN != transaction.number}
            self._present[flow.name] = others | mine
        transaction.connection.commit()

    def _settle(self) -> None:
        for transaction in self._open:
            transaction.connection.commit()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

"""A random history of tables in PostgreSQL, with values of every type that a change feed carries.

Used by the soak of Debezium.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import psycopg2
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.spark.postgres import PASSWORD, USER

#: Of old rows, ``by_row`` logs all columns (REPLICA IDENTITY FULL), the others the keys (DEFAULT).
BY_KEY, BY_ROW = "by_key", "by_row"
#: It loses its rows by a delete when the others are truncated.
NEVER_TRUNCATED = "never_truncated"
TABLES = (BY_KEY, BY_ROW, NEVER_TRUNCATED)
KEYS = ("region", "id")
#: The table whose first row ends the history.
MARKER = "marker"
REGIONS = ("eu", "us-ä'\"\\")
IDS = 600
OPEN_TRANSACTIONS = 3
LETTERS = "aZ0 ,'\"\\{}\t\näß€漢😀\u200d"
#: Values that no type of Iceberg has, a row each. In the order of ODD_SCHEMA after its key.
ODD = "odd"
ODD_TYPES = ("numeric(9,2)", "numeric", "date", "time", "timestamp", "timestamptz")
ODD_ROWS = (
    (1, "NaN", None, None, None, None, None),
    (2, None, "NaN", None, None, None, None),
    (3, None, "Infinity", None, None, None, None),
    (4, None, None, "infinity", None, None, None),
    (5, None, None, "-infinity", None, None, None),
    (6, None, None, "0044-03-15 BC", None, None, None),
    (7, None, None, None, "24:00", None, None),
    (8, None, None, None, None, "infinity", None),
    (9, None, None, None, None, "10000-01-01", None),
    (10, None, None, None, None, None, "infinity"),
    (11, None, None, None, None, None, "-infinity"),
)
ODD_SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "c1", DecimalType(9, 2)),
    NestedField(3, "c2", DecimalType(20, 2)),
    NestedField(4, "c3", DateType()),
    NestedField(5, "c4", TimeType()),
    NestedField(6, "c5", TimestampType()),
    NestedField(7, "c6", TimestamptzType()),
)
Key = tuple[str, int]
Make = Callable[[Random], Any]


@dataclass(frozen=True)
class Column:
    """``make``: a value that is not null. ``shown``: SQL that gives what Iceberg is to have, ``{}`` standing for it.

    ``untold``: tables of which Debezium writes null for a large value that an update leaves as it is.
    """

    name: str
    sql: str
    kind: IcebergType
    make: Make
    shown: str = "{}"
    large: bool = False
    untold: tuple[str, ...] = ()


def _whole(bits: int) -> Make:
    limits = (-(1 << bits), (1 << bits) - 1, 0)
    return lambda random: random.choice(limits) if random.random() < 0.1 else random.randrange(*limits[:2])


def _decimal(precision: int, scale: int) -> Make:
    def make(random: Random) -> Decimal:
        unscaled = random.choice([10**precision - 1, random.randrange(10 ** random.randint(1, precision))])
        return Decimal(f"{random.choice([1, -1]) * unscaled}e-{scale}")  # whole, whatever the context

    return make


def _double(random: Random) -> float:
    if random.random() < 0.2:
        return random.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308])
    return random.choice([random.uniform(-1e6, 1e6), float(random.randint(-(1 << 53), 1 << 53)), random.gauss(0, 1e-9)])


def _single(random: Random) -> float:
    if random.random() < 0.2:
        return random.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 3.4028234663852886e38, 1.401298464324817e-45])
    return float(struct.unpack("<f", struct.pack("<f", random.gauss(0, 10 ** random.randint(-8, 8))))[0])


def _text(longest: int) -> Make:
    return lambda random: "".join(random.choices(LETTERS, k=random.randint(0, longest)))


def _often_large(make: Make, length: int) -> Make:
    """Also values that do not fit into a page, which an update does not log when it leaves them as they are."""
    return lambda random: make(random) * (length if random.random() < 0.15 else 1)


def _moment(random: Random, first: int = 1, last: int = 9999) -> datetime:
    years = (first, last) if random.random() < 0.15 else (1990, 2040)
    begin = datetime(years[0], 1, 2, tzinfo=UTC)
    span = (datetime(years[1], 12, 30, tzinfo=UTC) - begin) // timedelta(microseconds=1)
    moment = begin + timedelta(microseconds=random.randrange(span))
    return moment.replace(microsecond=random.choice([0, moment.microsecond, moment.microsecond // 1000 * 1000]))


def _naive(random: Random) -> datetime:
    return _moment(random).replace(tzinfo=None)


def _milli(random: Random) -> datetime:
    moment = _naive(random)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _day(random: Random) -> date:
    return random.choice([date(1, 1, 1), date(9999, 12, 31), *(3 * [_moment(random).date()])])


def _clock(random: Random) -> time:
    return random.choice([time(), time.max, _naive(random).time()])


def _list(make: Make) -> Make:
    return lambda random: [None if random.random() < 0.2 else make(random) for _ in range(random.randint(0, 4))]


def _list_of(number: int, kind: IcebergType) -> ListType:
    return ListType(number, kind, element_required=False)


def _json(random: Random) -> str:
    text = random.choice(["x", "ä€", '\\"', "\\\\", "\\n"])
    number = random.choice(["1", "1.50", "-2e3", "12345678901234567890.5", "true", "null"])
    return f'{{"b" :  "{text}", "a":[{number}, {{}}], "a2": null}}'


def _padded_json(random: Random) -> str:
    pad = "x" * (3000 if random.random() < 0.15 else 1)
    return f'{{"pad": "{pad}", "of": {_json(random)}}}'


COLUMNS = (
    Column("flag", "boolean", BooleanType(), lambda random: random.random() < 0.5),
    Column("small", "smallint", IntegerType(), _whole(15)),
    Column("whole", "integer", IntegerType(), _whole(31)),
    Column("wide", "bigint", LongType(), _whole(63)),
    Column("price", "numeric(9,2)", DecimalType(9, 2), _decimal(9, 2)),
    Column("huge", "numeric(38,18)", DecimalType(38, 18), _decimal(38, 18)),
    Column("count_of", "numeric(20)", DecimalType(20, 0), _decimal(20, 0)),
    Column("free_number", "numeric", DecimalType(30, 10), _decimal(28, 9)),
    Column("single", "real", FloatType(), _single),
    Column("ratio", "double precision", DoubleType(), _double),
    Column("short_text", "varchar(40)", StringType(), _text(40)),
    Column("padded", "char(6)", StringType(), lambda random: "".join(random.choices("abä", k=random.randint(0, 5)))),
    Column("kind", "mood", StringType(), lambda random: random.choice(["sad", "höchst ok"])),
    Column("day", "date", DateType(), _day),
    Column("clock", "time", TimeType(), _clock),
    Column("clock_millis", "time(3)", TimeType(), lambda random: _milli(random).time()),
    Column("local", "timestamp", TimestampType(), _naive),
    Column("local_millis", "timestamp(3)", TimestampType(), _milli),
    Column("instant", "timestamptz", TimestamptzType(), _moment),
    Column("code", "uuid", UUIDType(), lambda random: str(uuid.UUID(int=random.getrandbits(128)))),
    Column(
        "flags",
        "boolean[]",
        _list_of(1001, BooleanType()),
        _often_large(_list(lambda random: random.random() < 0.5), 900),
        large=True,
        untold=(BY_KEY, NEVER_TRUNCATED),
    ),
    Column(
        "prices",
        "numeric(9,2)[]",
        _list_of(1002, DecimalType(9, 2)),
        _often_large(_list(_decimal(9, 2)), 250),
        large=True,
        untold=(BY_KEY, NEVER_TRUNCATED),
    ),
    Column(
        "days",
        "date[]",
        _list_of(1003, DateType()),
        _often_large(_list(_day), 500),
        large=True,
        untold=(NEVER_TRUNCATED,),
    ),
    Column("written", "json", StringType(), _json, "{}::text"),
    Column("large_json", "jsonb", StringType(), _padded_json, "{}::text", large=True),
    Column("large_text", "text", StringType(), _often_large(_text(9), 700), large=True),
    Column("large_bytes", "bytea", BinaryType(), _often_large(lambda random: random.randbytes(5), 700), large=True),
    Column("large_list", "text[]", _list_of(1004, StringType()), _often_large(_list(_text(9)), 500), large=True),
    Column("large_ints", "integer[]", _list_of(1005, IntegerType()), _often_large(_list(_whole(31)), 900), large=True),
    Column("large_wides", "bigint[]", _list_of(1006, LongType()), _often_large(_list(_whole(63)), 400), large=True),
)
LARGE = tuple(column for column in COLUMNS if column.large)
SCHEMA = Schema(
    NestedField(1, "region", StringType(), required=True),
    NestedField(2, "id", LongType(), required=True),
    *(NestedField(number, column.name, column.kind) for number, column in enumerate(COLUMNS, 3)),
)


@dataclass
class _Transaction:
    """One that is open: its connection, and for each key that it touched whether it had a row before."""

    connection: Any
    had: dict[Key, bool] = field(default_factory=dict)


class History:
    """Changes TABLES by statements that ``random`` draws. ``counts``: of what was done; ``version``: of the server."""

    def __init__(self, port: int, random: Random) -> None:
        """Make the tables, with rows. Call ``close`` at the end."""
        self.random = random
        self.counts: dict[str, int] = {}
        self._present: set[Key] = set()
        self._open = [_Transaction(connect(port)) for _ in range(OPEN_TRANSACTIONS)]
        self.version: int = self._open[0].connection.info.server_version
        columns = ", ".join(f"{column.name} {column.sql}" for column in COLUMNS)
        external = ", ".join(f"alter {column.name} set storage external" for column in LARGE)
        first = self._open[0]
        first.connection.cursor().execute("create type mood as enum ('sad', 'höchst ok')")
        first.connection.cursor().execute(f"create table {MARKER} (id int primary key)")
        for table in TABLES:
            key = "region text not null, id bigint not null, primary key (region, id)"
            first.connection.cursor().execute(
                f"create table {table} ({key}, {columns}); alter table {table} {external}"
            )
        first.connection.cursor().execute(f"alter table {BY_ROW} replica identity full")
        odd = ", ".join(f"c{number} {kind}" for number, kind in enumerate(ODD_TYPES, 1))
        first.connection.cursor().execute(f"create table {ODD} (id int primary key, {odd})")
        for _ in range(IDS // 2):
            self._insert(first, self._pick(first, present=False))
        self._commit(first)

    def close(self) -> None:
        """Close the connections."""
        for one in self._open:
            one.connection.close()

    def run(self, transactions: int) -> None:
        """Commit or roll back so many, which lie across one another; some are open afterwards."""
        done = 0
        while done < transactions:
            one = self.random.choice(self._open)
            self._count("statements")
            self._savepoint(one) if self.random.random() < 0.05 else self._change(one)
            if self.random.random() < 0.35:
                self._commit(one) if self.random.random() < 0.92 else self._roll_back(one)
                done += 1

    def settle(self) -> None:
        """Commit what is open."""
        for one in self._open:
            self._commit(one)

    def truncate(self) -> None:
        """Empty the tables within a transaction that changes them before and after."""
        self.settle()
        one = self._open[0]
        for _ in range(5):
            self._change(one)
        self._execute(one, "truncate {}", (), (BY_KEY, BY_ROW))
        one.connection.cursor().execute(f"delete from {NEVER_TRUNCATED}")
        self._present.clear()
        one.had.clear()
        for _ in range(50):
            self._insert(one, self._pick(one, present=False))
        self._commit(one)

    def end(self) -> None:
        """Write ODD_ROWS, and let every reader of the log know that there is no more."""
        self.settle()
        one = self._open[0]
        for row in ODD_ROWS:
            marks = ", ".join(f"%s::{kind}" for kind in ODD_TYPES)
            one.connection.cursor().execute(f"insert into {ODD} values (%s, {marks})", row)
        one.connection.cursor().execute(f"insert into {MARKER} values (1)")
        one.connection.commit()

    def rows(self, table: str) -> dict[Key, Mapping[str, Any]]:
        """All rows of ``table`` by key, as Iceberg is to have them."""
        names = [*KEYS, *(column.name for column in COLUMNS)]
        shown = [*KEYS, *(column.shown.format(column.name) for column in COLUMNS)]
        with self._open[0].connection as connection, connection.cursor() as cursor:
            cursor.execute(f"select {', '.join(shown)} from {table}")
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {(row["region"], row["id"]): row for row in found}

    def _change(self, one: _Transaction) -> None:
        draw = self.random.random()
        old, new = self._pick(one, present=True), self._pick(one, present=False)
        if old is None or draw < 0.3:
            self._insert(one, new)
        elif draw < 0.75:
            self._update(one, old)
        elif draw < 0.85:
            self._move(one, old, new)
        else:
            self._delete(one, old)

    def _insert(self, one: _Transaction, key: Key | None) -> None:
        if key is None:
            return
        self._count("inserts")
        values = [self._value(column) for column in COLUMNS]
        marks = ", ".join(f"%s::{column.sql}" for column in COLUMNS)
        self._execute(one, f"insert into {{}} values (%s, %s, {marks})", (*key, *values))
        self._note(one, key, present=True)

    def _update(self, one: _Transaction, key: Key) -> None:
        self._count("updates")
        few = self.random.sample(COLUMNS, self.random.randint(0, 4))
        for table in TABLES:
            columns = [*few, *(column for column in COLUMNS if table in column.untold and column not in few)]
            values = [self._value(column) for column in columns]
            sets = ", ".join(["id = id", *(f"{column.name} = %s::{column.sql}" for column in columns)])
            self._execute(one, f"update {{}} set {sets} where region = %s and id = %s", (*values, *key), (table,))
        self._note(one, key, present=True)

    def _move(self, one: _Transaction, old: Key, new: Key | None) -> None:
        """Change the key. By its key alone, PostgreSQL does not log large values that a row takes along."""
        if new is None:
            return
        self._count("changed keys")
        move, values = "update {} set region = %s, id = %s", [self._value(column) for column in LARGE]
        sets = ", ".join(f"{column.name} = %s::{column.sql}" for column in LARGE)
        where = " where region = %s and id = %s"
        self._execute(one, f"{move}, {sets}{where}", (*new, *values, *old), (BY_KEY, NEVER_TRUNCATED))
        self._execute(one, f"{move}, wide = 1{where}", (*new, *old), (BY_ROW,))
        self._note(one, old, present=False)
        self._note(one, new, present=True)

    def _delete(self, one: _Transaction, key: Key) -> None:
        self._count("deletes")
        self._execute(one, "delete from {} where region = %s and id = %s", key)
        self._note(one, key, present=False)

    def _savepoint(self, one: _Transaction) -> None:
        self._count("savepoints")
        before, had = set(self._present), dict(one.had)
        one.connection.cursor().execute("savepoint s")
        self._change(one)
        one.connection.cursor().execute("rollback to savepoint s")
        self._present, one.had = before, had

    def _execute(self, one: _Transaction, sql: str, values: Sequence[Any], tables: Sequence[str] = TABLES) -> None:
        with one.connection.cursor() as cursor:
            for table in tables:
                cursor.execute(sql.format(table), tuple(values))
                assert cursor.rowcount in (1, -1)

    def _commit(self, one: _Transaction) -> None:
        one.connection.commit()
        self._count("commits")
        one.had.clear()

    def _roll_back(self, one: _Transaction) -> None:
        one.connection.rollback()
        self._count("rollbacks")
        for key, had in one.had.items():
            (self._present.add if had else self._present.discard)(key)
        one.had.clear()

    def _note(self, one: _Transaction, key: Key, *, present: bool) -> None:
        one.had.setdefault(key, key in self._present)
        (self._present.add if present else self._present.discard)(key)

    def _pick(self, one: _Transaction, *, present: bool) -> Key | None:
        """A key with or without a row that no other open transaction has touched, if one is soon found."""
        for _ in range(40):
            key = self.random.choice(REGIONS), self.random.randrange(IDS)
            held = any(key in other.had for other in self._open if other is not one)
            if (key in self._present) == present and not held:
                return key
        return None

    def _value(self, column: Column) -> Any:
        made = None if self.random.random() < 0.1 else column.make(self.random)
        # As text: PostgreSQL casts a number before it takes its sign, and so has no -2^63
        return str(made) if isinstance(made, int | float) else made

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


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

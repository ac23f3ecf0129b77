"""A random history of tables in MariaDB, with values of every type that Maxwell tells whole.

Used by the soak of Maxwell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

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
)

from tests.spark.mariadb import MariaDb

DATABASE = "shop"
KEYS = ("region", "id")
REGIONS = ("eu", "us-ä'\"\\")
IDS = 300
LETTERS = "aZ0 ,'\"\\{}\t\näß€漢😀\u200d"
NULL = "NULL"
Key = tuple[str, int]


@dataclass(frozen=True)
class Column:
    """``make``: SQL of a value that is not null. ``read``: the value of its text. ``shown``: SQL of the text."""

    name: str
    sql: str
    kind: IcebergType
    make: Callable[[Random], str]
    read: Callable[[str], Any]
    shown: str = "{}"


def _whole(low: int, high: int) -> Callable[[Random], str]:
    return lambda random: str(random.choice([low, high, 0, random.randint(low, high)]))


def _decimal(precision: int, scale: int) -> Callable[[Random], str]:
    def make(random: Random) -> str:
        unscaled = random.choice([10**precision - 1, random.randrange(10 ** random.randint(1, precision))])
        return f"{Decimal(f'{random.choice([1, -1]) * unscaled}e-{scale}'):f}"

    return make


def _text(longest: int, letters: str = LETTERS) -> Callable[[Random], str]:
    return lambda random: as_sql("".join(random.choices(letters, k=random.randint(0, longest))))


def as_sql(text: str) -> str:
    """``text`` as SQL."""
    return f"convert(x'{text.encode().hex()}' using utf8mb4)"


def _bytes(longest: int) -> Callable[[Random], str]:
    return lambda random: f"x'{random.randbytes(random.randint(0, longest)).hex()}'"


def _moment(random: Random, first: int, last: int) -> datetime:
    begin = datetime(first, 1, 2, tzinfo=UTC)
    span = (datetime(last, 12, 30, tzinfo=UTC) - begin) // timedelta(microseconds=1)
    return (begin + timedelta(microseconds=random.randrange(span))).replace(tzinfo=None)


def _stamp(first: int, last: int) -> Callable[[Random], str]:
    return lambda random: f"'{_moment(random, *random.choice([(first, last), (1990, 2030)]))}'"


def _second(random: Random) -> str:
    return f"'{_moment(random, 1000, 9999).replace(microsecond=0)}'"


def _clock(random: Random) -> str:
    return random.choice(["'00:00:00'", "'23:59:59.999999'", f"'{_moment(random, 2000, 2001).time()}'"])


def _json(random: Random) -> str:
    return as_sql(f'{{"b" :  "{random.choice(["x", "ä€", "漢😀"])}", "a":[{random.choice(["1", "1.50", "null"])}]}}')


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


COLUMNS = (
    Column("flag", "bit(1)", BooleanType(), _whole(0, 1), lambda text: text == "1", "{} + 0"),
    Column("bits", "bit(8)", IntegerType(), _whole(0, 255), int, "{} + 0"),
    Column("tiny", "tinyint", IntegerType(), _whole(-128, 127), int),
    Column("small", "smallint unsigned", IntegerType(), _whole(0, 65535), int),
    Column("middle", "mediumint", IntegerType(), _whole(-(1 << 23), (1 << 23) - 1), int),
    Column("whole", "int", IntegerType(), _whole(-(1 << 31), (1 << 31) - 1), int),
    Column("counted", "int unsigned", LongType(), _whole(0, (1 << 32) - 1), int),
    Column("wide", "bigint", LongType(), _whole(-(1 << 63), (1 << 63) - 1), int),
    Column("widest", "bigint unsigned", DecimalType(20, 0), _whole(0, (1 << 64) - 1), Decimal),
    Column("price", "decimal(9,2)", DecimalType(9, 2), _decimal(9, 2), Decimal),
    Column("huge", "decimal(38,18)", DecimalType(38, 18), _decimal(38, 18), Decimal),
    # A bootstrap tells six digits, as MariaDB shows them
    Column("single", "float", FloatType(), lambda random: f"{random.gauss(0, 1000):.5g}", float),
    Column("ratio", "double", DoubleType(), lambda random: repr(random.gauss(0, 10 ** random.randint(-9, 9))), float),
    Column("short_text", "varchar(40)", StringType(), _text(40), str),
    Column("old_text", "varchar(20) character set latin1", StringType(), _text(20, "aZ0 ,'\"\\äß"), str),
    Column("padded", "char(6)", StringType(), _text(6, "abä"), str),
    Column("body", "mediumtext", StringType(), _text(900), str),
    Column("kind", "enum('sad', 'höchst ok')", StringType(), lambda random: str(random.randint(1, 2)), str),
    Column(
        "marks",
        "set('a', 'b', 'ç')",
        ListType(100, StringType(), element_required=False),
        lambda random: str(random.randint(1, 7)),  # a bootstrap tells an empty set as [""]
        lambda text: text.split(","),
    ),
    Column("day", "date", DateType(), lambda random: f"'{_moment(random, 1000, 9999).date()}'", date.fromisoformat),
    Column("clock", "time(6)", TimeType(), _clock, time.fromisoformat),
    Column("local", "datetime", TimestampType(), _second, datetime.fromisoformat),
    Column("local_micros", "datetime(6)", TimestampType(), _stamp(1000, 9999), datetime.fromisoformat),
    Column("instant", "timestamp(6) null", TimestamptzType(), _stamp(1971, 2037), _instant),
    Column("made", "year", IntegerType(), lambda random: str(random.randint(1901, 2155)), int),
    Column("content", "blob", BinaryType(), _bytes(60), bytes.fromhex, "hex({})"),
    Column("code", "varbinary(9)", BinaryType(), _bytes(9), bytes.fromhex, "hex({})"),
    Column("written", "longtext", StringType(), _json, str),
    Column(
        "place",
        "point",
        StringType(),
        lambda random: f"point({random.randint(-9, 9)}, 0.5)",
        str,
        "replace(st_astext({}), 'POINT(', 'POINT (')",
    ),
)
#: Columns with a DEFAULT, which statements may leave to the database or set to null.
DEFAULTED = (
    Column("defaulted", "int default 7", IntegerType(), _whole(0, 9), int),
    Column("noted", "varchar(9) default 'none'", StringType(), _text(3, "ab"), str),
    Column("fee", "decimal(9,2) default 1.50", DecimalType(9, 2), _decimal(9, 2), Decimal),
    Column("rank", "int unsigned default 4294967295", LongType(), _whole(0, (1 << 32) - 1), int),
)
GENERATED = (
    Column("doubled", "bigint generated always as (whole * 2) stored", LongType(), _whole(0, 0), int),
    Column("lengths", "bigint generated always as (length(body)) virtual", LongType(), _whole(0, 0), int),
)
_FEW = ("tiny", "whole", "widest", "price", "short_text", "body", "marks", "day", "local_micros", "code")


@dataclass(frozen=True)
class Flow:
    """One table. ``key``: its constraints; ``columns``: those whose values are drawn; ``options``: of the table."""

    name: str
    key: str = ", primary key (region, id)"
    columns: tuple[Column, ...] = tuple(column for column in COLUMNS if column.name in _FEW)
    options: str = ""

    @property
    def every(self) -> tuple[Column, ...]:
        """All columns but the keys."""
        return (*self.columns, *DEFAULTED, *GENERATED)

    @property
    def schema(self) -> Schema:
        """Of the table in Iceberg, before columns are added."""
        return Schema(
            NestedField(1, "region", StringType(), required=True),
            NestedField(2, "id", LongType(), required=True),
            *(NestedField(number, column.name, column.kind) for number, column in enumerate(self.every, 3)),
        )

    @property
    def created(self) -> str:
        """The statement that makes it."""
        columns = [f"{column.name} {column.sql} default null" for column in self.columns]
        columns += [f"`{column.name}` {column.sql}" for column in (*DEFAULTED, *GENERATED)]
        keys = "region varchar(20) not null, id bigint not null"
        return f"create table {self.name} ({keys}, {', '.join(columns)}{self.key}) {self.options};"


ORDERS = Flow("orders", columns=COLUMNS)
ALTERED = Flow("altered")
FLOWS = (
    ORDERS,
    Flow("keyless", key=""),
    Flow("parted", options="partition by key (region, id) partitions 3"),
    ALTERED,
)
#: What is done to ALTERED in the midst of its feed. Rows that have new values then are changed, as docs/guide/feeds.md
#: says, because no message tells of them.
_TOUCH = "update altered set tiny = coalesce(-tiny, 1) where coalesce(tiny, 0) not in (0, -128);" \
         "update altered set tiny = 1 where coalesce(tiny, 0) in (0, -128);"  # fmt: skip
ALTERATIONS = (
    "alter table altered add column extra varchar(9) null; update altered set extra = 'x' where id % 2 = 0;",
    f"alter table altered add column level int default 5; {_TOUCH}",
    f"alter table altered change noted remarks varchar(20) default 'none'; {_TOUCH}",
    "alter table altered alter defaulted set default 9; alter table altered alter fee drop default;",
    "alter table altered modify short_text text; alter table altered modify price decimal(12,2);",
    "alter table altered modify tiny smallint; alter table altered drop column day;",
)


class History:
    """Changes the tables of FLOWS by transactions that ``random`` draws. ``counts``: of what was done."""

    def __init__(self, server: MariaDb, random: Random) -> None:
        """Make the tables; ORDERS has rows."""
        self.random = random
        self.counts: dict[str, int] = {}
        self._server = server
        self._present: dict[str, set[Key]] = {flow.name: set() for flow in FLOWS}
        self._alterations = list(ALTERATIONS)
        self._names: dict[str, str | None] = {}
        collation = "character set utf8mb4 collate utf8mb4_bin"
        server.run(f"create database {DATABASE} {collation}")
        server.run("".join(flow.created for flow in FLOWS), DATABASE)
        server.run("".join(self._insert(ORDERS) for _ in range(IDS // 2)), DATABASE)

    def run(self, transactions: int) -> None:
        """Commit or roll back so many."""
        sql = []
        for _ in range(transactions):
            before = {name: set(keys) for name, keys in self._present.items()}
            flow = self.random.choice([ORDERS, *FLOWS])
            sql += ["begin;\n", *(self._change(flow) for _ in range(self.random.randint(1, 4)))]
            is_kept = self.random.random() < 0.9
            if not is_kept:
                self._present = before
            sql.append("commit;\n" if is_kept else "rollback;\n")
        self._server.run("".join(sql), DATABASE)

    def alter(self) -> None:
        """Change the columns of ALTERED, if there is a change left."""
        if not self._alterations:
            return
        self._count("alterations")
        statement = self._alterations.pop(0)
        self._server.run(statement, DATABASE)
        if " change noted " in statement:
            self._names["noted"] = "remarks"
        if " drop column day" in statement:
            self._names["day"] = None

    def bootstrap(self) -> None:
        """Ask Maxwell to tell all rows of ORDERS."""
        self._server.run(
            f"insert into bootstrap (database_name, table_name) values ('{DATABASE}', '{ORDERS.name}')", "maxwell"
        )

    def mark(self, region: str) -> None:
        """Insert and delete a row of ``region``: whoever is told of its delete has been told of all before."""
        table = ORDERS.name
        self._server.run(
            f"insert into {table} (region, id) values ('{region}', 0); delete from {table} where region = '{region}'",
            DATABASE,
        )

    def rows(self, flow: Flow) -> dict[Key, Mapping[str, Any]]:
        """All rows of the table by key, as Iceberg is to have them."""
        names = [(column, name) for column in flow.every if (name := self._name(flow, column))]
        shown = ["region", "id", *(column.shown.format(f"`{name}`") for column, name in names)]
        hexed = ", ".join(f"hex(convert({text} using utf8mb4))" for text in shown)
        found = {}
        for region, number, *values in self._server.run(f"select {hexed} from {flow.name}", DATABASE):
            key = plain_text(region), int(plain_text(number))
            read = zip(names, values, strict=True)
            row = {name: None if text == NULL else column.read(plain_text(text)) for (column, name), text in read}
            found[key] = {"region": key[0], "id": key[1], **row}
        return found

    def _change(self, flow: Flow) -> str:
        draw = self.random.random()
        present = self._present[flow.name]
        if draw < 0.3 or not present:
            return self._insert(flow)
        key = self.random.choice(sorted(present))
        where = f"where region = {as_sql(key[0])} and id = {key[1]};\n"
        if draw < 0.75:
            return self._update(flow, where)
        if draw < 0.8:
            return self._shift(flow)
        if draw < 0.88:
            return self._move(flow, key, where)
        self._count("deletes")
        present.remove(key)
        return f"delete from {flow.name} {where}"

    def _insert(self, flow: Flow) -> str:
        key = self._absent(flow)
        if key is None:
            return ""
        self._count("inserts")
        self._present[flow.name].add(key)
        drawn = [(name, self._value(column)) for column, name in self._columns(flow) if self.random.random() < 0.9]
        names = ", ".join(["region", "id", *(f"`{name}`" for name, _ in drawn)])
        values = ", ".join([as_sql(key[0]), str(key[1]), *(value for _, value in drawn)])
        return f"insert into {flow.name} ({names}) values ({values});\n"

    def _update(self, flow: Flow, where: str) -> str:
        self._count("updates")
        columns = self._columns(flow)
        few = self.random.sample(columns, self.random.randint(1, 5))
        sets = ", ".join(f"`{name}` = {self._value(column)}" for column, name in few)
        return f"update {flow.name} set {sets} {where}"

    def _move(self, flow: Flow, old: Key, where: str) -> str:
        new = self._absent(flow)
        if new is None:
            return ""
        self._count("changed keys")
        self._present[flow.name].remove(old)
        self._present[flow.name].add(new)
        return f"update {flow.name} set region = {as_sql(new[0])}, id = {new[1]} {where}"

    def _shift(self, flow: Flow) -> str:
        """Move the keys of a region along, in one event: most keys are left by one row and taken by another."""
        region = self.random.choice(REGIONS)
        self._count("shifts")
        moved = {(name, number + (name == region)) for name, number in self._present[flow.name]}
        self._present[flow.name] = moved
        return f"update {flow.name} set id = id + 1 where region = {as_sql(region)} order by id desc;\n"

    def _columns(self, flow: Flow) -> Sequence[tuple[Column, str]]:
        """The columns that statements set, and their names now."""
        drawn = (*flow.columns, *DEFAULTED)
        return [(column, name) for column in drawn if (name := self._name(flow, column))]

    def _name(self, flow: Flow, column: Column) -> str | None:
        return self._names.get(column.name, column.name) if flow is ALTERED else column.name

    def _absent(self, flow: Flow) -> Key | None:
        key = self.random.choice(REGIONS), self.random.randrange(IDS)
        return None if key in self._present[flow.name] else key

    def _value(self, column: Column) -> str:
        return "null" if self.random.random() < 0.15 else column.make(self.random)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def plain_text(text: str) -> str:
    """The text that MariaDB's ``hex`` shows as ``text``."""
    return bytes.fromhex(text).decode()

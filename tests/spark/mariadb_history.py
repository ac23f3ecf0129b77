"""A random history of a table in MariaDB, with values of every type that Maxwell tells whole.

Used by the soak of Maxwell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

DATABASE, TABLE = "shop", "orders"
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
SCHEMA = Schema(
    NestedField(1, "region", StringType(), required=True),
    NestedField(2, "id", LongType(), required=True),
    *(NestedField(number, column.name, column.kind) for number, column in enumerate(COLUMNS, 3)),
)


class History:
    """Changes TABLE by transactions that ``random`` draws. ``counts``: of what was done."""

    def __init__(self, server: MariaDb, random: Random) -> None:
        """Make the table, with rows."""
        self.random = random
        self.counts: dict[str, int] = {}
        self._server = server
        self._present: set[Key] = set()
        columns = ", ".join(f"{column.name} {column.sql} default null" for column in COLUMNS)
        key = "region varchar(20) not null, id bigint not null, primary key (region, id)"
        collation = "character set utf8mb4 collate utf8mb4_bin"
        server.run(f"create database {DATABASE} {collation}; use {DATABASE}; create table {TABLE} ({key}, {columns})")
        server.run("".join(self._insert() for _ in range(IDS // 2)), DATABASE)

    def run(self, transactions: int) -> None:
        """Commit or roll back so many."""
        sql = []
        for _ in range(transactions):
            before = set(self._present)
            sql += ["begin;\n", *(self._change() for _ in range(self.random.randint(1, 4)))]
            is_kept = self.random.random() < 0.9
            if not is_kept:
                self._present = before
            sql.append("commit;\n" if is_kept else "rollback;\n")
        self._server.run("".join(sql), DATABASE)

    def bootstrap(self) -> None:
        """Ask Maxwell to tell all rows."""
        self._server.run(
            f"insert into bootstrap (database_name, table_name) values ('{DATABASE}', '{TABLE}')", "maxwell"
        )

    def mark(self, region: str) -> None:
        """Insert and delete a row of ``region``: whoever is told of its delete has been told of all before."""
        self._server.run(
            f"insert into {TABLE} (region, id) values ('{region}', 0); delete from {TABLE} where region = '{region}'",
            DATABASE,
        )

    def rows(self) -> dict[Key, Mapping[str, Any]]:
        """All rows by key, as Iceberg is to have them."""
        shown = ["region", "id", *(column.shown.format(column.name) for column in COLUMNS)]
        hexed = ", ".join(f"hex(convert({one} using utf8mb4))" for one in shown)
        found = {}
        for region, number, *values in self._server.run(f"select {hexed} from {TABLE}", DATABASE):
            key = _plain(region), int(_plain(number))
            read = zip(COLUMNS, values, strict=True)
            row = {one.name: None if text == NULL else one.read(_plain(text)) for one, text in read}
            found[key] = {"region": key[0], "id": key[1], **row}
        return found

    def _change(self) -> str:
        draw = self.random.random()
        if draw < 0.3 or not self._present:
            return self._insert()
        key = self.random.choice(sorted(self._present))
        where = f"where region = {as_sql(key[0])} and id = {key[1]};\n"
        if draw < 0.75:
            return self._update(where)
        if draw < 0.8:
            return self._shift()
        if draw < 0.88:
            return self._move(key, where)
        self._count("deletes")
        self._present.remove(key)
        return f"delete from {TABLE} {where}"

    def _insert(self) -> str:
        key = self._absent()
        if key is None:
            return ""
        self._count("inserts")
        self._present.add(key)
        values = ", ".join(self._value(column) for column in COLUMNS)
        return f"insert into {TABLE} values ({as_sql(key[0])}, {key[1]}, {values});\n"

    def _update(self, where: str) -> str:
        self._count("updates")
        few = self.random.sample(COLUMNS, self.random.randint(1, 5))
        return f"update {TABLE} set {', '.join(f'{one.name} = {self._value(one)}' for one in few)} {where}"

    def _move(self, old: Key, where: str) -> str:
        new = self._absent()
        if new is None:
            return ""
        self._count("changed keys")
        self._present.remove(old)
        self._present.add(new)
        return f"update {TABLE} set region = {as_sql(new[0])}, id = {new[1]} {where}"

    def _shift(self) -> str:
        """Move the keys of a region along, in one event: most keys are left by one row and taken by another."""
        region = self.random.choice(REGIONS)
        self._count("shifts")
        self._present = {(one, number + (one == region)) for one, number in self._present}
        return f"update {TABLE} set id = id + 1 where region = {as_sql(region)} order by id desc;\n"

    def _absent(self) -> Key | None:
        key = self.random.choice(REGIONS), self.random.randrange(IDS)
        return None if key in self._present else key

    def _value(self, column: Column) -> str:
        return "null" if self.random.random() < 0.15 else column.make(self.random)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def _plain(text: str) -> str:
    return bytes.fromhex(text).decode()

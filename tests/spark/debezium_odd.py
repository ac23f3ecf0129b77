"""Odd values of PostgreSQL's types, one a row, and what each setting of Debezium is known to make of them.

Used by the soak of Debezium, which tries the same values in each run: in a snapshot and in the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fnmatch import fnmatch
from typing import Any
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.spark.postgres_columns import list_of

TABLE = "odd"
#: Rows of the stream have ids from here on.
STREAMED = 1000
TYPES = (
    "create extension hstore",
    "create extension citext",
    "create extension ltree",
    "create type pair as (a integer, b text)",
    "create domain short_text as varchar(5)",
)


@dataclass(frozen=True)
class Odd:
    """The value ``literal`` of the type ``sql``; ``value``: what Iceberg is to have, None where it has none such.

    ``known``: what it has instead by pattern of ``setting/origin``; ``way_out``: how to avoid that.
    """

    sql: str
    literal: str
    kind: IcebergType
    value: Any = None
    known: Mapping[str, Any] = field(default_factory=dict)
    way_out: str = "none"

    @property
    def column(self) -> str:
        """The column of its type."""
        letters = "".join(letter if letter.isalnum() else "_" for letter in f"{self.sql}_{self.kind}")
        return f"c_{letters.lower()}"

    def stored(self, setting: str, origin: str) -> Any:
        """What Iceberg is known to have. Raises KeyError where nothing is known."""
        for pattern, value in self.known.items():
            if fnmatch(f"{setting}/{origin}", pattern):
                return value
        raise KeyError(setting)


def _array(kind: IcebergType) -> IcebergType:
    return list_of(9000, kind)


def _local(text: str) -> datetime:
    return datetime.fromisoformat(text)


_ALL_NULL: Mapping[str, Any] = {"*": None}
_PRECISE: Mapping[str, Any] = {"schemas/*": None, "avro/*": None}
_NANOS: Mapping[str, Any] = {"flatplain/*": None}
_STRING = "`decimal.handling.mode=string`"
_STRING_NAN = "`decimal.handling.mode=string`, which writes `NAN`"
_MICROS = "`time.precision.mode=microseconds`"
_SCHEMAS = "let the converter write schemas: it is refused then"
_BINARY = "declare `binary`, and let the converter write schemas"
_JSONB = "keep it as `jsonb` in the database"
_UNKNOWN = "keep it as `text` in the database: the job's message names the column as one without values"
TEXT, NUMBER, DAY = StringType(), DecimalType(20, 3), DateType()
LOCAL, INSTANT = TimestampType(), TimestamptzType()
ODD = (
    Odd("numeric", "1.5", NUMBER, Decimal("1.500")),
    Odd("numeric", "1.50", TEXT, "1.50", {"schemas/*": "1.5", "avro/*": "1.5"}, "`decimal.handling.mode=string`"),
    Odd("numeric", "NaN", NUMBER, None, _PRECISE, _STRING),
    Odd("numeric", "Infinity", NUMBER, None, _PRECISE, _STRING),
    Odd("numeric", "NaN", TEXT, "NaN", {**_PRECISE, "*": "NAN"}, _STRING_NAN),
    Odd("numeric(9,2)", "NaN", DecimalType(9, 2), None, _PRECISE, _STRING),
    Odd("numeric(20,2)", "123456789012345678.25", DecimalType(20, 2), Decimal("123456789012345678.25")),
    Odd("money", "12.34", DecimalType(12, 2), Decimal("12.34")),
    Odd("bit(1)", "1", BooleanType(), True),
    Odd("bit(16)", "1000000000000001", BinaryType(), b"\x80\x01", {"*plain/*": b"\x01\x80"}, _SCHEMAS),
    Odd("varbit", "110000000001", BinaryType(), b"\xc0\x10", {"*plain/*": b"\x01\x0c"}, _SCHEMAS),
    Odd("bytea", r"\x00ff10", BinaryType(), b"\x00\xff\x10"),
    Odd("bytea", r"\x69b71d79f8", TEXT, None, {"flatplain/*": "69b71d79f8", "*": "abcdefg="}, _BINARY),
    Odd("interval", "1 year 2 mons", LongType(), None, {"*": 36817200000000}, "`interval.handling.mode=string`"),
    Odd("interval", "1 year 2 mons 3 days 04:05:06.789", TEXT),
    Odd("inet", "::1/128", TEXT, "::1"),
    Odd("cidr", "10.0.0.0/8", TEXT, "10.0.0.0/8"),
    Odd("macaddr", "08:00:2b:01:02:03", TEXT, "08:00:2b:01:02:03"),
    Odd("hstore", '"a"=>"1", "b"=>NULL', MapType(9001, TEXT, 9002, TEXT, False), [("a", "1"), ("b", None)]),
    Odd("ltree", "Top.Science", TEXT, "Top.Science"),
    Odd("citext", "Ab", TEXT, "Ab"),
    Odd("xml", "<a>1</a>", TEXT, "<a>1</a>"),
    Odd("tsvector", "fat cat", TEXT, "'cat' 'fat'"),
    Odd("int4range", "[1,5)", TEXT, "[1,5)"),
    Odd("int4multirange", "{[1,5)}", TEXT, "{[1,5)}", _ALL_NULL, _UNKNOWN),
    Odd('"char"', "x", TEXT, "x"),
    Odd("name", "somename", TEXT, "somename", {"*/stream": None}),
    Odd("short_text", "abc", TEXT, "abc"),
    Odd("char(6)", "ab", TEXT, "ab    "),
    Odd("point", "(1.5,-2)", TEXT, "(1.5,-2)",
        {"*": '{"x":1.5,"y":-2.0,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAADA","srid":null}'}),
    Odd("box", "(1,1),(0,0)", TEXT, "(1,1),(0,0)", _ALL_NULL, _UNKNOWN),
    Odd("pair", "(1,x)", TEXT, "(1,x)", _ALL_NULL, _UNKNOWN),
    Odd("xid8", "123", LongType(), 123, _ALL_NULL, _UNKNOWN),
    Odd("pg_lsn", "16/B374D848", TEXT, "16/B374D848", _ALL_NULL, _UNKNOWN),
    Odd("oid", "4294967295", LongType(), 4294967295),
    Odd("jsonb", '{"a": 12345678901234567890.50}', TEXT, '{"a": 12345678901234567890.50}'),
    Odd("uuid", "00000000-0000-0000-0000-000000000000", UUIDType(), str(UUID(int=0))),
    Odd("date", "0044-03-15 BC", DAY, None, {"*/snapshot": date(44, 3, 15)}),
    Odd("date", "0001-01-01", DAY, date(1, 1, 1)),
    Odd("date", "0500-01-01", DAY, date(500, 1, 1)),
    Odd("date", "1582-10-10", DAY, date(1582, 10, 10), {"*/snapshot": date(1582, 10, 20)}),
    Odd("date", "10000-01-01", DAY),
    Odd("date", "infinity", DAY),
    Odd("date", "-infinity", DAY),
    Odd("timestamp", "0044-03-15 BC", LOCAL, None, _NANOS, _MICROS),
    Odd("timestamp", "1582-10-10 01:02:03.000004", LOCAL, _local("1582-10-10 01:02:03.000004"), _NANOS, _MICROS),
    Odd("timestamp", "10000-01-01", LOCAL, None, _NANOS, _MICROS),
    Odd("timestamp", "infinity", LOCAL),
    Odd("timestamp", "-infinity", LOCAL),
    Odd("timestamp", "2024-05-01 12:34:56.123456", LOCAL, _local("2024-05-01 12:34:56.123456")),
    Odd("timestamp(3)", "2024-05-01 12:34:56.123", LOCAL, _local("2024-05-01 12:34:56.123")),
    Odd("timestamptz", "0044-03-15 BC", INSTANT),
    Odd("timestamptz", "1582-10-10 01:02:03.000004+00", INSTANT, datetime(1582, 10, 10, 1, 2, 3, 4, tzinfo=UTC)),
    Odd("timestamptz", "10000-01-01", INSTANT),
    Odd("timestamptz", "infinity", INSTANT),
    Odd("timestamptz", "-infinity", INSTANT),
    Odd("time", "12:34:56.123456", TimeType(), time(12, 34, 56, 123456)),
    Odd("time", "24:00", TimeType(), None, {"flat/*": time()}, _MICROS),
    Odd("time", "24:00", TEXT, "24:00:00.000000", {"flat/*": "00:00:00Z"}, _MICROS),
    Odd("timetz", "12:34:56+02", TEXT, "12:34:56+02", {"*": "10:34:56Z"}),
    Odd("timetz", "12:34:56+02", TimeType(), None, {"*": time(10, 34, 56)}),
    Odd("integer[]", "{1,NULL}", _array(LongType()), [1, None]),
    Odd("integer[]", "{{1,2},{3,4}}", _array(LongType()), None, {"*": [None, None]}, _JSONB),
    Odd("text[]", "{{a,b},{c,d}}", _array(TEXT)),
    Odd("text[]", '{a,NULL,""}', _array(TEXT), ["a", None, ""]),
    Odd("mood[]", "{sad,NULL}", _array(TEXT), ["sad", None], _ALL_NULL),
    Odd("mood[]", "{sad}", _array(TEXT), ["sad"]),
    Odd("numeric[]", "{1.5,NULL}", _array(NUMBER), [Decimal("1.500"), None]),
    Odd("numeric(9,2)[]", "{1.5,NaN}", _array(DecimalType(9, 2)), None, _ALL_NULL),
    Odd("double precision[]", "{0.5,NULL}", _array(DoubleType()), [0.5, None]),
    Odd("date[]", "{2024-05-01,infinity}", _array(DAY)),
    Odd("date[]", "{1582-10-10,0001-01-01}", _array(DAY), [date(1582, 10, 10), date(1, 1, 1)],
        {"*": [date(1582, 10, 20), date(1, 1, 1)]}),
    Odd("timestamp[]", '{"2024-05-01 12:34:56.123456"}', _array(LOCAL), [_local("2024-05-01 12:34:56.123456")]),
    Odd("timestamptz[]", '{"2024-05-01 12:34:56.123456+00"}', _array(INSTANT),
        [datetime(2024, 5, 1, 12, 34, 56, 123456, tzinfo=UTC)]),
    Odd("time[]", "{12:34:56.123456}", _array(TEXT), ["12:34:56.123456"],
        {"plain/*": ["12:34:56.123000"]}),
    Odd("interval[]", '{"1 day"}', _array(TEXT), ["1 day"], _ALL_NULL),
    Odd("bytea[]", r'{"\\x00ff"}', _array(BinaryType()), [b"\x00\xff"]),
    Odd("uuid[]", "{00000000-0000-0000-0000-00000000000a}", _array(UUIDType()), [str(UUID(int=10))]),
    Odd("jsonb[]", '{"{\\"a\\": 1}"}', _array(TEXT), ['{"a": 1}']),
    Odd("inet[]", "{::1}", _array(TEXT), ["::1"]),
)  # fmt: skip
COLUMNS: Mapping[str, Odd] = {odd.column: odd for odd in ODD}


def statements() -> list[str]:
    """Those that make the table."""
    columns = ", ".join(f"{name} {odd.sql}" for name, odd in COLUMNS.items())
    return [*TYPES, f"create table {TABLE} (id integer primary key, {columns})"]


def inserts(first: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Statements with their values that insert all of ODD, a row each, with ids from ``first`` on."""
    return [
        (f"insert into {TABLE} (id, {odd.column}) values (%s, %s::{odd.sql})", (first + at, odd.literal))
        for at, odd in enumerate(ODD)
    ]


def schema() -> Schema:
    """Of the table that a user declares."""
    fields = [NestedField(2 + at, name, odd.kind) for at, (name, odd) in enumerate(COLUMNS.items())]
    return Schema(NestedField(1, "id", LongType(), required=True), *fields)

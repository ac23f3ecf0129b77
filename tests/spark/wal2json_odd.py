"""Odd values and events of PostgreSQL, the same in each run of the soak, and what is known to become of them.

Used by the soak of wal2json, which writes what is refused or changed into docs/guide/feeds.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    UUIDType,
)
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.feeds import EqualRows, Infinity, NonFinite

#: What the server has before any of them.
PRELUDE = (
    "create extension hstore",
    "create extension citext",
    "create type feeling as enum ('sad', 'o''k')",
    "create type pair as (a int, b text)",
    "create domain fee as numeric(10,2)",
    "create domain share as float8",
    "create domain raw as bytea",
    'create schema "Odd"',
    'create type "Odd"."T x" as enum (\'a\')',
)


def _schema(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", kind))


def _items(kind: IcebergType) -> ListType:
    return ListType(3, kind, element_required=False)


@dataclass(frozen=True)
class Odd:
    """Statements on tables that ``{t}`` begins the names of, and what the feed leads to.

    ``what``: as the guide names it. ``schema``: of the table in Iceberg. ``source``: what the merge declares, and
    ``options``: those of wal2json that differ, ``session``: SQL settings of the role that reads the slot; ``setting``
    says these for the guide. ``known``: it does not arrive as it is, and nothing tells: what becomes of it; None where
    it must arrive or be refused. ``way_out``: of what is known.
    """

    what: str
    statements: tuple[str, ...]
    schema: Schema
    source: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    setting: str = ""
    keys: tuple[str, ...] = ("id",)
    known: str | None = None
    way_out: str = "none"

    @property
    def shown(self) -> str:
        """SQL of what Iceberg is to have: of infinite dates the text, because psycopg2 has the last and first ones."""
        is_shown = isinstance(self.schema.find_type("v"), StringType) or "infinity" in "".join(self.statements)
        is_text = any("v text" in statement for statement in self.statements)
        return "select id, format('%s', v) as v from {t}" if is_shown and not is_text else "select * from {t}"


def _value(sql: str, literal: str, kind: IcebergType, **more: Any) -> Odd:
    shown = literal if len(literal) < 40 else f"{literal[:20]}…"
    into = "" if more.get("setting") else f", into `{kind}`"
    statements = (f"create table {{t}} (id int primary key, v {sql})", f"insert into {{t}} values (1, '{literal}')")
    return Odd(f"`{sql}` `{shown}`{into}", statements, _schema(kind), **more)


_NULL_NUMBERS: Mapping[str, Any] = {"source": {"non_finite": NonFinite.NULL}, "setting": "`source.nonFinite: Null`"}
_NULL_TIMES: Mapping[str, Any] = {"source": {"infinity": Infinity.NULL}, "setting": "`source.infinity: Null`"}
_MAX_TIMES: Mapping[str, Any] = {"source": {"infinity": Infinity.MAX}, "setting": "`source.infinity: Max`"}
_TO_NULL: Mapping[str, Any] = {"known": "null", "way_out": "`numeric-data-types-as-string` of wal2json 2.6"}
VALUES = (
    *(
        _value(sql, number, kind, **more)
        for sql, kind in (
            ("numeric", DecimalType(20, 2)),
            ("numeric", StringType()),
            ("real", FloatType()),
            ("double precision", DoubleType()),
        )
        for number in ("NaN", "Infinity", "-Infinity")
        for more in ({}, {**_NULL_NUMBERS, **_TO_NULL})
    ),
    _value("fee", "NaN", DecimalType(10, 2)),
    _value("fee", "NaN", DecimalType(10, 2), **_NULL_NUMBERS, known="null", way_out="a column of type `string`"),
    _value("fee", "1.50", DecimalType(10, 2)),
    _value("share", "NaN", DoubleType()),
    _value("share", "-0", DoubleType()),
    _value("numeric", "12345678901234567890123456789012345678.5", DecimalType(38, 2)),
    _value("numeric", "12345678901234567890123456789012345678.5", StringType()),
    _value("numeric", "1.005", DecimalType(9, 2)),
    _value("numeric", "1e300", DoubleType()),
    _value("numeric", "1.50", StringType()),
    _value("real", "16777217", DoubleType()),
    _value("real", "1.1", FloatType()),
    _value("double precision", "-0", DoubleType()),
    _value("double precision", "1e-320", DoubleType()),
    _value("double precision", "1e22", StringType()),
    _value("double precision", "0.30000000000000004", DoubleType(), session="set extra_float_digits = 0",
           setting="`extra_float_digits` of 0", known="0.3", way_out="`extra_float_digits` of 1 or more, the default"),
    _value("bigint", "-9223372036854775808", LongType()),
    _value("bigint", "9007199254740993", DecimalType(20, 0)),
    _value("oid", "4294967295", LongType()),
    _value("money", "$1,234.50", StringType()),
    _value("money", "$1,234.50", DecimalType(9, 2)),
    _value("date", "infinity", DateType()),
    _value("date", "infinity", DateType(), **_NULL_TIMES, known="null", way_out="a column of type `string`"),
    _value("date", "-infinity", DateType(), **_MAX_TIMES, known="0001-01-01", way_out="a column of type `string`"),
    _value("date", "infinity", StringType()),
    _value("date", "0044-03-15 BC", DateType()),
    _value("date", "0044-03-15 BC", StringType()),
    _value("date", "10000-01-01", DateType()),
    _value("date", "1582-10-10", DateType()),
    _value("date", "1582-10-10", DateType(), session="set datestyle = 'SQL, DMY'", setting="`datestyle` of `SQL, DMY`"),
    _value("timestamp", "1582-10-10 01:02:03.000004", TimestampType()),
    _value("timestamp", "-infinity", TimestampType()),
    _value("timestamp", "infinity", TimestampType(), **_MAX_TIMES, known="9999-12-31 23:59:59.999999",
           way_out="a column of type `string`"),
    _value("timestamp", "0044-03-15 10:00 BC", TimestampType()),
    _value("timestamptz", "infinity", TimestamptzType()),
    _value("timestamptz", "infinity", TimestamptzType(), **_NULL_TIMES, known="null",
           way_out="a column of type `string`"),
    _value("timestamptz", "1800-05-01 10:00:00.5+00", TimestamptzType()),
    _value("timestamptz", "2024-05-01 10:00:00+00", TimestampType()),
    _value("timestamptz", "9999-12-31 23:30:00+00", TimestamptzType()),
    _value("time", "24:00", StringType()),
    _value("time", "24:00", TimeType()),
    _value("time", "23:59:59.999999", TimeType()),
    _value("timetz", "12:34:00+02", StringType()),
    _value("timetz", "12:34:00+02", TimeType()),
    _value("interval", "1 mon 2 days", StringType()),
    _value("interval", "1 mon 2 days", StringType(), session="set intervalstyle = 'iso_8601'",
           setting="`intervalstyle` of `iso_8601`", known="P1M2D", way_out="one `intervalstyle` for all"),
    _value("bytea", "\\x00ff", BinaryType()),
    _value("bytea", "\\x", BinaryType()),
    _value("bytea", "\\x00ff", StringType()),
    _value("bytea", "\\xdeadbeef", BinaryType(), session="set bytea_output = 'escape'",
           setting="`bytea_output` of `escape`"),
    _value("bytea", "\\x787864656164", BinaryType(), session="set bytea_output = 'escape'",
           setting="`bytea_output` of `escape`", known="x'dead'", way_out="`bytea_output` of `hex`, the default"),
    _value("raw", "\\x00ff", BinaryType()),
    _value("bit(9)", "101000000", StringType()),
    _value("bit(8)", "10100000", BinaryType()),
    _value("bit(1)", "1", BooleanType()),
    _value("varbit", "101", StringType()),
    _value("char(6)", "ab", StringType()),
    _value("boolean", "true", StringType()),
    _value("integer[]", "{1,NULL,3}", _items(IntegerType())),
    _value("integer[]", "{{1,2},{3,4}}", _items(IntegerType())),
    _value("integer[]", "{{1,2},{3,4}}", StringType()),
    _value("integer[]", "[2:3]={5,6}", _items(IntegerType())),
    _value("numeric[]", "{1.50,NaN}", _items(DecimalType(9, 2))),
    _value("numeric[]", "{1.50,NaN}", _items(DecimalType(9, 2)), **_NULL_NUMBERS, known="[1.50, null]",
           way_out="a column of type `string`"),
    _value("double precision[]", "{NaN,-0,1.1}", _items(DoubleType())),
    _value("text[]", '{a,NULL,"NULL","","b c","q\\"\\\\"}', _items(StringType())),
    _value("feeling[]", "{sad,NULL,o''k}", _items(StringType())),
    _value("timestamptz[]", '{"2024-05-01 10:00+00",NULL}', _items(TimestamptzType())),
    _value("bytea[]", '{"\\\\x00ff",NULL}', _items(BinaryType())),
    _value("uuid[]", "{00000000-0000-0000-0000-000000000001}", _items(UUIDType())),
    _value("int2vector", "1 2", _items(IntegerType())),
    _value("json", '{"a" :1, "a":2}', StringType()),
    _value("jsonb", '{"a":12345678901234567890.10}', StringType()),
    _value("hstore", "a=>1, b=>NULL", StringType()),
    _value("citext", "Ab", StringType()),
    _value("pair", '(1,"a b")', StringType()),
    _value("numrange", "[1.5,2)", StringType()),
    _value("tsvector", "a fat cat", StringType()),
    _value("name", "some", StringType()),
    _value("xid8", "123", LongType()),
    _value("pg_lsn", "16/B374D848", StringType()),
    _value('"Odd"."T x"', "a", StringType()),
)  # fmt: skip

_TEXT = _schema(StringType())
_TABLE = "create table {t} (id int primary key, v text)"
_ROW = "insert into {t} values (1, 'a'), (2, 'b')"
_CHANGES: Sequence[str] = ("update {t} set v = 'c' where id = 1", "delete from {t} where id = 2")
_LARGE = "(select string_agg(md5(n::text), '') from generate_series(1, 200) n)"
_PARTS = (
    "create table {t} (id int primary key, v text) partition by range (id)",
    "create table {t}_1 partition of {t} for values from (1) to (2)",
    "create table {t}_2 partition of {t} for values from (2) to (9)",
)


def _option(name: str, value: str, **more: Any) -> Odd:
    return Odd("any change", (_TABLE, _ROW), _TEXT, options={name: value}, setting=f"`{name}={value}`", **more)


EVENTS = (
    _option("format-version", "1"),
    _option("include-lsn", "false"),
    _option("include-pk", "false"),
    _option("include-pk", "false", source={"replica_identity": ("id",)}),
    _option("include-types", "false"),
    _option("include-schemas", "false"),
    _option("include-transaction", "false"),
    _option("include-typmod", "false"),
    _option("include-default", "true"),
    _option("pretty-print", "true"),
    Odd("`UPDATE` and `DELETE`", (_TABLE, _ROW, *_CHANGES), _TEXT),
    Odd("`UPDATE` and `DELETE`", (_TABLE, _ROW, *_CHANGES), _TEXT, options={"actions": "insert"},
        setting="`actions=insert`", known="nothing comes: the rows stay as they were", way_out="leave `actions` out"),
    Odd("`ON DELETE CASCADE`", ("create table {t}_p (id int primary key)", "insert into {t}_p values (1), (2)",
        "create table {t} (id int primary key references {t}_p on delete cascade, v text)", _ROW,
        "delete from {t}_p where id = 1"), _TEXT, source={"tables": ("public.{t}",)}),
    Odd("table without a primary key", ("create table {t} (id int, v text)", _ROW, *_CHANGES), _TEXT),
    Odd("table without a primary key and `REPLICA IDENTITY FULL`",
        ("create table {t} (id int, v text)", "alter table {t} replica identity full", _ROW, *_CHANGES), _TEXT),
    Odd("table without a primary key and `REPLICA IDENTITY FULL`",
        ("create table {t} (id int, v text)", "alter table {t} replica identity full", _ROW, *_CHANGES), _TEXT,
        source={"replica_identity": ("id",)}, setting="`source.replicaIdentity`"),
    Odd("deferrable primary key", ("create table {t} (id int primary key deferrable, v text)", _ROW, *_CHANGES), _TEXT),
    Odd("`REPLICA IDENTITY NOTHING` beside a primary key",
        (_TABLE, "alter table {t} replica identity nothing", _ROW, *_CHANGES), _TEXT,
        known="updates and deletes have no message: the rows stay as they were",
        way_out="`ALTER TABLE … REPLICA IDENTITY DEFAULT`, and load the table again"),
    Odd("`UPDATE` of a table whose replica identity does not have the keys",
        ("create table {t} (id int primary key, u int unique not null, v text)", "insert into {t} values (1, 7, 'a')",
         "update {t} set u = 8"),
        Schema(NestedField(1, "u", LongType(), required=True), NestedField(2, "v", StringType())), keys=("u",)),
    Odd("`UPDATE` of a key that leaves a large value as it is",
        (_TABLE, "alter table {t} alter v set storage external", f"insert into {{t}} values (1, {_LARGE})",
         "update {t} set id = 2"), _TEXT),
    Odd("`UPDATE` of a key that leaves a large value as it is, with `REPLICA IDENTITY FULL`",
        (_TABLE, "alter table {t} alter v set storage external", "alter table {t} replica identity full",
         f"insert into {{t}} values (1, {_LARGE})", "update {t} set id = 2"), _TEXT),
    Odd("`TRUNCATE`", (_TABLE, _ROW, "truncate {t}"), _TEXT),
    Odd("`TRUNCATE`", (_TABLE, _ROW, "truncate {t}"), _TEXT, source={"allow_truncate": True},
        setting="`source.allowTruncate: true`"),
    Odd("partitions", (*_PARTS, _ROW, "update {t} set id = 3 where id = 1"), _TEXT),
    Odd("partitions", (*_PARTS, _ROW, "update {t} set id = 3 where id = 1"), _TEXT,
        source={"tables": ("public.{t}_*",)}, setting="`source.tables`"),
    Odd("`TRUNCATE` of a partition", (*_PARTS, _ROW, "truncate {t}_1"), _TEXT,
        source={"tables": ("public.{t}_*",), "allow_truncate": True}, setting="`source.tables`"),
    Odd("two tables in a file", (_TABLE, "create table {t}_b (id int primary key)", _ROW,
        "insert into {t}_b values (1)"), _TEXT),
    Odd("two tables in a file", (_TABLE, "create table {t}_b (id int primary key)", _ROW,
        "insert into {t}_b values (1)"), _TEXT, source={"tables": ("public.{t}",)}, setting="`source.tables`"),
    Odd("unlogged table", ("create unlogged table {t} (id int primary key, v text)", _ROW), _TEXT,
        known="nothing comes", way_out="`ALTER TABLE … SET LOGGED`, and load the table again"),
    Odd("`ADD COLUMN … DEFAULT`", (_TABLE, _ROW, "alter table {t} add n int default 5",
        "update {t} set v = 'c' where id = 1"), _TEXT, source={"unknown_columns": UnknownColumns.ADD},
        setting="`source.unknownColumns: Add`", known="null in rows that are not changed afterwards",
        way_out="`UPDATE` all rows, or load the table again"),
    Odd("`ALTER COLUMN … TYPE … USING` another value",
        (_TABLE, _ROW, "alter table {t} alter v type text using v || 'x'"), _TEXT,
        known="the rows stay as they were", way_out="`UPDATE` all rows, or load the table again"),
    Odd("`DROP COLUMN`, then `UPDATE`", (_TABLE, "alter table {t} add n int", _ROW, "alter table {t} drop n",
        "update {t} set v = 'c'"), _TEXT),
    Odd("equal rows", ("create table {t} (id int, v text)", "alter table {t} replica identity full", _ROW, _ROW),
        _TEXT, keys=("id", "v"), source={"replica_identity": ("id", "v")}),
    Odd("equal rows", ("create table {t} (id int, v text)", "alter table {t} replica identity full", _ROW, _ROW),
        _TEXT, keys=("id", "v"), source={"replica_identity": ("id", "v"), "equal_rows": EqualRows.COLLAPSE},
        setting="`source.equalRows: Collapse`", known="one of them", way_out="add a primary key"),
)  # fmt: skip

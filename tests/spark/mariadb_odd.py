"""Odd values and events of MariaDB and MySQL, the same in each run of the soak, and what is known to become of them.

Used by the soak of Maxwell, which writes what is refused or changed into docs/guide/feeds.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
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
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.feeds import EqualRows

_NO_ZERO = "--output_null_zerodates=true"


@dataclass(frozen=True)
class Read:
    """``shown``: SQL of a value's text; ``value``: the value of that text."""

    value: Callable[[str], Any]
    shown: str = "{}"


_READ: Mapping[type[IcebergType], Read] = {
    BooleanType: Read(lambda text: text == "1", "{} + 0"),
    IntegerType: Read(int, "{} + 0"),
    LongType: Read(int, "{} + 0"),
    FloatType: Read(float),
    DoubleType: Read(float),
    DecimalType: Read(Decimal, "{} + 0"),
    StringType: Read(str),
    DateType: Read(lambda text: _or_text(date.fromisoformat, text)),
    TimeType: Read(lambda text: _or_text(time.fromisoformat, text)),
    TimestampType: Read(lambda text: _or_text(datetime.fromisoformat, text)),
    TimestamptzType: Read(lambda text: _or_text(lambda told: datetime.fromisoformat(told).replace(tzinfo=UTC), text)),
    BinaryType: Read(bytes.fromhex, "hex({})"),
    ListType: Read(lambda text: text.split(",") if text else []),
}


def _or_text(read: Callable[[str], Any], text: str) -> Any:
    """What Python has for ``text``; the text where it has none."""
    try:
        return read(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Odd:
    """Statements on tables that ``{t}`` begins the names of, and what the feed leads to.

    ``what``: as the guide names it. ``schema``: of the table in Iceberg. ``source``: what the merge declares;
    ``setting``: of Maxwell if it begins with dashes, else that of the merge or the session, for the guide. ``known``:
    it does not arrive as it is, and nothing tells: what becomes of it; None where it must arrive or be refused.
    ``way_out``: of what is known. ``is_gone``: the database has no rows of it afterwards.
    """

    what: str
    statements: tuple[str, ...]
    schema: Schema
    source: Mapping[str, Any] = field(default_factory=dict)
    setting: str = ""
    keys: tuple[str, ...] = ("id",)
    known: str | None = None
    way_out: str = "none"
    is_gone: bool = False
    shown: str = ""

    @property
    def shown_setting(self) -> str:
        """For the guide."""
        return f"`{self.setting.removeprefix('--')}`" if self.setting.startswith("--") else self.setting

    def reader(self, column: str) -> Read:
        """How the value of ``column`` is read."""
        read = _READ[type(self.schema.find_type(column))]
        return Read(read.value, self.shown) if self.shown and column == "v" else read


def _schema(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", kind))


def _value(sql: str, literal: str, kind: IcebergType, **more: Any) -> Odd:
    shown = literal if len(literal) < 40 else f"{literal[:20]}…"
    statements = (f"create table {{t}} (id int primary key, v {sql})", f"insert into {{t}} values (1, {literal})")
    return Odd(f"`{sql}` `{shown}`, into `{kind}`", statements, _schema(kind), **more)


_AS_NUMBER = "keep such values as a number"
_SET = ListType(3, StringType(), element_required=False)
VALUES = (
    _value("tinyint unsigned", "255", IntegerType()),
    _value("tinyint(1)", "2", IntegerType()),
    _value("tinyint(1)", "2", BooleanType()),
    _value("boolean", "true", BooleanType()),
    _value("mediumint unsigned", "16777215", IntegerType()),
    _value("int unsigned", "4294967295", LongType()),
    _value("int unsigned", "4294967295", IntegerType()),
    _value("int unsigned zerofill", "5", LongType()),
    _value("bigint unsigned", "18446744073709551615", DecimalType(20, 0)),
    _value("bigint unsigned", "18446744073709551615", LongType()),
    _value("bigint unsigned", "18446744073709551615", StringType()),
    _value("bigint", "-9223372036854775808", LongType()),
    _value("decimal(65,30)", "12345678901234567890123456789012345.5", DecimalType(38, 3)),
    _value("decimal(65,30)", "0.000000000000000000000000000001", DecimalType(38, 30)),
    _value("decimal(10,2)", "1.50", DecimalType(10, 2)),
    _value("decimal(10,2)", "1.55", DecimalType(10, 1)),
    _value("float", "16777216", FloatType(), shown="cast({} as double)"),
    _value("float", "3.4028234e38", FloatType(), shown="cast({} as double)"),
    _value("double", "1.7976931348623157e308", DoubleType()),
    _value("double", "-0e0", DoubleType()),
    _value("bit(1)", "1", BooleanType()),
    _value("bit(10)", "b'1000000001'", IntegerType()),
    _value("bit(64)", "b'1111111111111111111111111111111111111111111111111111111111111111'", DecimalType(20, 0)),
    _value("date", "'0000-00-00'", DateType()),
    _value("date", "'0000-00-00'", DateType(), setting=_NO_ZERO, known="null", way_out="forbid them (`NO_ZERO_DATE`)"),
    _value("date", "'2024-00-00'", DateType()),
    _value("date", "'1582-10-10'", DateType()),
    _value("date", "'1582-10-10'", StringType(), known="1582-10-20", way_out="keep such days as text in the database"),
    _value("date", "'1582-10-04'", DateType()),
    _value("date", "'1582-10-25'", DateType()),
    _value("date", "'0001-01-01'", DateType()),
    _value("date", "'9999-12-31'", DateType()),
    _value("datetime", "'0000-00-00 00:00:00'", TimestampType()),
    _value("datetime", "'0000-00-00 00:00:00'", TimestampType(), setting=_NO_ZERO, known="null",
           way_out="forbid them (`NO_ZERO_DATE`)"),
    _value("datetime(6)", "'1582-10-10 01:02:03.000004'", TimestampType()),
    _value("datetime(6)", "'9999-12-31 23:59:59.999999'", TimestampType()),
    _value("datetime(6)", "'0001-01-01 00:00:00.000001'", TimestampType()),
    _value("timestamp(6) null", "'1970-01-01 00:00:01'", TimestamptzType()),
    _value("timestamp(6) null", "'2038-01-19 03:14:07.999999'", TimestamptzType()),
    _value("timestamp null", "'0000-00-00 00:00:00'", TimestamptzType()),
    _value("time", "'12:34:56'", StringType()),
    _value("time(6)", "'23:59:59.999999'", TimeType()),
    _value("time", "'-00:00:01'", StringType(), known="16:04:03", way_out=_AS_NUMBER),
    _value("time", "'24:00:00'", StringType(), known="00:00:00", way_out=_AS_NUMBER),
    _value("time", "'838:59:59'", StringType(), known="22:59:59", way_out=_AS_NUMBER),
    _value("time", "'-838:59:59'", TimeType(), known="17:04:05", way_out=_AS_NUMBER),
    _value("year", "2155", IntegerType()),
    _value("year", "0", IntegerType(), known="1900", way_out="`SMALLINT`"),
    _value("char(6)", "'ab  '", StringType()),
    _value("varchar(9)", "'ab  '", StringType()),
    _value("varchar(9) character set latin1", "'äß'", StringType()),
    _value("varchar(9) character set ucs2", "'äß'", StringType()),
    _value("enum('a','b')", "'b'", StringType()),
    _value("enum('a','b')", "0", StringType(), known="null", way_out="forbid it (`STRICT_ALL_TABLES`)"),
    _value("enum('','b')", "1", StringType()),
    _value("set('a','b','c')", "'a,c'", _SET),
    _value("set('a','b','c')", "'a,c'", StringType(), known='`["a","c"]`', way_out="a column of type `list<string>`"),
    _value("set('a','b','c')", "''", _SET),
    _value("binary(4)", "x'61'", BinaryType(), known="one byte", way_out="`VARBINARY`"),
    _value("varbinary(4)", "x'6100'", BinaryType()),
    _value("tinyblob", "x'00ff'", BinaryType()),
    _value("blob", "x''", BinaryType()),
    _value("blob", "x'00ff'", StringType(), known="`AP8=`, in base64", way_out="a column of type `binary`"),
    _value("longtext", "'{\"a\" :  1.50}'", StringType()),
    _value("longtext", "'12345678901234567890.10'", StringType()),
    _value("longtext", "'\"text\"'", StringType()),
    _value("text", "'{\"a\":1}'", StringType()),
    _value("point", "point(1, 0.5)", StringType(), shown="replace(st_astext({}), 'POINT(', 'POINT (')"),
)  # fmt: skip

_TABLE = "create table {t} (id int primary key, v varchar(9))"
_ROW = "insert into {t} values (1, 'a'), (2, 'b')"
_CHANGES = ("update {t} set v = 'c' where id = 1", "delete from {t} where id = 2")
_TEXT = _schema(StringType())
_STAY: Mapping[str, Any] = {"known": "the rows stay", "way_out": "`DELETE` the rows instead"}
EVENTS = (
    Odd("`UPDATE` and `DELETE`", (_TABLE, _ROW, *_CHANGES), _TEXT),
    Odd("`REPLACE` and `INSERT … ON DUPLICATE KEY UPDATE`",
        (_TABLE, _ROW, "replace into {t} values (1, 'c'), (3, 'd')",
         "insert into {t} values (2, 'x'), (4, 'y') on duplicate key update v = 'z'"), _TEXT),
    Odd("a column with `DEFAULT` and null", ("create table {t} (id int primary key, v varchar(9) default 'x')",
        "insert into {t} values (1, null), (2, 'x')"), _TEXT),
    Odd("generated columns", ("create table {t} (id int primary key, w int, v int as (w * 2) stored, "
        "x int as (w * 3) virtual)", "insert into {t} (id, w) values (1, 2)", "update {t} set w = 5"),
        Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "w", IntegerType()),
               NestedField(3, "v", IntegerType()), NestedField(4, "x", IntegerType()))),
    Odd("table without a primary key", ("create table {t} (id int, v varchar(9))", _ROW, *_CHANGES), _TEXT),
    Odd("equal rows", ("create table {t} (id int, v varchar(9))", _ROW, _ROW), _TEXT, keys=("id", "v")),
    Odd("equal rows", ("create table {t} (id int, v varchar(9))", _ROW, _ROW), _TEXT, keys=("id", "v"),
        source={"equal_rows": EqualRows.COLLAPSE}, setting="`source.equalRows: Collapse`", known="one of them",
        way_out="add a primary key"),
    Odd("`TRUNCATE`", (_TABLE, _ROW, "truncate {t}"), _TEXT, **_STAY),
    Odd("`DROP TABLE`", (_TABLE, _ROW, "drop table {t}"), _TEXT, is_gone=True, known="the rows stay",
        way_out="delete the Table"),
    Odd("`DROP PARTITION`", ("create table {t} (id int primary key, v varchar(9)) partition by range (id) "
        "(partition a values less than (2), partition b values less than (9))", _ROW,
        "alter table {t} drop partition a"), _TEXT, **_STAY),
    Odd("`ON DELETE CASCADE`", ("create table {t}_p (id int primary key)", "insert into {t}_p values (1), (2)",
        "create table {t} (id int primary key, v varchar(9), foreign key (id) references {t}_p (id) on delete cascade)",
        _ROW, "delete from {t}_p where id = 1"), _TEXT, source={"tables": ("shop.{t}",)}, known="the rows stay",
        way_out="`DELETE` the rows themselves"),
    Odd("partitions", ("create table {t} (id int primary key, v varchar(9)) partition by hash (id) partitions 3", _ROW,
        "update {t} set id = 4 where id = 1"), _TEXT),
    Odd("`ADD COLUMN … DEFAULT`", (_TABLE, _ROW, "alter table {t} add n int default 5",
        "update {t} set v = 'c' where id = 1"),
        Schema(*_TEXT.fields, NestedField(3, "n", IntegerType())), source={"unknown_columns": UnknownColumns.ADD},
        setting="`source.unknownColumns: Add`", known="null in rows that are not changed afterwards",
        way_out="a bootstrap of the table"),
    Odd("`MODIFY` to a type that changes values", ("create table {t} (id int primary key, v decimal(9,2))",
        "insert into {t} values (1, 1.25)", "alter table {t} modify v decimal(9,1)"), _schema(DecimalType(9, 2)),
        known="the rows stay as they were", way_out="a bootstrap of the table"),
    Odd("`DROP COLUMN`, then `UPDATE`", (_TABLE, "alter table {t} add n int",
        "insert into {t} values (1, 'a', 1), (2, 'b', 2)", "alter table {t} drop n", "update {t} set v = 'c'"), _TEXT),
    Odd("two tables in a file", (_TABLE, "create table {t}_b (id int primary key)", _ROW,
        "insert into {t}_b values (1)"), _TEXT),
    Odd("two tables in a file", (_TABLE, "create table {t}_b (id int primary key)", _ROW,
        "insert into {t}_b values (1)"), _TEXT, source={"tables": ("shop.{t}",)}, setting="`source.tables`"),
    Odd("`binlog_format=STATEMENT` of a session", ("set session binlog_format = 'STATEMENT'", _TABLE, _ROW), _TEXT,
        known="nothing comes", way_out="`binlog_format=ROW`"),
    Odd("`sql_log_bin=0` of a session", (_TABLE, "set session sql_log_bin = 0", _ROW), _TEXT, known="nothing comes",
        way_out="do not set it"),
    Odd("`binlog_row_image=MINIMAL`", (_TABLE, _ROW, "set session binlog_row_image = 'MINIMAL'",
        "update {t} set v = 'c' where id = 1", "delete from {t} where id = 2"), _TEXT),
    Odd("`binlog_row_image=NOBLOB`", ("create table {t} (id int primary key, v text, w int)",
        "insert into {t} values (1, 'a', 1)", "set session binlog_row_image = 'NOBLOB'", "update {t} set w = 2"),
        Schema(*_TEXT.fields, NestedField(3, "w", IntegerType()))),
)  # fmt: skip

"""How Csv files are read: names, dialects, encodings, zones, and what a row must be."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession
from skipstone.sources.listing import list_source
from skipstone.sources.reading import ERROR_COLUMN, FILE_COLUMN, RECORD_COLUMN, ReadRules, read_source, read_table_rows
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ColumnMapping,
    ColumnSpec,
    SourceFormat,
    SourceSpec,
    WarehouseRef,
)
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason


class Reader:
    """Puts files into a root and reads them as a load does."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self.spark = spark

    def read(self, files: Mapping[str, str | bytes], schema: Schema, **given: Any) -> list[dict[str, Any]]:
        """Rows in no particular order; bad ones with their error."""
        time_zone = given.pop("time_zone", "UTC")
        for name, content in files.items():
            (self.root / name).write_bytes(content.encode() if isinstance(content, str) else content)
        source = SourceSpec(format=SourceFormat.CSV, paths=tuple(files), **{"options": {"header": "true"}, **given})
        warehouse = WarehouseRef(name="wh", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))
        read = read_table_rows(self.spark, list_source(warehouse, source), source, schema, time_zone)
        return [row.asDict() for row in read.frame.collect()]

    def good(self, files: Mapping[str, str | bytes], schema: Schema, **given: Any) -> list[tuple[Any, ...]]:
        """Rows as tuples; none may be bad."""
        rows = self.read(files, schema, **given)
        assert [row[ERROR_COLUMN] for row in rows if row[ERROR_COLUMN]] == []
        return [tuple(value for name, value in row.items() if not name.startswith("_skipstone")) for row in rows]


@pytest.fixture
def reader(tmp_path: Path, spark: SparkSession) -> Reader:
    return Reader(tmp_path, spark)


def schema(required: tuple[str, ...] = (), **types: PrimitiveType) -> Schema:
    return Schema(*(NestedField(i, n, t, required=n in required) for i, (n, t) in enumerate(types.items(), start=1)))


AB = schema(a=IntegerType(), b=StringType())


def test_columns_go_by_the_names_of_each_files_header(reader: Reader) -> None:
    files = {"one.csv": "a,b\n1,x\n", "two.csv": "b,extra,a\ny,?,2\n", "three.csv": "a\n3\n"}
    assert sorted(reader.good(files, AB)) == [(1, "x"), (2, "y"), (3, None)]


def test_names_are_exact_and_a_likely_one_is_hinted(reader: Reader) -> None:
    with pytest.raises(
        BadData, match=r"'one\.csv' has the column 'A' and the table has 'a', and names are exact: add \{column: "
    ) as caught:
        reader.read({"one.csv": "A,b\n1,x\n"}, schema(("a",), a=IntegerType(), b=StringType()))
    assert caught.value.reason is Reason.SOURCE_COLUMNS_UNUSED


def test_two_columns_that_differ_in_case_only_stay_two(reader: Reader) -> None:
    assert reader.good({"one.csv": "A,a\n1,2\n"}, schema(a=IntegerType(), A=IntegerType())) == [(2, 1)]


def test_mapped_columns_take_their_values_from_the_named_one(reader: Reader) -> None:
    mapping = (ColumnMapping(column="a", from_="x.y `z`"), ColumnMapping(column="b", from_="x.y `z`"))
    assert reader.good({"one.csv": "x.y `z`,a\n1,9\n"}, AB, mapping=mapping) == [(1, "1")]


def test_a_mapped_source_column_must_be_there(reader: Reader) -> None:
    with pytest.raises(BadData, match=r"has no column 'gone'") as caught:
        reader.read({"one.csv": "a,b\n1,x\n"}, AB, mapping=(ColumnMapping(column="b", from_="gone"),))
    assert caught.value.reason is Reason.SOURCE_COLUMN_MISSING


def test_a_mapping_to_no_table_column_is_told(reader: Reader) -> None:
    with pytest.raises(BadSpec, match=r"source\.mapping: 'B' is not a column of the table") as caught:
        reader.read({"one.csv": "a,b\n1,x\n"}, AB, mapping=(ColumnMapping(column="B", from_="b"),))
    assert caught.value.reason is Reason.COLUMN_NOT_FOUND


def test_a_column_that_stands_twice_in_a_header_is_told(reader: Reader) -> None:
    with pytest.raises(BadData, match="the column 'a' stands twice in the header") as caught:
        reader.read({"one.csv": "a,b,a\n1,x,2\n"}, AB)
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


def test_without_header_columns_go_in_the_order_of_the_table_or_as_declared(reader: Reader) -> None:
    assert reader.good({"one.csv": "1,x\n"}, AB, options={}) == [(1, "x")]
    declared = (ColumnSpec(name="b", type="string"), ColumnSpec(name="a", type="int"))
    assert reader.good({"one.csv": "x,1\n"}, AB, options={}, columns=declared) == [(1, "x")]


def test_files_without_any_line_and_with_a_header_only_give_no_rows(reader: Reader) -> None:
    assert reader.good({"empty.csv": ""}, AB) == []
    assert reader.good({"blank.csv": "\n \n", "header.csv": "\na,b\n"}, AB) == []


@pytest.mark.parametrize("multi_line", ["true", "false"])
@pytest.mark.parametrize("first", [",", '"",""', ' ,""'])
def test_without_header_a_first_row_of_empty_fields_is_a_row(reader: Reader, first: str, multi_line: str) -> None:
    rows = reader.good(
        {"one.csv": f"\n{first}\n1,x\n"}, schema(a=StringType(), b=StringType()), options={"multiLine": multi_line}
    )
    assert len(rows) == 2
    assert ("1", "x") in rows


@pytest.mark.parametrize("multi_line", ["true", "false"])
@pytest.mark.parametrize("header", [",", '"",""', '""', "\u00a0\na,b", "\u3000\na,b"])
def test_a_header_without_any_name_is_told(reader: Reader, header: str, multi_line: str) -> None:
    options = {"header": "true", "multiLine": multi_line}
    with pytest.raises(BadData, match=r"'one\.csv': the header names no column") as caught:
        reader.read({"one.csv": f"{header}\n1,x\n"}, AB, options=options)
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress], ids=["gz", "bz2"])
def test_packed_files_are_read(reader: Reader, packed: Any) -> None:
    name = "one.csv.gz" if packed is gzip.compress else "one.csv.bz2"
    assert reader.good({name: packed(b"b,a\nx,1\n")}, AB) == [(1, "x")]


def test_files_packed_otherwise_are_told(reader: Reader) -> None:
    with pytest.raises(BadData, match=r"'one\.csv\.zip': files packed as \.zip are not read"):
        reader.read({"one.csv.zip": b"PK"}, AB)


def test_a_byte_order_mark_is_no_part_of_a_name(reader: Reader) -> None:
    assert reader.good({"one.csv": b"\xef\xbb\xbfa,b\n1,x\n"}, AB) == [(1, "x")]


def test_odd_file_names_are_read_as_they_are(reader: Reader) -> None:
    files = {"a b%20[1]{x}*+ü.csv": "a,b\n1,x\nbad,y\n"}
    rows = sorted(reader.read(files, AB), key=lambda row: str(row["b"]))
    assert (rows[0]["a"], rows[1][FILE_COLUMN]) == (1, "a b%20[1]{x}*+ü.csv")


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ('a,b\n1,"x ""q"", y"\n', {}, [(1, 'x "q", y')]),
        ("a,b\n1,back\\slash\n", {}, [(1, "back\\slash")]),
        ('a,b\n1,"x \\"q\\""\n', {"escape": "\\"}, [(1, 'x "q"')]),
        ("a|b\n1|'x|y'\n", {"delimiter": "|", "quote": "'"}, [(1, "x|y")]),
        ("a\tb\n1\tx\n", {"delimiter": "\\t"}, [(1, "x")]),
        ('a\\b\n1\\"x\\t"\n', {"delimiter": "\\"}, [(1, "x\\t")]),
        ('a,b\n1,"x"\n', {"quote": ""}, [(1, '"x"')]),
        ('a,b\r\n1,x\r\n\r\n2,""\r\n', {}, [(1, "x"), (2, "")]),
        ("a,b\nNA,NA\n,\n3,na\n", {"nullValue": "NA"}, [(None, None), (None, None), (3, "na")]),
        ('a,b\n1,"two\nlines"\n', {"multiLine": "true"}, [(1, "two\nlines")]),
        ('"a","b"\n1, x \n', {}, [(1, " x ")]),
        ("a,b\n1,caf\xe9\n".encode("latin-1"), {"encoding": "ISO-8859-1"}, [(1, "café")]),
        ("a,b\n1,é\n".encode("utf-16"), {"encoding": "UTF-16", "multiLine": "true"}, [(1, "é")]),
    ],
)
def test_dialects(reader: Reader, content: str | bytes, options: Mapping[str, str], expected: list[Any]) -> None:
    found = reader.good({"one.csv": content}, AB, options={"header": "true", **options})
    assert found == expected


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"header": "yes"}, "header"),
        ({"delimiter": "||"}, "delimiter"),
        ({"delimiter": "\n"}, "delimiter"),
        ({"quote": ",,"}, "quote"),
        ({"quote": ","}, "delimiter"),
        ({"escape": ""}, "escape"),
        ({"encoding": "klingon"}, "encoding"),
        ({"encoding": "UTF-16"}, "encoding"),
        ({"dateFormat": "qqqq"}, "dateFormat"),
        ({"timestampFormat": "bb"}, "timestampFormat"),
        ({"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSS"}, "timestampFormat"),
        ({"dateFormat": "yyyy-MM-dd XXX"}, "dateFormat"),
        ({"path": "x"}, "path"),
    ],
)
def test_options_that_cannot_be_used_are_told_by_name(reader: Reader, options: dict[str, str], field: str) -> None:
    with pytest.raises(BadSpec, match=rf"^source\.options\.{field}: ") as caught:
        reader.read({"one.csv": "a,b\n1,x\n"}, AB, options=options)
    assert caught.value.reason is Reason.INVALID_SPEC


def test_an_unknown_time_zone_is_told(reader: Reader) -> None:
    with pytest.raises(BadSpec, match=r"^spec\.timeZone: 'Nowhere/X' is not a time zone"):
        reader.read({"one.csv": "a,b\n1,x\n"}, AB, time_zone="Nowhere/X")


GOOD_TEXT: list[tuple[PrimitiveType, str, Any]] = [
    (BooleanType(), "TRUE", True),
    (IntegerType(), "-2147483648", -(2**31)),
    (LongType(), " 9223372036854775807 ", 2**63 - 1),
    (DoubleType(), "-1.5e-3", -0.0015),
    (DoubleType(), "Infinity", float("inf")),
    (FloatType(), "-inf", float("-inf")),
    (DecimalType(9, 2), "-1234567.8900", Decimal("-1234567.89")),
    (DecimalType(9, 2), "-1.250E+3", Decimal("-1250.00")),
    (DecimalType(9, 2), "0E-10", Decimal("0.00")),
    (DecimalType(9, 2), ".5", Decimal("0.50")),
    (DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
    (DateType(), "0001-01-01", date(1, 1, 1)),
    (DateType(), "9999-12-31", date(9999, 12, 31)),
    (TimestampType(), "1880-01-01 01:02:03.123456", datetime.fromisoformat("1880-01-01T01:02:03.123456")),
    (TimestampType(), "2013-01-31", datetime.fromisoformat("2013-01-31")),
    (TimeType(), "23:59:59.999999", 86_399_999_999),
    (UUIDType(), "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    (StringType(), "𝄞" * 400, "𝄞" * 400),
]


def numbered(count: int) -> list[str]:
    """Names of columns, one for each case of a file."""
    return [f"v{number}" for number in range(count)]


def test_text_that_fits_is_kept_exactly(reader: Reader) -> None:
    """All cases are columns of one row."""
    names = numbered(len(GOOD_TEXT))
    content = f"{','.join([*names, 'x'])}\n{','.join([*(text for _, text, _ in GOOD_TEXT), ''])}\n"
    kinds = {name: kind for name, (kind, _, _) in zip(names, GOOD_TEXT, strict=True)}
    assert reader.good({"one.csv": content}, schema(**kinds)) == [tuple(value for _, _, value in GOOD_TEXT)]


BAD_TEXT: list[tuple[PrimitiveType, str]] = [
    (BooleanType(), "maybe"),
    (IntegerType(), "2147483648"),
    (IntegerType(), "1.0"),
    (IntegerType(), '""'),
    (LongType(), "9223372036854775808"),
    (DoubleType(), "1e400"),
    (DoubleType(), "1.0d"),
    (DoubleType(), "0x1p3"),
    (FloatType(), "1e39"),
    (DecimalType(9, 2), "12345678.00"),
    (DecimalType(9, 2), "1.005"),
    (DecimalType(9, 2), "1.25e-1"),
    (DecimalType(9, 2), "1e99999999999"),
    (DateType(), "2013-02-30"),
    (DateType(), "2013-01-31 10:00"),
    (DateType(), "31/01/2013"),
    (DateType(), "0000-12-31"),
    (TimestampType(), "0000-12-31 23:59:59"),
    (TimestamptzType(), "0001-01-01 00:00:00+01:00"),
    (TimestamptzType(), "9999-12-31 23:59:59-01:00"),
    (TimestampType(), "2013-01-31T10:00:00Z"),
    (TimestampType(), "10:00:00"),
    (TimestamptzType(), "2013-01-31 25:00:00"),
    (TimestamptzType(), "2013-01-31 10:00:00.1234567"),
    (TimestamptzType(), "today"),
    (TimeType(), "24:00:00"),
    (UUIDType(), "f81d4fae"),
]


def test_text_that_does_not_fit_is_told_with_column_and_record(reader: Reader) -> None:
    """Each case is a row of its own, with text in a column of its own."""
    names = numbered(len(BAD_TEXT))
    lines = ["," * at + text + "," * (len(names) - at) + "7" for at, (_, text) in enumerate(BAD_TEXT)]
    kinds = {name: kind for name, (kind, _) in zip(names, BAD_TEXT, strict=True)}
    rows = reader.read({"one.csv": "\n".join([",".join([*names, "x"]), *lines])}, schema(**kinds))
    said = [row[ERROR_COLUMN].partition(": the value is not ")[:2] for row in rows]
    assert said == [(f"column '{name}'", ": the value is not ") for name in names]
    assert [(row[RECORD_COLUMN], row[FILE_COLUMN]) for row in rows] == [(line, "one.csv") for line in lines]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("1", "the row does not have the 2 fields of the header"),
        ("1,x,y", "the row does not have the 2 fields of the header"),
        (",x", "column 'a' is required and holds null"),
        ("1,caf\xe9", "column 'b': the value is not valid UTF-8 text"),
        ("1,caf\xe9,y", "the row does not have the 2 fields of the header"),
    ],
)
@pytest.mark.parametrize("multi_line", ["true", "false"])
def test_rows_that_are_no_rows_are_told(reader: Reader, line: str, error: str, multi_line: str) -> None:
    rows = reader.read(
        {"one.csv": b"a,b\n" + line.encode("latin-1") + b"\n2,y\n"},
        schema(("a",), a=IntegerType(), b=StringType()),
        options={"header": "true", "multiLine": multi_line},
    )
    assert len(rows) == 2
    assert {row[ERROR_COLUMN] for row in rows} == {error, None}


@pytest.mark.parametrize("kind", [BinaryType()])
def test_types_that_text_cannot_carry_are_told(reader: Reader, kind: PrimitiveType) -> None:
    with pytest.raises(BadSpec, match="column 'v' is binary, which text cannot carry") as caught:
        reader.read({"one.csv": "v\nx\n"}, schema(v=kind))
    assert caught.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED


@pytest.mark.parametrize(
    ("time_zone", "instants"),
    [
        ("UTC", {"2013-07-01 10:00:00": datetime(2013, 7, 1, 10, tzinfo=UTC)}),
        (
            "Europe/Berlin",
            {
                "2013-07-01 10:00:00": datetime(2013, 7, 1, 8, tzinfo=UTC),
                "2013-07-01T10:00:00Z": datetime(2013, 7, 1, 10, tzinfo=UTC),
                "2013-07-01": datetime(2013, 6, 30, 22, tzinfo=UTC),
            },
        ),
        (
            "America/New_York",
            {
                "2013-01-01T10:00": datetime(2013, 1, 1, 15, tzinfo=UTC),
                "1880-01-01 00:00:00": datetime(1880, 1, 1, 4, 56, 2, tzinfo=UTC),
                "2013-07-01 10:00:00.5+02:00": datetime(2013, 7, 1, 8, 0, 0, 500_000, tzinfo=UTC),
            },
        ),
    ],
)
def test_timestamps_without_offset_are_of_the_jobs_time_zone(
    reader: Reader, time_zone: str, instants: Mapping[str, datetime]
) -> None:
    content = "v,x\n" + "".join(f"{text},\n" for text in instants)
    rows = reader.read({"one.csv": content}, schema(v=TimestamptzType()), time_zone=time_zone)
    found = [(row["v"].astimezone(UTC) if row["v"] else None, row[ERROR_COLUMN]) for row in rows]
    assert found == [(instant, None) for instant in instants.values()]


@pytest.mark.parametrize(
    ("pattern", "text", "instant"),
    [
        ("dd/MM/yyyy HH:mm", "01/07/2013 10:00", datetime(2013, 7, 1, 8, tzinfo=UTC)),
        ("dd/MM/yyyy HH:mmXXX", "01/07/2013 10:00-04:00", datetime(2013, 7, 1, 14, tzinfo=UTC)),
        ("yyyy'X'MM'X'dd", "2013X07X01", datetime(2013, 6, 30, 22, tzinfo=UTC)),
    ],
)
def test_timestamps_follow_the_given_format(reader: Reader, pattern: str, text: str, instant: datetime) -> None:
    rows = reader.read(
        {"one.csv": f"v\n{text}\n2013-07-01\n"},
        schema(v=TimestamptzType()),
        options={"header": "true", "timestampFormat": pattern},
        time_zone="Europe/Berlin",
    )
    assert rows[0]["v"].astimezone(UTC) == instant
    assert rows[1][ERROR_COLUMN] == f"column 'v': the value is not a timestamp like {pattern}"


def test_dates_follow_the_given_format(reader: Reader) -> None:
    options = {"header": "true", "dateFormat": "dd.MM.yyyy"}
    assert reader.good({"one.csv": "v\n31.01.2013\n"}, schema(v=DateType()), options=options) == [(date(2013, 1, 31),)]


def test_a_format_drops_no_part_of_a_value(reader: Reader) -> None:
    options = {"header": "true", "dateFormat": "yyyy-MM-dd HH:mm", "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS'000'"}
    columns = schema(day=DateType(), at=TimestampType())
    lines = ["2024-05-01 00:00,2024-05-01 10:00:00.123456000", "2024-05-01 00:01,", ",2024-05-01 10:00:00.123456001"]
    rows = reader.read({"one.csv": "\n".join(["day,at", *lines])}, columns, options=options)
    noon = datetime.fromisoformat("2024-05-01T10:00:00.123456")
    assert [(row["day"], row["at"], row[ERROR_COLUMN] is None) for row in rows] == [
        (date(2024, 5, 1), noon, True), (None, None, False), (None, None, False)
    ]  # fmt: skip
    zoned = {"header": "true", "timestampFormat": "yyyy-MM-dd HH:mmXXX"}
    with pytest.raises(BadSpec, match=r"^source\.options\.timestampFormat: .* use timestamptz, or leave it out"):
        reader.read({"one.csv": "day,at\n"}, columns, options=zoned)


def test_a_merge_sees_all_columns_under_their_own_names_and_types(reader: Reader) -> None:
    (reader.root / "feed.csv").write_text("op,key,seq,name\nU,1,5,x\n")
    source = SourceSpec(
        format=SourceFormat.CSV,
        paths=("feed.csv",),
        options={"header": "true"},
        columns=(ColumnSpec(name="seq", type="long"),),
        mapping=(ColumnMapping(column="a", from_="key"),),
    )
    warehouse = WarehouseRef(name="wh", root=str(reader.root), catalog=CatalogRef(type=CatalogType.SQL))
    read = read_source(reader.spark, list_source(warehouse, source), source, AB, ReadRules("UTC"))
    assert [(column.name, str(column.type)) for column in read.columns] == [
        ("op", "string"),
        ("key", "int"),
        ("seq", "long"),
        ("name", "string"),
    ]
    assert [tuple(row)[:4] for row in read.frame.collect()] == [("U", 1, 5, "x")]

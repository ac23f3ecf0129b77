"""Values that tools change on their way: the database's value arrives, or the message is refused with a way out.

The forms are those that Debezium 3.6.1 wrote for PostgreSQL 15 and MariaDB 10.11.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimeType,
    UUIDType,
)
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData

from tests.unit.feed_bed import FeedBed, Row
from tests.unit.test_feeds_debezium import CONNECT, avro_schema, envelope, mysql, postgres, schema_of, typed
from tests.unit.test_feeds_tools import maxwell

TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "number", LongType()),
    NestedField(4, "price", DecimalType(20, 2)),
    NestedField(5, "unsigned", DecimalType(20, 0)),
    NestedField(6, "raw", BinaryType()),
    NestedField(7, "tags", ListType(20, StringType(), element_required=False)),
    NestedField(8, "codes", ListType(21, UUIDType(), element_required=False)),
    NestedField(10, "moment", TimestampType()),
    NestedField(11, "ratio", DoubleType()),
    NestedField(12, "day", DateType()),
    NestedField(13, "clock", TimeType()),
    NestedField(9, "prices", ListType(22, DecimalType(20, 2), element_required=False)),
)
CODES = ["0b0e6d2c-9d3c-4a53-8f2e-3f3a2d1c0b9a", None]
TWO_DIMENSIONS = ["[Ljava.lang.String;@58ba60ed", "[Ljava.lang.String;@3b6eb2ec"]
#: 1.5 of a numeric without precision.
VARIABLE = {"scale": 1, "value": "Dw=="}
BITS = "io.debezium.data.Bits"


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=TABLE)


def plain(column: str, value: Any) -> Row:
    return envelope("c", postgres(1), after={"id": 1, column: value})


def with_schema(column: Row, value: Any) -> Row:
    return {"schema": schema_of(typed("id", "int64"), column), "payload": plain(column["field"], value)}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (VARIABLE, "1.5"),
        ({"scale": 0, "value": "AA=="}, "0"),
        ({"scale": 3, "value": "Bdw="}, "1.500"),
        ({"scale": -2, "value": "ew=="}, "12300"),
        ([VARIABLE, None], "[1.5,null]"),
    ],
)
def test_a_numeric_without_precision_is_text_of_its_number(bed: FeedBed, written: object, text: str) -> None:
    assert bed.lines(plain("text", written)).row()["text"] == text
    column = typed("text", "struct", "io.debezium.data.VariableScaleDecimal")
    assert bed.lines(with_schema(column, written)).row()["text"] == text
    assert bed.lines(plain("tags", [VARIABLE, None])).row()["tags"] == ["1.5", None]


def test_json_of_maxwell_that_looks_like_a_number_stays_json(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.MAXWELL, schema=TABLE)
    row = bed.lines(maxwell("insert", {"id": 1, "text": VARIABLE, "number": "3132", "unsigned": -1})).row()
    assert (row["text"], row["number"], row["unsigned"]) == ('{"scale":1,"value":"Dw=="}', 3132, Decimal(-1))


@pytest.mark.parametrize("column", ["text", "number", "price", "codes", "tags"])
def test_bytes_of_the_schema_are_no_text_and_no_number(bed: FeedBed, column: str) -> None:
    """1234 is base64 of three bytes, as of bytea or xid8."""
    kind = typed(column, "bytes")
    value: Any = "1234"
    if column in ("codes", "tags"):
        kind, value = typed(column, "array") | {"items": typed("x", "bytes")}, ["1234"]
    with pytest.raises(BadData, match=rf"column '{column}': .*the schema says bytes: declare the column as binary"):
        bed.lines(with_schema(kind, value)).left()


def test_hexadecimal_of_a_number_is_no_other_number(bed: FeedBed) -> None:
    """123 of xid8 with include.unknown.datatypes=true and binary.handling.mode=hex."""
    for message in (plain("number", "313233"), with_schema(typed("number", "string"), "313233")):
        with pytest.raises(BadData, match=r"column 'number': .*hexadecimal.* decimal\(38,0\)"):
            bed.lines(message).left()
    assert bed.lines(plain("number", "41")).row()["number"] == 41, "no digit is 41 in hexadecimal"
    assert bed.lines(plain("unsigned", "313233")).row()["unsigned"] == 313233


@pytest.mark.parametrize("column", ["raw", "text", "number"])
def test_bit_strings_are_refused_whose_bytes_are_reversed(bed: FeedBed, column: str) -> None:
    """B'1000000000000001' arrives as 01 80."""
    with pytest.raises(BadData, match=rf"column '{column}': .*bit string.* reverse order: leave the column out"):
        bed.lines(with_schema(typed(column, "bytes", BITS, length="16"), "AYA=")).left()


@pytest.mark.parametrize("column", ["tags", "text"])
def test_two_dimensional_arrays_that_debezium_cannot_write_are_refused(bed: FeedBed, column: str) -> None:
    with pytest.raises(BadData, match=rf"column '{column}': .*array of more than one dimension"):
        bed.lines(plain(column, TWO_DIMENSIONS)).left()


@pytest.mark.parametrize("value", [92233720368547760.0, -12345678901234.56])
def test_a_double_is_no_decimal_of_more_digits_than_it_keeps(bed: FeedBed, value: float) -> None:
    """decimal.handling.mode=double: -92233720368547758.08 arrives as -9.223372036854776E16."""
    columns = (typed("price", "double"), typed("prices", "array") | {"items": typed("x", "double")})
    messages = (plain("price", value), with_schema(columns[0], value), with_schema(columns[1], [value]))
    for message in messages:
        with pytest.raises(BadData, match=r"a float, which keeps 15 digits .* set decimal.handling.mode to string"):
            bed.lines(message).left()
    assert bed.lines(with_schema(columns[0], 1234567890123.45)).row()["price"] == Decimal("1234567890123.45")
    with pytest.raises(BadData, match=r"set source.nonFinite to Null"):
        bed.lines(with_schema(columns[0], float("inf"))).left()
    assert bed.lines(plain("price", "92233720368547758.08")).row()["price"] == Decimal("92233720368547758.08")


def test_a_decimal_in_json_numbers_is_whole_where_the_schema_says_so(bed: FeedBed) -> None:
    """With decimal.format=NUMERIC of the converter."""
    line = with_schema(typed("price", "bytes", f"{CONNECT}Decimal", scale="2"), 92233720368547760.0)
    assert bed.lines(line).row()["price"] == Decimal("92233720368547760.00")


def test_unsigned_numbers_that_became_negative_are_refused(bed: FeedBed) -> None:
    """bigint.unsigned.handling.mode=long, the default of Debezium's MySQL connector: 2^64-1 arrives as -1."""
    column = typed("unsigned", "int64")
    for message in (plain("unsigned", -1), with_schema(column, -1)):
        with pytest.raises(BadData, match=r"column 'unsigned': .*set bigint.unsigned.handling.mode to precise"):
            bed.lines(message).left()
    assert bed.lines(with_schema(column, (1 << 63) - 1)).row()["unsigned"] == (1 << 63) - 1
    precise = typed("unsigned", "bytes", f"{CONNECT}Decimal", scale="0")
    written = base64.b64encode(((1 << 64) - 1).to_bytes(9, "big")).decode()
    assert bed.lines(with_schema(precise, written)).row()["unsigned"] == (1 << 64) - 1


VARIABLE_RECORD = {
    "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "kind", "value", "expected"),
    [
        ("text", VARIABLE_RECORD, {"scale": 1, "value": b"\x0f"}, "1.5"),
        ("text", {"type": "bytes", "scale": 2, "precision": 9, "logicalType": "decimal"}, Decimal("1.50"), "1.50"),
        ("tags", {"type": "string", "connect.name": "io.debezium.data.EnumSet"}, "a,c", ["a", "c"]),
        ("text", "bytes", b"\x0f", "the schema says bytes"),
        ("raw", {"type": "bytes", "connect.name": BITS}, b"\x01\x80", "a bit string"),
        ("price", "double", 92233720368547760.0, "a float, which keeps 15 digits"),
        ("unsigned", "long", -1, "bigint.unsigned.handling.mode"),
        ("moment", {"type": "long", "logicalType": "timestamp-millis"}, 0, "time.precision.mode to adaptive"),
    ],
)
def test_the_same_holds_in_avro(tmp_path: Path, column: str, kind: Any, value: object, expected: object) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, SourceFormat.AVRO, schema=TABLE)
    schema = avro_schema({"name": "id", "type": "long"}, {"name": column, "type": ["null", kind]})
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    bed.avro(schema, [envelope("c", postgres(1), after={"id": 1, column: moment if column == "moment" else value})])
    if column == "tags" or expected in ("1.5", "1.50"):
        assert bed.row()[column] == expected
    else:
        with pytest.raises(BadData, match=rf"column '{column}': .*{expected}"):
            bed.left()


def test_lists_of_uuids_are_read(bed: FeedBed) -> None:
    found = bed.lines(plain("codes", CODES)).row()["codes"]
    assert found == [UUID(str(CODES[0])).bytes, None]


@pytest.mark.parametrize(("text", "members"), [("a,c", ["a", "c"]), ("", []), ("a", ["a"])])
def test_a_set_is_a_list_of_its_members(bed: FeedBed, text: str, members: list[str]) -> None:
    message = with_schema(typed("tags", "string", "io.debezium.data.EnumSet", allowed="a,b,c"), text)
    message["payload"]["source"] = mysql("bin.1", 4)
    assert bed.lines(message).row()["tags"] == members
    with pytest.raises(BadData, match="column 'tags'"):
        bed.lines(plain("tags", "a,c")).left()


@pytest.mark.parametrize(("text", "content"), [("-_8=", b"\xfb\xff"), ("q80=", b"\xab\xcd"), ("_w==", b"\xff")])
def test_base64_that_is_safe_for_urls_is_read(bed: FeedBed, text: str, content: bytes) -> None:
    assert bed.lines(plain("raw", text)).row()["raw"] == content


@pytest.mark.parametrize("text", ["0b0e6d2c-9d3c-4a53-8f2e-3f3a2d1c0b9a", "2024-05-01-1", "-_8", "-+8=", "ab_d-x?="])
def test_other_text_is_no_base64(bed: FeedBed, text: str) -> None:
    with pytest.raises(BadData, match="column 'raw'"):
        bed.lines(plain("raw", text)).left()


@pytest.mark.parametrize(
    ("written", "ratio"),
    [("1.04836971619188173E18", 1.0483697161918817e18), ("1.46252638395460173E18", 1.4625263839546017e18)],
)
def test_a_float_of_eighteen_digits_as_java_17_writes_it_is_that_float(
    bed: FeedBed, written: str, ratio: float
) -> None:
    message = json.dumps(plain("ratio", 0.5)).replace("0.5", written)
    assert bed.lines(message).row()["ratio"] == ratio


def test_a_number_that_is_no_float_stays_refused(bed: FeedBed) -> None:
    with pytest.raises(BadData, match="double without loss"):
        bed.lines(json.dumps(plain("ratio", 0.5)).replace("0.5", "1.04836971619188193E18")).row()
    with pytest.raises(BadData, match="double without loss"):
        bed.lines(plain("ratio", "1.04836971619188173E18")).row()


@pytest.mark.parametrize(
    ("item", "written"),
    [("io.debezium.time.MicroTime", 45296123000), ("io.debezium.time.IsoTime", "12:34:56.123Z")],
)
def test_arrays_of_times_that_debezium_cuts_are_refused(bed: FeedBed, item: str, written: object) -> None:
    column = {**typed("tags", "array"), "items": typed("", "string" if isinstance(written, str) else "int64", item)}
    with pytest.raises(BadData, match=r"cuts to milliseconds: leave the column out \(column.exclude.list\)"):
        bed.lines(with_schema(column, [written])).row()


@pytest.mark.parametrize(
    ("column", "written", "sentence"),
    [
        (typed("day", "int32", "io.debezium.time.Date"), -735160, "which has the years 1 to 9999: change the row"),
        (typed("day", "string", "io.debezium.time.IsoDate"), "+10000-01-01Z", "which has the years 1 to 9999"),
        (typed("clock", "int64", "io.debezium.time.MicroTime"), 86_400_000_000, "ends before 24:00: declare"),
        (typed("text", "int64", "io.debezium.time.MicroDuration"), 5, "set interval.handling.mode to string"),
        (typed("text", "double"), 1.5, "set decimal.handling.mode to string"),
    ],
)
def test_a_value_that_no_type_has_is_refused_with_a_way_out(
    bed: FeedBed, column: Row, written: object, sentence: str
) -> None:
    with pytest.raises(BadData, match=sentence):
        bed.lines(with_schema(column, written)).row()


def test_an_item_that_does_not_fit_is_refused_with_its_way_out(bed: FeedBed) -> None:
    with pytest.raises(BadData, match="list<string>, but one with a number: declare the column as a list of long, or"):
        bed.lines(plain("tags", [45296123000])).row()
    with pytest.raises(
        BadData, match=r"type list<decimal\(20, 2\)>, but one with an item .*decimal.handling.mode to str"
    ):
        bed.lines(plain("prices", ["Bdw="])).row()

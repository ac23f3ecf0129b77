"""Corners of change feeds in which a value could be lost, cut or mistaken: each comes out whole or is refused."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType
from skipstone_core.contract.feeds import TimePrecision
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.unit.feed_bed import EVERY, KEPT, MISSING, ORDERS, FeedBed, Row
from tests.unit.test_feeds_debezium import (
    CONNECT,
    PLACEHOLDER,
    TIME,
    avro_schema,
    envelope,
    order,
    postgres,
    schema_of,
    typed,
)
from tests.unit.test_feeds_tools import flat, maxwell

BYTES = PLACEHOLDER.encode()


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=EVERY)


# --- values that are left out ---


@pytest.mark.parametrize(
    "value",
    [[PLACEHOLDER], list(BYTES), {PLACEHOLDER: PLACEHOLDER}, base64.b64encode(BYTES).decode(), BYTES.hex()],
    ids=["list", "numbers", "map", "base64", "hex"],
)
def test_a_placeholder_of_another_type_is_no_text(bed: FeedBed, value: object) -> None:
    assert bed.lines(envelope("u", postgres(1), after={"id": 1, "text": value})).row()["text"] == MISSING


def test_a_value_that_is_left_out_is_still_missing_when_its_column_goes(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM).lines(
        envelope("u", postgres(1), after=order(1, PLACEHOLDER)),
        envelope("u", postgres(2), after={"id": 1, "price": "1.50"}),
        envelope("u", postgres(3), after=order(2, "known")),
        envelope("u", postgres(4), after=order(2, PLACEHOLDER)),
        envelope("u", postgres(5), after={"id": 2}),
    )
    first, second = bed.left()
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert (first["name"], first["price"], second["name"]) == (MISSING, Decimal("1.50"), "known")


def test_a_key_that_is_written_in_another_way_is_the_same_row(tmp_path: Path) -> None:
    """What the row had is kept, as when the key is written alike."""
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, keys=("price",))
    bed.lines(envelope("u", postgres(1), {"id": 1, "price": "1.0"}, {"id": 1, "price": "1.00"}))
    assert bed.left() == [{"id": 1, "price": Decimal("1.00"), "name": KEPT, "placed": KEPT}]


def test_null_that_maxwell_does_not_write_is_null(tmp_path: Path) -> None:
    """With ``output_nulls=false`` only ``old`` tells that a value became null."""
    bed = FeedBed(tmp_path, ChangeFormat.MAXWELL)
    bed.lines(maxwell("update", {"id": 1}, {"name": "was"}))
    assert bed.row() == {"id": 1, "name": None, "price": KEPT, "placed": KEPT}


# --- values that are mistaken for others ---


def test_a_decimal_is_text_of_its_number_in_a_column_of_text(bed: FeedBed) -> None:
    price = typed("x", "bytes", f"{CONNECT}Decimal", scale="2")
    columns = (typed("id", "int64"), price | {"field": "text"}, typed("tags", "array") | {"items": price})
    after = {"id": 1, "text": "z8c=", "tags": ["z8c=", None]}
    row = bed.lines({"schema": schema_of(*columns), "payload": envelope("c", postgres(1), after=after)}).row()
    assert (row["text"], row["tags"]) == ("-123.45", ["-123.45", None])


def test_a_flat_table_with_columns_called_as_in_envelopes_keeps_its_units(tmp_path: Path) -> None:
    columns = [typed("id", "int64"), typed("op", "string"), typed("after", "string")]
    schema = {"type": "struct", "fields": [*columns, typed("local", "int64", f"{TIME}MicroTimestamp")]}
    row = {"id": 1, "op": "x", "after": "y", "local": 1_714_564_800_000}
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT, schema=EVERY, source={"time_precision": TimePrecision.MILLIS})
    found = bed.lines({"schema": schema, "payload": flat("c", 1, row)}).row()["local"]
    assert found.replace(tzinfo=UTC) == datetime(1970, 1, 20, 20, 16, 4, 800_000, tzinfo=UTC)


@pytest.mark.parametrize("offset", ["+99:00", "+02:60", "-18:00:01"])
def test_an_offset_that_no_clock_has_is_refused(bed: FeedBed, offset: str) -> None:
    bed.lines(envelope("c", postgres(1), after={"id": 1, "instant": f"2024-05-01T12:00:00{offset}"}))
    with pytest.raises(BadData, match="line 1: column 'instant'"):
        bed.left()


@pytest.mark.parametrize("number", ["1e999999999", "-1e999999999", "1e-999999999"])
def test_a_number_with_a_huge_exponent_is_refused_at_once(bed: FeedBed, number: str) -> None:
    message = json.dumps(envelope("c", postgres(1), after={"id": 1, "small": "?"}))
    with pytest.raises(BadData, match="line 1: column 'small'"):
        bed.lines(message.replace('"?"', number)).left()


# --- files ---


@pytest.mark.parametrize("name", ["1.json.gz", "1.csv.gz"])
def test_a_packed_file_that_is_damaged_is_told(tmp_path: Path, name: str) -> None:
    is_csv = ".csv" in name
    tool, kind = (ChangeFormat.DMS, SourceFormat.CSV) if is_csv else (ChangeFormat.MAXWELL, SourceFormat.JSON)
    bed = FeedBed(tmp_path, tool, kind).text("", name)
    lines = ["id,name", *[f"{n},x" for n in range(99)]] if is_csv else [json.dumps(maxwell("insert", {"id": 1}))]
    packed = bytearray(gzip.compress("\n".join(lines).encode()))
    packed[10:16] = b"\xff" * 6
    (tmp_path / "feed" / name).write_bytes(packed)
    with pytest.raises(BadData, match=f"'feed/{name}': ") as caught:
        bed.left()
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


@pytest.fixture
def csv_bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.CSV).text("", "1.csv")


@pytest.mark.parametrize(
    "content",
    [
        b"id,name\n1,abc\r\n",
        b"id,name\n1,abc\r",
        b"id,name\r\n1,abc\r\r\n",
        b"id,name\n1,abc\r2,x\n",
    ],
)
def test_a_carriage_return_behind_a_value_is_not_cut(csv_bed: FeedBed, content: bytes) -> None:
    (csv_bed.root / "feed" / "1.csv").write_bytes(content)
    with pytest.raises(BadData, match=r"'feed/1.csv'"):
        csv_bed.left()


def test_lines_of_both_systems_are_read_and_counted(csv_bed: FeedBed) -> None:
    rows = 'Op,id,name\r\nI,1,"a\nb\r\nc\r"\r\n\r\nI,2,x\nI,y,z'
    path = csv_bed.root / "feed" / "1.csv"
    path.write_bytes(rows.encode())
    with pytest.raises(BadData, match=r"'feed/1.csv', line 7: column 'id'"):
        csv_bed.left()
    path.write_bytes(rows.replace("I,y,z", "").encode())
    assert [one["name"] for one in csv_bed.left() if isinstance(one, dict)] == ["a\nb\r\nc\r", "x"]


def wide(tmp_path: Path, unit: str, *values: int | None, text: str = "x") -> FeedBed:
    """A file of AWS DMS with timestamps of 96 bits: ``values`` since 1970. ``text``: of each row."""
    bed = FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.PARQUET, schema=EVERY).text("", "1.parquet")
    local = pa.array(values, pa.timestamp(unit))
    table = pa.table(
        {"Op": ["I"] * len(values), "id": range(len(values)), "local": local, "text": [text] * len(values)}
    )
    pq.write_table(table, tmp_path / "feed" / "1.parquet", use_deprecated_int96_timestamps=True)
    return bed


def test_timestamps_of_96_bits_are_not_cut(tmp_path: Path) -> None:
    texts = ("2024-05-01T12:00:00.123456", "1969-12-31T23:59:59.999999", "0001-01-01", "9999-12-31T23:59:59.999999")
    moments = [None, *map(datetime.fromisoformat, texts)]
    micros = pa.array(moments, pa.timestamp("us")).cast(pa.int64()).to_pylist()
    left = wide(tmp_path / "a", "us", *micros).left()
    assert [one["local"] for one in left if isinstance(one, dict)] == moments
    with pytest.raises(BadData, match=r"'feed/1.parquet': column 'local'.* without loss"):
        wide(tmp_path / "b", "ns", 0, 1_714_564_800_123_456_789).left()


def test_timestamps_of_96_bits_stay_with_their_rows_beside_long_texts(tmp_path: Path) -> None:
    """Long texts are decoded by fewer rows than timestamps."""
    left = wide(tmp_path, "us", *range(3_000), text="x" * 16_384).left()
    rows = [one for one in left if isinstance(one, dict)]
    assert [(one["id"], one["local"].microsecond) for one in rows] == [(at, at) for at in range(3_000)]


def test_parquet_with_a_value_for_a_nested_column_is_refused(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.PARQUET, schema=EVERY).text("", "1.parquet")
    columns: Row = {"Op": ["D", "I"], "id": [1, 2], "shape": ["{}", None]}
    pq.write_table(pa.table(columns), tmp_path / "feed" / "1.parquet")
    assert len(bed.left()) == 2
    pq.write_table(pa.table(columns | {"shape": [None, "{}"]}), tmp_path / "feed" / "1.parquet")
    with pytest.raises(BadData, match=r"'feed/1.parquet', line 2: column 'shape' is struct"):
        bed.left()


# --- order ---


def test_positions_of_maxwell_may_tell_transactions(tmp_path: Path) -> None:
    """In GTID mode, the set of transactions follows the place in the file."""
    bed = FeedBed(tmp_path, ChangeFormat.MAXWELL)
    gtids = "[3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5]"
    bed.lines(
        maxwell("update", {"id": 1, "name": "last"}, position=f"mysql-bin.000010:44{gtids}"),
        maxwell("update", {"id": 1, "name": "first"}, position=f"mysql-bin.000009:99{gtids}"),
    )
    assert bed.row()["name"] == "last"


def test_rows_of_one_event_of_maxwell_are_ordered_by_their_offset(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.MAXWELL)
    place = {"position": "master.000010:44", "xid": 7}
    bed.lines(maxwell("update", {"id": 1, "name": "last"}, xoffset=10, **place), name="0.json")
    bed.lines(maxwell("update", {"id": 1, "name": "first"}, xoffset=9, **place), name="1.json")
    assert bed.row()["name"] == "last"


# --- what no tool writes ---


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (maxwell("insert", {"id": 1}) | {"type": ["insert"]}, "its type is none of"),
        (maxwell("insert", {"id": 1}, position="bin.99999999999999999999:4"), "binlog file"),
        (maxwell("insert", {"id": 1}, position="bin.1:4", xoffset=-1), "'xoffset' is not a position"),
    ],
)
def test_junk_in_a_message_of_maxwell_is_refused_by_line(tmp_path: Path, message: Row, says: str) -> None:
    with pytest.raises(BadData, match=r"'feed/0.json', line 1: ") as caught:
        FeedBed(tmp_path, ChangeFormat.MAXWELL).lines(message).left()
    assert says in str(caught.value)


def test_a_scale_that_is_no_number_is_refused(bed: FeedBed) -> None:
    schema = schema_of(typed("id", "int64"), typed("price", "bytes", f"{CONNECT}Decimal", scale="x"))
    bed.lines({"schema": schema, "payload": envelope("c", postgres(1), after={"id": 1, "price": "AQ=="})})
    with pytest.raises(
        BadData, match=r"'feed/0.json', line 1: its schema has a decimal whose scale is not a whole number"
    ):
        bed.left()


def test_a_scale_of_avro_that_is_no_number_is_refused(tmp_path: Path) -> None:
    price = {"type": "bytes", "connect.name": f"{CONNECT}Decimal", "connect.parameters": {"scale": "x"}}
    schema = avro_schema({"name": "id", "type": "long"}, {"name": "price", "type": price})
    record = envelope("c", postgres(1), after={"id": 1, "price": b"1"})
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, SourceFormat.AVRO).avro(schema, [record])
    with pytest.raises(BadData, match="a decimal's scale is not a whole number"):
        bed.left()


@pytest.mark.parametrize(
    ("names", "values", "says"),
    [
        (["Op", "id", "text", "text"], [["I"], [1], ["a"], ["b"]], "the column 'text' stands twice"),
        (["Op", "id", "text"], [["I"], [1], pa.array([b"\xff"]).view(pa.string())], "column 'text': .* UTF-8"),
        (["Op", "id"], [pa.array([b"\xff"]).view(pa.string()), [1]], "column 'Op': .* UTF-8"),
    ],
)
def test_parquet_that_no_tool_writes_is_refused(tmp_path: Path, names: list[str], values: list[Any], says: str) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.PARQUET, schema=EVERY).text("", "1.parquet")
    table = pa.Table.from_arrays([pa.array(one) for one in values], names=names)
    pq.write_table(table, tmp_path / "feed" / "1.parquet", store_schema=False)
    with pytest.raises(BadData, match=f"'feed/1.parquet': {says}"):
        bed.left()


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [("wide", "4.9E-324", 5e-324), ("wide", "9.9E-324", 1e-323), ("ratio", "1.4E-45", 2.0**-149)],
)
def test_the_smallest_floats_are_read_as_java_writes_them(bed: FeedBed, column: str, text: str, value: float) -> None:
    message = json.dumps(envelope("c", postgres(1), after={"id": 1, column: "?"}))
    assert bed.lines(message.replace('"?"', text)).row()[column] == value


def test_a_column_that_is_renamed_to_other_letters_within_a_feed_is_refused(tmp_path: Path) -> None:
    feed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT)
    feed.lines(flat("u", 1, {"id": 1, "name": "a"}), flat("u", 2, {"id": 1, "NAME": "b"}))
    with pytest.raises(BadData, match="line 2: the feed has a column 'NAME' and the table 'name', and names are exact"):
        feed.left()


def test_a_column_of_the_table_with_a_name_of_ours_is_refused(tmp_path: Path) -> None:
    schema = Schema(*ORDERS.fields, NestedField(9, "_skipstone_order", StringType()))
    feed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT, schema=schema)
    with pytest.raises(BadSpec, match="'_skipstone_order' has a name that Skipstone keeps for columns of its own"):
        feed.lines(flat("c", 1, {"id": 1})).left()

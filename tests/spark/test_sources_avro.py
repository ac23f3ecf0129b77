"""Avro sources: Spark and the driver alone read the same rows, and what a file lacks is told by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
from skipstone.sources.arrow import table_batch
from skipstone.sources.failures import readable
from skipstone.sources.listing import SourceListing, list_source
from skipstone.sources.plain import NotPlainError, PlainLimits, find_plain, find_plain_rows
from skipstone.sources.projection import ERROR_COLUMN
from skipstone.sources.reading import ReadRules, read_source, read_table_rows
from skipstone.tables.arrow import arrow_type_of
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.requests import SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.avrofiles import Rows, avro_file, block, header, record, records
from tests.spark.load_bed import Bed, bad

LIMITS = PlainLimits(rows=1000, unpacked_bytes=1 << 20)
NOTHING_HERE = PlainLimits(rows=0, unpacked_bytes=0)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(name: str, size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


#: Of the table, of the file, and values as the file has them.
PLAIN: list[tuple[PrimitiveType, Any, list[Any]]] = [
    (BooleanType(), "boolean", [True, False]),
    (IntegerType(), "int", [-(2**31), 2**31 - 1]),
    (LongType(), "long", [-(2**63), 2**63 - 1]),
    (FloatType(), "float", [float("nan"), -0.0, float("inf"), -1.5]),
    (DoubleType(), "double", [float("nan"), -0.0, float("-inf"), 5e-324]),
    (StringType(), "string", ["", "𝄞 é", "x" * 4000]),
    (StringType(), {"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B", "A"]),
    (BinaryType(), "bytes", [b"", b"\xff"]),
    (FixedType(3), fixed("F3", 3), [b"abc", b"\x00\xff "]),
    (DateType(), logical("int", "date"), [-719_162, 0, 2_932_896]),
    (TimeType(), logical("int", "time-millis"), [0, 86_399_999]),
    (TimeType(), logical("long", "time-micros"), [0, 86_399_999_999]),
    (TimestamptzType(), logical("long", "timestamp-millis"), [-62_135_596_800_000, 0, 253_402_300_799_999]),
    (TimestamptzType(), logical("long", "timestamp-micros"), [-62_135_596_800_000_000, -1]),
    (TimestampType(), logical("long", "local-timestamp-millis"), [0, -1]),
    (TimestampType(), logical("long", "local-timestamp-micros"), [253_402_300_799_999_999]),
    (DecimalType(9, 2), logical("bytes", "decimal", precision=9, scale=2), [b"\x83", b"\x00\x00\x83"]),
    (DecimalType(38, 4), fixed("D", 16, logicalType="decimal", precision=38, scale=4), [b"\xff" * 16, bytes(16)]),
]
ID = bytes(range(16))
CONVERTED: list[tuple[PrimitiveType, Any, list[Any]]] = [
    (LongType(), "int", [7]),
    (DoubleType(), "float", [0.5]),
    (DecimalType(21, 2), "long", [-5]),
    (UUIDType(), fixed("U", 16, logicalType="uuid"), [ID]),
    (UUIDType(), logical("string", "uuid"), ["00010203-0405-0607-0809-0A0B0C0D0E0F"]),
    (FixedType(2), "bytes", [b"ab"]),
    (TimestamptzType(), logical("long", "local-timestamp-micros"), [0]),
    (TimestamptzType(), logical("long", "timestamp-nanos"), [-2_000]),
    (TimestampType(), logical("long", "local-timestamp-nanos"), [3_000]),
]
FOUND = [7, 0.5, -5, ID, ID, b"ab", 0, -2, 3]


def bare(kind: Any) -> Any:
    """``kind`` as values without a meaning are written."""
    return {name: value for name, value in kind.items() if name != "logicalType"} if isinstance(kind, dict) else kind


def file_of(cases: list[tuple[PrimitiveType, Any, list[Any]]]) -> tuple[bytes, Schema]:
    """A file with a nullable column for each case, and the table that it feeds."""
    names = [f"v{at}.x" for at in range(len(cases))]
    count = 1 + max(len(values) for _, _, values in cases)
    kinds, raw = ({name: ["null", how(kind)] for name, (_, kind, _) in zip(names, cases, strict=True)}
                  for how in (lambda kind: kind, bare))  # fmt: skip
    values = [[*values, *[None] * (count - len(values))] for _, _, values in cases]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    columns = (NestedField(at + 1, name, case[0]) for at, (name, case) in enumerate(zip(names, cases, strict=True)))
    content = header(record(**kinds)) + block(records(record(**raw), rows), count)
    return content, Schema(*columns)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def source_of(*paths: str, **rest: Any) -> SourceSpec:
    return SourceSpec(format=SourceFormat.AVRO, paths=paths or ("in",), **rest)


def listed(bed: Bed, *paths: str) -> SourceListing:
    return list_source(bed.warehouse, source_of(*paths))


def arrow_schema_of(schema: Schema) -> pa.Schema:
    return pa.schema([(field.name, arrow_type_of(field.field_type)) for field in schema.fields])


def by_spark(spark: SparkSession, listing: SourceListing, schema: Schema) -> pa.Table:
    """What the tasks of a merge get; no row may be bad."""
    arrow = arrow_schema_of(schema)
    frame = read_source(spark, listing, source_of(), schema, ReadRules("UTC")).frame
    found = frame.toArrow()
    assert found[ERROR_COLUMN].null_count == len(found), found[ERROR_COLUMN]
    return pa.Table.from_batches([table_batch(batch, arrow) for batch in found.to_batches()], schema=arrow)


def numbers(column: pa.ChunkedArray) -> list[Any]:
    """Values without Python's dates, as text, so that NaN and the sign of zero count."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date(kind):
        column = column.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
    return [repr(value) for value in column.to_pylist()]


def test_the_driver_and_spark_read_the_same_rows(bed: Bed, spark: SparkSession) -> None:
    content, schema = file_of(PLAIN)
    bed.put("in/a b+%41.avro", content)
    plain = find_plain(listed(bed, "in"), source_of(), schema, LIMITS)
    assert plain is not None
    here = plain.rows(arrow_schema_of(schema))
    assert here is not None
    there = by_spark(spark, listed(bed, "in"), schema)
    assert {name: numbers(here[name]) for name in here.column_names} == {
        name: numbers(there[name]) for name in there.column_names
    }
    for column, (_, kind, values) in zip(here.columns, PLAIN, strict=True):
        if isinstance(kind, str):
            assert numbers(column)[: len(values)] == [repr(value) for value in values]


def test_columns_feed_wider_types(bed: Bed, spark: SparkSession) -> None:
    content, schema = file_of(CONVERTED)
    bed.put("in/a.avro", content)
    for field in schema.fields:
        plain = find_plain_rows(listed(bed, "in"), source_of(), Schema(field), LIMITS)
        assert (plain is not None) == isinstance(field.field_type, LongType | DoubleType | DecimalType), field
        if plain is not None:
            rows = plain.rows(pa.schema([(field.name, arrow_type_of(field.field_type))]))
            assert rows is not None
            assert rows.column(0).to_pylist() == [FOUND[field.field_id - 1], None]
    found = by_spark(spark, listed(bed, "in"), schema)
    values = [column[0] for column in found.columns]
    plain = [value.value if pa.types.is_timestamp(value.type) else value.as_py() for value in values]
    assert [getattr(value, "bytes", value) for value in plain] == FOUND
    assert all(column[1].as_py() is None for column in found.columns)


PAIR = record(id="long", name=["null", "string"])
TABLE = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
AB: Rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize("limits", [LIMITS, NOTHING_HERE], ids=["driver", "spark"])
def test_files_of_other_writers_are_loaded_by_name(bed: Bed, spark: SparkSession, limits: PlainLimits) -> None:
    bed.create(TABLE)
    bed.put("in/a.avro", avro_file(PAIR, AB[:1], AB[1:], codec="zstandard"))
    bed.put("in/b.avro", avro_file(record(name="string", more={"type": "array", "items": "int"}, id="long"),
                                   [{"id": 3, "name": "c", "more": [1]}], codec="snappy"))  # fmt: skip
    bed.put("in/c.avro", avro_file(PAIR))
    assert bed.load(source_of("in/*.avro"), limits=limits).counts["rowsLoaded"] == 3
    assert bed.rows() == [*AB, {"id": 3, "name": "c"}]
    bed.put("more/d.avro", avro_file(record(id="int"), [{"id": 4}]))
    assert bed.load(source_of("more/d.avro"), limits=limits).counts["rowsLoaded"] == 1
    assert bed.rows()[-1] == {"id": 4, "name": None}


@pytest.mark.parametrize("limits", [LIMITS, NOTHING_HERE], ids=["driver", "spark"])
@pytest.mark.parametrize("policy", [BadRecordPolicy.FAIL, BadRecordPolicy.DROP])
def test_a_damaged_file_loads_nothing_whatever_happens_to_bad_rows(
    bed: Bed, spark: SparkSession, limits: PlainLimits, policy: BadRecordPolicy
) -> None:
    bed.create(TABLE)
    bed.put("in/a.avro", avro_file(PAIR, AB))
    bed.put("in/b c.avro", avro_file(PAIR, AB)[:-3])
    with pytest.raises(
        BadData, match=r"'in/b c\.avro': this is not a readable Avro file: the block at byte \d+"
    ) as caught:
        bed.load(source_of("in"), limits=limits, bad_records=bad(policy))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE
    assert bed.rows() == []


def test_rows_that_do_not_fit_are_told_and_left_out(bed: Bed, spark: SparkSession) -> None:
    bed.create(Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "price", DecimalType(2, 0))))
    told = record(id=["null", "long"], price=logical("bytes", "decimal", precision=2))
    rows = [{"id": 1, "price": b"\x01"}, {"id": None, "price": b"\x01"}, {"id": 3, "price": b"\x64"}]
    bed.put("in/a.avro", header(told) + block(records(record(id=["null", "long"], price="bytes"), rows), 3))
    report = bed.load(source_of(), bad_records=bad(BadRecordPolicy.REDIRECT))
    assert (report.counts["rowsLoaded"], report.counts["rowsRejected"]) == (1, 2)
    assert report.rejected_path is not None
    (part,) = (bed.root / report.rejected_path).iterdir()
    lines = sorted(part.read_text().splitlines())
    assert ["outside the range of its type" in lines[0], "is required and holds null" in lines[1]] == [True, True]
    assert '"file": "in/a.avro"' in lines[0] and '\\"id\\": 3' in lines[0]


def test_a_source_that_grows_too_large_here_is_left_to_spark(bed: Bed) -> None:
    bed.put("in/a.avro", avro_file(PAIR, [{"id": number, "name": None} for number in range(1001)]))
    plain = find_plain(listed(bed, "in"), source_of(), TABLE, LIMITS)
    assert plain is not None
    with pytest.raises(NotPlainError, match="1001 rows"):
        list(plain.batches(arrow_schema_of(TABLE)))


REFUSED: list[tuple[Any, PrimitiveType]] = [
    (["null", "int", "string"], IntegerType()),
    ({"type": "array", "items": "int"}, IntegerType()),
    ({"type": "map", "values": "int"}, StringType()),
    ("long", DateType()),
    (logical("long", "timestamp-micros"), TimestampType()),
    (logical("bytes", "decimal", precision=39), DecimalType(38, 0)),
]


@pytest.mark.parametrize(("kind", "target"), REFUSED, ids=str)
def test_columns_that_could_lose_something_are_told(
    bed: Bed, spark: SparkSession, kind: Any, target: PrimitiveType
) -> None:
    bed.put("in/a.avro", header(record(v=kind, w="int")))
    schema = Schema(NestedField(1, "v", target))
    assert find_plain(listed(bed, "in"), source_of(), schema, LIMITS) is None
    with pytest.raises(BadSpec, match=r"column 'v' of 'in/a\.avro' is .* cannot feed 'v'") as caught:
        read_table_rows(spark, listed(bed, "in"), source_of(), schema, "UTC")
    assert caught.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED


def test_names_are_exact_and_options_are_refused(bed: Bed, spark: SparkSession) -> None:
    bed.put("in/a.avro", avro_file(record(ID="long"), [{"ID": 1}]))
    with pytest.raises(BadData, match=r"'in/a\.avro' has the column 'ID' and the table has 'id'"):
        find_plain_rows(listed(bed, "in"), source_of(), TABLE, LIMITS)
    with pytest.raises(BadSpec, match="has no meaning for the format Avro"):
        find_plain_rows(listed(bed, "in"), source_of(options={"header": "true"}), TABLE, LIMITS)


def test_a_merge_sees_the_types_of_the_file_where_the_table_has_none(bed: Bed, spark: SparkSession) -> None:
    deep = {"type": "array", "items": "int"}
    bed.put("in/a.avro", header(record(op="string", at=logical("long", "timestamp-micros"), id="long", deep=deep)))
    found = read_source(spark, listed(bed, "in"), source_of(), TABLE.select("id"), ReadRules("UTC"))
    assert [(c.name, str(c.type)) for c in found.columns] == [("op", "string"), ("at", "timestamptz"), ("id", "long")]


def test_a_file_that_is_replaced_while_tasks_read_it_is_told(bed: Bed, spark: SparkSession) -> None:
    bed.put("in/a.avro", avro_file(PAIR, AB))
    listing = listed(bed, "in")
    read = read_source(spark, listing, source_of(), TABLE, ReadRules("UTC"))
    bed.put("in/a.avro", avro_file(PAIR, [*AB, *AB]))
    with pytest.raises(BadData, match=r"'in/a\.avro' is not the file that this job began with"), readable(listing):
        read.frame.collect()

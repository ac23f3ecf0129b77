"""Plain Parquet sources read without Spark hold what Spark reads; what is not plain is left to Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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
from skipstone.sources.listing import SourceListing, list_source
from skipstone.sources.plain import NotPlainError, PlainLimits, PlainSource, find_plain
from skipstone.sources.projection import ERROR_COLUMN, RECORD_COLUMN
from skipstone.sources.reading import ReadRules, read_source
from skipstone.tables.arrow import arrow_type_of
from skipstone_core.contract.requests import CatalogRef, CatalogType, SourceFormat, SourceSpec, WarehouseRef
from skipstone_core.errors import BadData, BadSpec

LIMITS = PlainLimits(rows=1000, unpacked_bytes=1024 * 1024)
ANCIENT = datetime(1, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
LATE = datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
PLAIN: list[tuple[PrimitiveType, pa.DataType, list[Any]]] = [
    (BooleanType(), pa.bool_(), [True, False]),
    (IntegerType(), pa.int32(), [-(2**31), 2**31 - 1]),
    (LongType(), pa.int64(), [-(2**63), 2**63 - 1]),
    (LongType(), pa.uint32(), [0, 2**32 - 1]),
    (FloatType(), pa.float32(), [float("nan"), -0.0, float("inf"), 1.5]),
    (DoubleType(), pa.float64(), [float("nan"), -0.0, 5e-324, 1e300]),
    (StringType(), pa.string(), ["", "𝄞 é", "x" * 4000]),
    (StringType(), pa.large_string(), ["a"]),
    (StringType(), pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
    (BinaryType(), pa.binary(), [b"", b"\xff"]),
    (DateType(), pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)]),
    (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.00")]),
    (DecimalType(20, 0), pa.uint64(), [2**64 - 1]),
    (DecimalType(38, 10), pa.decimal128(38, 10), [Decimal("9999999999999999999999999999.9999999999")]),
    (TimestampType(), pa.timestamp("us"), [ANCIENT, LATE]),
    (TimestampType(), pa.timestamp("ms"), [ANCIENT.replace(microsecond=1000), datetime(1969, 12, 31, 23, 59)]),  # noqa: DTZ001
    (TimestamptzType(), pa.timestamp("us", tz="UTC"), [ANCIENT.replace(tzinfo=UTC), LATE.replace(tzinfo=UTC)]),
    (TimestamptzType(), pa.timestamp("us", tz="Asia/Tokyo"), [datetime(1900, 1, 1, tzinfo=UTC)]),
    (TimeType(), pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    (LongType(), pa.int32(), [-(2**31), 2**31 - 1]),
    (IntegerType(), pa.int64(), [-(2**31), 2**31 - 1]),
    (DoubleType(), pa.float32(), [1.5]),
    (DecimalType(12, 4), pa.decimal128(9, 2), [Decimal("1.50")]),
    (DecimalType(38, 38), pa.decimal128(38, 19), [Decimal("-0.9"), Decimal(0)]),
    (DecimalType(21, 2), pa.int64(), [-(2**63), 2**63 - 1]),
]
#: Values that the table's type does not hold.
UNFIT: list[tuple[PrimitiveType, pa.DataType, Any]] = [
    (IntegerType(), pa.int64(), 2**31),
    (DecimalType(4, 2), pa.int64(), 100),
    (DecimalType(9, 1), pa.decimal128(9, 2), Decimal("0.05")),
    (DecimalType(38, 38), pa.decimal128(38, 19), Decimal("9468034.52")),
    (DecimalType(38, 30), pa.int64(), 14202841552747912),
]
NOT_PLAIN: list[tuple[PrimitiveType, pa.DataType, list[Any]]] = [
    (IntegerType(), pa.int16(), [1]),
    (TimestampType(), pa.timestamp("ns"), [LATE.replace(year=2020)]),
    (TimestamptzType(), pa.timestamp("us"), [datetime(2020, 1, 1)]),  # noqa: DTZ001
    (TimeType(), pa.time32("ms"), [time(1)]),
    (UUIDType(), pa.string(), ["00000000-0000-0000-0000-00000000ab01"]),
    (UUIDType(), pa.binary(16), [bytes(16)]),
    (FixedType(2), pa.binary(), [b"ab"]),
]


def only(kind: PrimitiveType) -> Schema:
    """A table with the column ``v``."""
    return Schema(NestedField(1, "v", kind))


def found(root: Path, table: pa.Table, schema: Schema, **options: Any) -> tuple[PlainSource | None, SourceListing]:
    """``table`` written to a file, as a source for a table of ``schema``."""
    limits = options.pop("limits", LIMITS)
    pq.write_table(table, root / "a.parquet", **options)
    source = source_of("a.parquet")
    listing = list_source(warehouse(root), source)
    return find_plain(listing, source, schema, limits), listing


def is_left(plain: PlainSource, schema: pa.Schema) -> bool:
    """Whether the source is left to Spark once its rows are read."""
    try:
        plain.rows(schema)
    except NotPlainError:
        return True
    return False


def source_of(*paths: str, **fields: Any) -> SourceSpec:
    return SourceSpec(format=SourceFormat.PARQUET, paths=paths, **fields)


def warehouse(root: Path) -> WarehouseRef:
    return WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL))


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """The columns as they reach a writer."""
    return pa.schema([(field.name, arrow_type_of(field.field_type)) for field in schema.fields])


def by_spark(spark: SparkSession, listing: SourceListing, schema: Schema) -> pa.Table:
    """What a merge's tasks get."""
    arrow = arrow_schema_of(schema)
    read = read_source(spark, listing, source_of("a.parquet"), schema, ReadRules("UTC"))
    batches = read.frame.select(*arrow.names).toArrow().to_batches()
    return pa.Table.from_batches([table_batch(batch, arrow) for batch in batches], schema=arrow)


def test_plain_columns_are_read_as_spark_reads_them(tmp_path: Path, spark: SparkSession) -> None:
    """All cases are columns of one file; shorter ones end in nulls."""
    names, count = [f"v{at}" for at in range(len(PLAIN))], 1 + max(len(values) for _, _, values in PLAIN)
    padded = [pa.array([*values, *[None] * (count - len(values))], arrow) for _, arrow, values in PLAIN]
    table = pa.table([*padded, [1] * count], names=[*names, "more.v"])
    schema = Schema(
        *(NestedField(at + 1, name, kind) for at, (name, (kind, *_)) in enumerate(zip(names, PLAIN, strict=True)))
    )
    plain, listing = found(tmp_path, table, schema)
    assert plain is not None
    rows = plain.rows(arrow_schema_of(schema))
    read = by_spark(spark, listing, schema)
    assert {name: repr(rows[name].to_pylist()) for name in names} == {
        name: repr(read[name].to_pylist()) for name in names
    }


def test_old_timestamps_of_spark_are_read_to_their_full_range(tmp_path: Path, spark: SparkSession) -> None:
    table = pa.table({"v": pa.array([ANCIENT, LATE], pa.timestamp("us"))})
    plain, listing = found(tmp_path, table, only(TimestamptzType()), use_deprecated_int96_timestamps=True)
    assert plain is not None
    rows = plain.rows(pa.schema([("v", pa.timestamp("us", tz="UTC"))]))
    assert rows.to_pylist() == by_spark(spark, listing, only(TimestamptzType())).to_pylist()


@pytest.mark.parametrize(("kind", "arrow", "value"), UNFIT, ids=str)
def test_a_value_that_does_not_fit_is_left_to_spark_which_tells_it(
    tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType, value: Any
) -> None:
    plain, _ = found(tmp_path, pa.table({"v": pa.array([value], arrow)}), only(kind))
    assert plain is None or is_left(plain, arrow_schema_of(only(kind)))


@pytest.mark.parametrize(("kind", "arrow", "values"), NOT_PLAIN, ids=lambda value: str(value)[:40])
def test_columns_that_need_a_conversion_are_left_to_spark(
    tmp_path: Path, kind: PrimitiveType, arrow: pa.DataType, values: list[Any]
) -> None:
    assert found(tmp_path, pa.table({"v": pa.array(values, arrow)}), only(kind))[0] is None


@pytest.mark.parametrize(
    "told",
    [
        {"org.apache.spark.version": "2.4.8"},
        {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyINT96": ""},
    ],
)
def test_dates_of_the_old_calendar_are_left_to_spark(tmp_path: Path, told: dict[str, str]) -> None:
    table = pa.table({"v": pa.array([date(1500, 1, 1)])})
    assert found(tmp_path, table.replace_schema_metadata({"org.apache.spark.version": "3.5.1"}), only(DateType()))[0]
    assert found(tmp_path, table.replace_schema_metadata(told), only(DateType()))[0] is None


@pytest.mark.parametrize("limits", [PlainLimits(2, 2**20), PlainLimits(1000, 3)])
def test_large_sources_are_left_to_spark(tmp_path: Path, limits: PlainLimits) -> None:
    table = pa.table({"v": pa.array([1, 2, 3])})
    assert found(tmp_path, table, only(LongType()))[0]
    assert found(tmp_path, table, only(LongType()), limits=limits)[0] is None


def test_a_damaged_page_is_left_to_spark(tmp_path: Path) -> None:
    plain, _ = found(tmp_path, pa.table({"v": pa.array(range(500))}), only(LongType()), compression="zstd")
    assert plain is not None
    path = tmp_path / "a.parquet"
    content = bytearray(path.read_bytes())
    content[40:400] = bytes(360)
    path.write_bytes(content)
    assert is_left(plain, pa.schema([("v", pa.int64())]))


def test_text_that_is_not_utf_8_is_a_bad_row(tmp_path: Path, spark: SparkSession) -> None:
    data = pa.array([b"a", b"x\xff\xfez", b"z", None], pa.binary())
    text = pa.StringArray.from_buffers(len(data), data.buffers()[1], data.buffers()[2], data.buffers()[0])
    plain, listing = found(tmp_path, pa.table({"v": text}), only(StringType()))
    assert plain is not None
    assert is_left(plain, arrow_schema_of(only(StringType())))
    frame = read_source(spark, listing, source_of("a.parquet"), only(StringType()), ReadRules("UTC")).frame
    told = [None, "column 'v': the value is not valid UTF-8 text", None, None]
    assert [row[ERROR_COLUMN] for row in frame.collect()] == told


@pytest.mark.parametrize(
    ("kind", "arrow", "ends"),
    [
        (DateType(), pa.date32(), (-(2**31), 2**31 - 1)),
        (TimestampType(), pa.timestamp("us"), (-(2**63), 2**63 - 1)),
        (TimestamptzType(), pa.timestamp("us", tz="UTC"), (-(2**63), 2**63 - 1)),
    ],
    ids=lambda value: str(value),
)
def test_years_before_1_and_after_9999_are_read(
    tmp_path: Path, spark: SparkSession, kind: PrimitiveType, arrow: pa.DataType, ends: tuple[int, int]
) -> None:
    numbers = pa.array([*ends, 0, None], pa.int32() if kind == DateType() else pa.int64())
    plain, listing = found(tmp_path, pa.table({"v": numbers.view(arrow)}), only(kind))
    assert plain is not None
    rows = plain.rows(arrow_schema_of(only(kind)))
    assert rows.column("v").combine_chunks().view(numbers.type) == numbers
    assert by_spark(spark, listing, only(kind)).column("v").combine_chunks().view(numbers.type) == numbers


def test_far_years_of_int96_are_bad_rows(tmp_path: Path, spark: SparkSession) -> None:
    numbers = pa.array([-62135596800000001, -62135596800000000, 253402300799999999, 253402300800000000, None])
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        frame = spark.createDataFrame(pa.table({"v": numbers}))
        written = frame.selectExpr("timestamp_micros(v) as v").coalesce(1)
        written.write.parquet(str(tmp_path / "old"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    next((tmp_path / "old").glob("*.parquet")).rename(tmp_path / "a.parquet")
    listing = list_source(warehouse(tmp_path), source_of("a.parquet"))
    plain = find_plain(listing, source_of("a.parquet"), only(TimestamptzType()), LIMITS)
    assert plain is not None
    assert is_left(plain, arrow_schema_of(only(TimestamptzType())))
    frame = read_source(spark, listing, source_of("a.parquet"), only(TimestamptzType()), ReadRules("UTC")).frame
    told = [row[0] for row in frame.select(ERROR_COLUMN).collect()]
    assert [one is not None for one in told] == [True, False, False, True, False]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Madrid", "America/New_York"])
def test_times_that_no_instant_stands_for_are_told(tmp_path: Path, spark: SparkSession, zone: str) -> None:
    numbers = pa.array([-(2**63), -(10**18), 10**18, 2**63 - 1])
    _, listing = found(tmp_path, pa.table({"v": numbers.view(pa.timestamp("us"))}), only(TimestamptzType()))
    frame = read_source(spark, listing, source_of("a.parquet"), only(TimestamptzType()), ReadRules(zone)).frame
    told = [row[0] for row in frame.select(ERROR_COLUMN, RECORD_COLUMN).collect()]
    assert [one is not None for one in told] == [zone != "UTC", False, False, zone != "UTC"]


def test_columns_that_do_not_fit_are_told_without_spark(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([1])})
    for name, written in (("a.parquet", table), ("b.parquet", table.rename_columns(["w"]))):
        pq.write_table(written, tmp_path / name)
    source, schema = source_of("a.parquet", "b.parquet"), Schema(NestedField(1, "v", LongType()))
    with pytest.raises(BadData, match=r"'a\.parquet' has no column 'w'"):
        find_plain(list_source(warehouse(tmp_path), source), source, schema, LIMITS)
    odd = source_of("a.parquet", options={"delimiter": ";"})
    with pytest.raises(BadSpec, match="delimiter"):
        find_plain(list_source(warehouse(tmp_path), odd), odd, schema, LIMITS)

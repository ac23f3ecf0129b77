"""Registered files are read alike by plain Spark, PyIceberg, DuckDB and us, or refused with file, column and types."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import LoadMode, SourceFormat
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append
from tests.spark.load_bed import Bed, source
from tests.spark.merge_bed import UPDATE, MergeBed, task_of
from tests.spark.secondengine import duckdb_rows, spark_rows

MOMENT = datetime(2020, 7, 1, 1, 2, 3, 123456)  # noqa: DTZ001
EARLY = datetime(1700, 1, 1, 23, 59, 59)  # noqa: DTZ001
ZONED = [MOMENT.replace(tzinfo=UTC), None, EARLY.replace(tzinfo=UTC)]
UUIDS = [uuid.UUID(int=5).bytes, None, uuid.UUID(int=1 << 127).bytes]
CENTS = [Decimal("1.25"), None, Decimal("-3.00")]
FLAT = StructType(NestedField(2, "a", IntegerType()), NestedField(3, "b", StringType()))


@dataclass(frozen=True)
class Stored:
    """A column as some writer stores it, and the column of the table; ``options``: of pyarrow's writer."""

    name: str
    kind: IcebergType
    values: pa.Array
    options: dict[str, Any] = field(default_factory=dict)
    in_spark: bool = True


def stored(name: str, kind: IcebergType, values: list[Any], arrow: pa.DataType, **options: Any) -> Stored:
    return Stored(name, kind, pa.array(values, arrow), options)


INTEGERS = {"store_decimal_as_integer": True}
ACCEPTED = [
    stored("long of int", LongType(), [1, None, -5], pa.int32()),
    stored("long of tinyint", LongType(), [1, None, -5], pa.int8()),
    stored("int of smallint", IntegerType(), [1, None, -5], pa.int16()),
    stored("double of float", DoubleType(), [1.5, None, float("nan")], pa.float32()),
    stored("float", FloatType(), [1.5, None, -0.0], pa.float32()),
    stored("wide decimal of int", DecimalType(38, 2), CENTS, pa.decimal128(9, 2), **INTEGERS),
    stored("decimal of long", DecimalType(18, 2), CENTS, pa.decimal128(18, 2), **INTEGERS),
    stored("decimal of fewer digits", DecimalType(18, 2), CENTS, pa.decimal128(9, 2)),
    stored("wide decimal", DecimalType(38, 2), CENTS, pa.decimal128(20, 2)),
    stored("timestamp", TimestampType(), [MOMENT, None, EARLY], pa.timestamp("us")),
    stored("timestamptz", TimestamptzType(), ZONED, pa.timestamp("us", tz="UTC")),
    stored("int96", TimestamptzType(), [MOMENT, None, EARLY], pa.timestamp("us"),
           use_deprecated_int96_timestamps=True),
    stored("date", DateType(), [MOMENT.date(), None, date(1, 1, 1)], pa.date32()),
    Stored("time", TimeType(), pa.array([MOMENT.time(), None, time()], pa.time64("us")), {}, in_spark=False),
    stored("large text", StringType(), ["a" * 40, None, "é"], pa.large_string()),
    stored("binary", BinaryType(), [b"\xff\x00", None, b""], pa.binary()),
    stored("fixed", FixedType(2), [b"ab", None, b"\xff\x00"], pa.binary(2)),
    stored("uuid", UUIDType(), UUIDS, pa.uuid(), store_schema=False),
    stored("uuid of bytes", UUIDType(), UUIDS, pa.binary(16)),
    stored("boolean", BooleanType(), [True, None, False], pa.bool_()),
    stored("list", ListType(2, LongType(), element_required=False), [[1, None], None, []], pa.list_(pa.int32())),
    stored("list of items", ListType(2, IntegerType(), element_required=False), [[1, None], None, []],
           pa.list_(pa.int32()), use_compliant_nested_type=False),
    stored("map", MapType(2, StringType(), 3, IntegerType(), value_required=False), [[("a", 1)], None, []],
           pa.map_(pa.string(), pa.int32())),
    stored("struct in another order", FLAT, [{"b": "x", "a": 1}, None, {"b": None, "a": None}],
           pa.struct([("b", pa.string()), ("a", pa.int32())])),
    stored("struct with fewer columns", FLAT, [{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int32())])),
]  # fmt: skip

REFUSED = [
    (stored("unsigned", LongType(), [1], pa.uint32()), "INT32 Int (bits 32, signed false)", "long"),
    (stored("unsigned short", IntegerType(), [1], pa.uint16()), "INT32 Int (bits 16, signed false)", "int"),
    (stored("long for int", IntegerType(), [1], pa.int64()), "INT64", "int"),
    (stored("double for float", FloatType(), [1.0], pa.float64()), "DOUBLE", "float"),
    (stored("other scale", DecimalType(18, 4), CENTS, pa.decimal128(9, 2)), "precision 9, scale 2", "decimal(18, 4)"),
    (stored("more digits", DecimalType(9, 2), CENTS, pa.decimal128(10, 2)), "precision 10", "decimal(9, 2)"),
    (stored("milliseconds", TimestampType(), [EARLY], pa.timestamp("ms")), "in milliseconds", "timestamp"),
    (stored("nanoseconds", TimestampType(), [MOMENT], pa.timestamp("ns")), "in nanoseconds", "timestamp"),
    (stored("int96 without zone", TimestampType(), [MOMENT], pa.timestamp("us"),
            use_deprecated_int96_timestamps=True), "INT96", "timestamp"),
    (stored("zone", TimestampType(), [ZONED[0]], pa.timestamp("us", tz="UTC")), "UTC true", "timestamp"),
    (stored("no zone", TimestamptzType(), [MOMENT], pa.timestamp("us")), "UTC false", "timestamptz"),
    (stored("time in milliseconds", TimeType(), [time(1)], pa.time32("ms")), "in milliseconds", "time"),
    (stored("bytes for text", StringType(), [b"a"], pa.binary()), "BYTE_ARRAY", "string"),
    (stored("text for bytes", BinaryType(), ["a"], pa.string()), "BYTE_ARRAY String", "binary"),
    (stored("other length", FixedType(3), [b"ab"], pa.binary(2)), "FIXED_LEN_BYTE_ARRAY(2)", "fixed[3]"),
    (stored("duration", LongType(), [1], pa.duration("us")), "INT64", "long"),
    (Stored("dictionary", StringType(), pa.array(["b", None]).dictionary_encode()), "Arrow reads as dict", "string"),
    (stored("view of text", StringType(), ["b"], pa.string_view()), "Arrow reads as string_view", "string"),
    (stored("view of bytes", BinaryType(), [b"b"], pa.binary_view()), "Arrow reads as binary_view", "binary"),
    (stored("decimal of 64 bits", DecimalType(18, 2), CENTS, pa.decimal64(18, 2)),
            "Arrow reads as decimal64", "decimal"),
    (stored("zone of a place", TimestamptzType(), ZONED, pa.timestamp("us", tz="Europe/Berlin")),
            "Arrow reads as timestamp[us, tz=Europe/Berlin]", "timestamptz"),
    (stored("list for text", StringType(), [["a"]], pa.list_(pa.string())), "list<", "string"),
    (stored("text for list", ListType(2, StringType(), element_required=False), ["a"], pa.string()), "string", "list"),
]  # fmt: skip


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.catalog.close()


def put(bed: Bed, name: str, table: pa.Table, **options: Any) -> str:
    """Write a file as a writer that knows nothing of Iceberg; its path."""
    path = bed.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return name


def register(bed: Bed, *paths: str, name: str = "t", **rest: Any) -> Any:
    options = {one: rest.pop(one) for one in ("uid", "ports") if one in rest}
    return bed.load(source(SourceFormat.PARQUET, *paths, **rest), name, mode=LoadMode.REGISTER, **options)


def test_every_engine_reads_the_same_values(bed: Bed, spark: SparkSession) -> None:
    """All accepted types at once, one column each, in files without field ids."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    for in_spark in (True, False):
        cases = [case for case in ACCEPTED if case.in_spark is in_spark]
        for number, case in enumerate(cases):
            name = f"t{number}{'s' if in_spark else ''}"
            bed.create(Schema(NestedField(1, "c", case.kind)), name)
            put(bed, f"lake/{name}.parquet", pa.table({"c": case.values}), **case.options)
            report = register(bed, f"lake/{name}.parquet", name=name)
            assert report.outcome is RunOutcome.COMMITTED, case.name
            expected = [_plain(value) for value in case.values.to_pylist()]
            assert [_plain(value) for value in bed.arrow(name)["c"].to_pylist()] == expected, case.name
            assert [_plain(value) for value in read(bed.table(name))["c"].to_pylist()] == expected, case.name
            duck = duckdb_rows(bed.table(name))["c"].to_pylist()
            assert [_plain(value) for value in duck] == expected, case.name
            if in_spark:
                found = spark_rows(spark, bed.warehouse, f"ns.{name}")["c"].to_pylist()
                assert [_plain(value) for value in found] == expected, case.name
            _assert_bounds_hold(bed, name, case)


def _plain(value: Any) -> Any:
    """Values of several engines in one form."""
    match value:
        case datetime():
            return value.replace(tzinfo=None)
        case uuid.UUID():
            return value.bytes
        case str() if len(value) == 36 and value.count("-") == 4:
            return uuid.UUID(value).bytes
        case dict():
            return tuple(sorted((key, _plain(one)) for key, one in value.items() if one is not None))
        case list():
            return [_plain(one) for one in value]
        case float():
            return repr(value)
        case _:
            return value


#: Without bounds: there are none of nested values and of INT96; of floats the upper one is not believed, as nobody
#: counted NaNs.
UNBOUNDED = ("int96", "list", "list of items", "map", "struct in another order", "struct with fewer columns")


def _assert_bounds_hold(bed: Bed, name: str, case: Stored) -> None:
    """The bounds are the least and the greatest value; counts are those of the file."""
    files = read_file_set(bed.table(name))
    if case.name in UNBOUNDED:
        file = files.data_file(0)
        assert 1 not in (file.lower_bounds or {}), case.name
        return
    bounds = files.bounds(1)
    assert (bounds.null_count[0].as_py(), bounds.value_count[0].as_py()) == (1, 3), case.name
    assert bounds.nan_count[0].as_py() is None
    lower, upper = bounds.lower[0].as_py(), bounds.upper[0].as_py()
    values = [_plain(value) for value in case.values.drop_null().to_pylist()]
    if isinstance(case.kind, FloatType | DoubleType):
        assert (lower, upper) == (pc.min(case.values.filter(pc.is_finite(case.values))).as_py(), None)
    elif isinstance(case.kind, StringType):
        assert lower == min(values)[:16]
        assert upper >= max(values)
    else:
        assert (_plain(lower), _plain(upper)) == (min(values), max(values)), case.name


@pytest.mark.parametrize(("case", "found", "wanted"), REFUSED, ids=lambda one: getattr(one, "name", ""))
def test_a_type_that_some_engine_reads_otherwise_is_refused(bed: Bed, case: Stored, found: str, wanted: str) -> None:
    bed.create(Schema(NestedField(1, "c", case.kind)))
    put(bed, "lake/a.parquet", pa.table({"c": case.values}), **case.options)
    with pytest.raises(BadSpec) as refused:
        register(bed, "lake")
    assert refused.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    message = str(refused.value)
    assert "'lake/a.parquet': column 'c' is " in message
    assert found in message
    assert f"the table's type {wanted}" in message


#: What different writers store for one type; each is read beside the others and beside a file of our own.
BESIDE = {
    "text": (StringType(), ["b", None], (pa.string(), pa.large_string())),
    "bytes": (BinaryType(), [b"b", None], (pa.binary(), pa.large_binary())),
    "uuid": (UUIDType(), UUIDS, (pa.uuid(), pa.binary(16))),
    "decimal": (DecimalType(18, 2), CENTS, (pa.decimal128(18, 2), pa.decimal128(9, 2))),
    "instant": (TimestamptzType(), ZONED, (pa.timestamp("us", "UTC"), pa.timestamp("us", "Etc/UTC"))),
    "list": (ListType(2, StringType(), element_required=False), [["b"], None],
             (pa.list_(pa.string()), pa.large_list(pa.large_string()))),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_files_of_different_writers_are_read_beside_one_another(bed: Bed, name: str) -> None:
    kind, values, types = BESIDE[name]
    bed.create(Schema(NestedField(1, "c", kind)))
    for number, arrow in enumerate(types):
        put(bed, f"lake/{number}.parquet", pa.table({"c": pa.array(values, arrow)}))
    register(bed, "lake")
    append(bed.table(), pa.table({"c": pa.array(values, arrow_schema(bed.table().schema()).field("c").type)}))
    expected = sorted(repr(_plain(value)) for value in values * (len(types) + 1))
    for found in (bed.arrow(), read(bed.table())):
        assert sorted(repr(_plain(value)) for value in found["c"].to_pylist()) == expected


def test_a_merge_rewrites_registered_files_of_any_type_and_leaves_them_where_they_are(
    bed: Bed, spark: SparkSession
) -> None:
    """All columns that one file can hold beside each other, INT96 and decimals as integers among them."""
    others = ("timestamp", "uuid", "fixed", "uuid of bytes", "decimal of fewer digits", "wide decimal", "list of items")
    cases = [case for case in ACCEPTED if case.in_spark and case.name not in others]
    fields = [NestedField(1, "k", LongType()), NestedField(2, "note", StringType())]
    columns = {"k": pa.array([1, 2, 3], pa.int32()), "note": pa.array(["a", "b", "c"])}
    for number, case in enumerate(cases):
        fields.append(NestedField(100 * number + 100, f"c{number}", fresh(case.kind, 100 * number + 101)))
        columns[f"c{number}"] = case.values
    bed.create(Schema(*fields))
    path = bed.root / put(bed, "lake/a.parquet", pa.table(columns), use_deprecated_int96_timestamps=True, **INTEGERS)
    register(bed, "lake")
    Lake(bed.root).reindex(index_on("note"))
    before = path.read_bytes()
    merges = MergeBed(bed.root)
    feed = pa.table({"k": pa.array([2], pa.int64()), "note": ["changed"]})
    report = merges.merge(task_of(merges.source(feed), ("k",), when_matched=(UPDATE,), when_not_matched=()))
    assert report.counts["filesRewritten"] == 1
    assert path.read_bytes() == before
    expected = [[_plain(value) for value in case.values.to_pylist()] for case in cases]
    for found in (bed.arrow(), read(bed.table()), spark_rows(spark, bed.warehouse, "ns.t")):
        ordered = found.sort_by("k")
        assert ordered["note"].to_pylist() == ["a", "changed", "c"]
        for number, case in enumerate(cases):
            assert [_plain(value) for value in ordered[f"c{number}"].to_pylist()] == expected[number], case.name


def fresh(kind: IcebergType, first: int) -> IcebergType:
    """The type with field ids from ``first`` on."""
    match kind:
        case ListType():
            return ListType(first, kind.element_type, element_required=False)
        case MapType():
            return MapType(first, kind.key_type, first + 1, kind.value_type, value_required=False)
        case StructType():
            numbered = enumerate(kind.fields, first)
            return StructType(*(NestedField(number, one.name, one.field_type) for number, one in numbered))
        case _:
            return kind

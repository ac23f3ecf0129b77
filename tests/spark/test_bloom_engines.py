"""Bloom filters between engines: Java reads ours as we do, we read those of Spark, and all give the same rows."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession
from skipstone.query import ReadOptions, read
from skipstone.query.plans.refusals import Refusal
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.funnel import PruneStage
from skipstone_core.table_properties import BLOOM_FILTER_OF, BLOOM_RATE_OF

from tests.spark.duck import connection
from tests.spark.lake import append
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.plans_bed import BY_K, open_bed
from tests.spark.secondengine import second_spark
from tests.unit.bloom_beds import eager_filters
from tests.unit.test_bloom_filters import refused

SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "20000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
ROWS = 240
TYPES: dict[str, IcebergType] = {
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "day": DateType(),
    "time": TimeType(),
    "local": TimestampType(),
    "moment": TimestamptzType(),
    "money": DecimalType(9, 2),
    "more": DecimalType(18, 4),
    "most": DecimalType(38, 10),
    "wide": DecimalType(20, 0),
    "text": StringType(),
    "bytes": BinaryType(),
    "fixed": FixedType(5),
    "uuid": UUIDType(),
}
#: Types that Spark writes itself.
OF_SPARK = {name: kind for name, kind in TYPES.items() if name not in ("time", "fixed", "uuid")}
SCHEMA = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(TYPES.items(), 1)))
PROPERTIES = {f"{BLOOM_FILTER_OF}{name}": "true" for name in TYPES} | {
    f"{BLOOM_RATE_OF}{name}": "0.001" for name in TYPES
}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001


def values_of(name: str, random: Random) -> list[Any]:
    """Values of a type, without NaN, which nobody looks for in a filter; both zeros among floats."""
    number = random.randrange
    moment = lambda: _EPOCH + dt.timedelta(microseconds=number(-(10**16), 10**16))  # noqa: E731
    make: dict[str, Any] = {
        "int": lambda: number(-(2**31), 2**31),
        "long": lambda: number(-9, 9) if number(20) == 0 else number(-(2**63), 2**63),
        "float": lambda: random.choice([0.0, -0.0]) if number(20) == 0 else number(-(2**22), 2**22) / 1024,
        "double": lambda: random.choice([0.0, -0.0]) if number(20) == 0 else random.gauss(0, 10.0 ** number(-9, 9)),
        "day": lambda: moment().date(),
        "time": lambda: moment().time(),
        "local": moment,
        "moment": lambda: moment().replace(tzinfo=dt.UTC),
        "money": lambda: Decimal(f"{number(-(10**9) + 1, 10**9)}e-2"),
        "more": lambda: Decimal(f"{number(-(10**18) + 1, 10**18)}e-4"),
        "most": lambda: Decimal(f"{random.choice([1, number(10**20)]) * number(-(10**17), 10**17)}e-10"),
        "wide": lambda: Decimal(number(-(10**20) + 1, 10**20)),
        "text": lambda: "".join(random.choice("aé😀z") for _ in range(number(40))) + str(number(10**6)),
        "bytes": lambda: random.randbytes(number(70)) + bytes([number(256)]) * 3,
        "fixed": lambda: random.randbytes(5),
        "uuid": lambda: random.randbytes(16),
    }
    return [make[name]() if random.random() < 0.95 else None for _ in range(ROWS)]


def rows_of(names: Sequence[str], seed: int) -> pa.Table:
    random = Random(seed)
    kinds = arrow_schema(Schema(*(SCHEMA.find_field(name) for name in names)))
    plain = pa.schema([pa.field(field.name, pa.binary(16) if field.name == "uuid" else field.type) for field in kinds])
    return pa.table({name: values_of(name, random) for name in names}, schema=plain)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def in_java(spark: SparkSession, name: str, value: Any) -> Any:
    """A value as Iceberg's expressions take it for a column of the type."""
    java = spark.sparkContext._jvm.java  # type: ignore[union-attr]
    if name == "uuid":
        return str(UUID(bytes=value))
    if isinstance(value, bytes):
        return java.nio.ByteBuffer.wrap(value)
    if isinstance(value, Decimal):
        return java.math.BigDecimal(f"{value:f}")
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat(*(["T"] if isinstance(value, dt.datetime) else []))
    return value


class JavaFilters:
    """What Iceberg in Java makes of the filters of a file's first row group."""

    def __init__(self, spark: SparkSession, path: str, schema: Schema) -> None:
        self._spark = spark
        apache = spark.sparkContext._jvm.org.apache  # type: ignore[union-attr]
        parquet = apache.iceberg.shaded.org.apache.parquet.hadoop
        source = parquet.util.HadoopInputFile.fromPath(
            apache.hadoop.fs.Path(f"file://{path}"), apache.hadoop.conf.Configuration()
        )
        self._reader = parquet.ParquetFileReader.open(source)
        self._schema = apache.iceberg.SchemaParser.fromJson(schema.model_dump_json())
        self._iceberg = apache.iceberg

    def __enter__(self) -> JavaFilters:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def may_hold(self, name: str, value: Any) -> bool:
        """Whether Spark would read the row group for ``name = value``."""
        block = self._reader.getFooter().getBlocks()[0]
        equal = self._iceberg.expressions.Expressions.equal(name, in_java(self._spark, name, value))
        judge = self._iceberg.parquet.ParquetBloomRowGroupFilter(self._schema, equal)
        schema = self._reader.getFooter().getFileMetaData().getSchema()
        return bool(judge.shouldRead(schema, block, self._reader.getBloomFilterDataReader(block)))


def test_java_finds_in_our_filters_what_we_wrote(bed: MergeBed, spark: SparkSession) -> None:
    bed.create(SCHEMA, **PROPERTIES)
    stored, others = (rows_of(list(TYPES), seed) for seed in (1, 2))
    bed.append(stored.to_pylist())
    (path,) = bed.paths()
    with JavaFilters(spark, path, bed.table().schema()) as java:
        for name in TYPES:
            mine = [value for value in stored[name].to_pylist()[:40] if value is not None]
            assert [value for value in mine if not java.may_hold(name, value)] == [], name
            rest = [one for one in others[name].to_pylist() if one is not None and one not in stored[name].to_pylist()]
            assert sum(java.may_hold(name, value) for value in rest[:40]) <= 4, name
        assert all(java.may_hold(name, zero) for name in ("float", "double") for zero in (0.0, -0.0))


LITERALS: dict[str, Any] = {
    "int": str, "long": "{}L".format, "text": "'{}'".format, "day": "date '{}'".format,
    "local": "timestamp_ntz '{}'".format, "moment": "timestamp '{}'".format, "uuid": lambda v: f"'{UUID(bytes=v)}'",
    "float": lambda v: f"cast('{v!r}' as float)", "double": lambda v: f"cast('{v!r}' as double)",
    **{name: lambda v, kind=kind: f"cast('{v:f}' as {kind})" for name, kind in TYPES.items() if "decimal" in str(kind)},
    **{name: lambda v: f"x'{v.hex()}'" for name in ("bytes", "fixed")},
}  # fmt: skip


def test_spark_and_duckdb_read_the_same_rows_by_our_filters(bed: MergeBed, spark: SparkSession) -> None:
    names = [name for name in TYPES if name != "time"]  # which Spark cannot read
    schema = Schema(*(SCHEMA.find_field(name) for name in names))
    bed.create(schema, **PROPERTIES, **{"write.parquet.row-group-limit": "60"})
    rows = rows_of(names, 3)
    bed.append(rows.to_pylist())
    session = second_spark(spark, bed.warehouse)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    table = f"{bed.warehouse.catalog.name}.ns.t"
    (path,) = bed.paths()
    for name in names:
        wanted = [value for value in rows[name].to_pylist()[5::80] if value is not None]
        counts = [sum(one == value for one in rows[name].to_pylist()) for value in wanted]
        texts = [f"{name} = {LITERALS[name](value)}" for value in wanted]
        said = session.sql(
            " union all ".join(f"select {n} n, count(*) c from {table} where {one}" for n, one in enumerate(texts))
        )
        if name != "uuid":  # whose rows Iceberg in Spark loses by their bounds, with and without filters
            assert [row["c"] for row in sorted(said.collect())] == counts, name
        with connection() as duckdb:
            for value, count in zip(wanted, counts, strict=True):
                found = duckdb.execute(f"select count(*) from '{path}' where {name} = ?", [_for_duckdb(name, value)])
                assert found.fetchall() == [(count,)], (name, value)


def _for_duckdb(name: str, value: Any) -> Any:
    return UUID(bytes=value) if name == "uuid" else value


def written_by_spark(spark: SparkSession, warehouse: WarehouseRef, rows: pa.Table) -> None:
    """A table ``ns.t`` of two files of Spark, each of a few row groups.

    Of a column chunk that is all in a dictionary, which it is when values repeat, Parquet in Java writes no filter.
    """
    session = second_spark(spark, warehouse)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    table = f"{warehouse.catalog.name}.ns.t"
    kinds = {"string": "string", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "long": "bigint"}
    columns = ", ".join(f"{name} {kinds.get(str(kind), str(kind))}" for name, kind in OF_SPARK.items())
    given = {f"{BLOOM_FILTER_OF}{name}": "true" for name in OF_SPARK}
    given |= {"write.parquet.row-group-size-bytes": "1000", "write.parquet.row-group-check-min-record-count": "50"}
    given |= {"write.parquet.row-group-check-max-record-count": "50", "write.parquet.bloom-filter-max-bytes": "8192"}
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    session.sql(f"create table {table} ({columns}) using iceberg tblproperties ({properties})")
    for half in (rows.slice(0, ROWS // 2), rows.slice(ROWS // 2)):
        session.createDataFrame(half).coalesce(1).writeTo(table).append()


def check_files_of_spark(spark: SparkSession, warehouse: WarehouseRef, seed: int) -> int:
    """No filter of Spark's refuses a value of its file, and most refuse others; how many cases that were."""
    rows, others = rows_of(list(OF_SPARK), seed), rows_of(list(OF_SPARK), seed + 1)
    catalog = open_catalog(warehouse)
    catalog.create_namespace_if_not_exists("ns")
    written_by_spark(spark, warehouse, rows)
    table = catalog.load_table(("ns", "t"))
    count = right = asked = 0
    for task in table.scan().plan_files():
        path = Path(task.file.file_path.removeprefix("file://").removeprefix("file:"))
        footer, held = pq.read_metadata(path), pq.read_table(path)
        start = 0
        for group in range(footer.num_row_groups):
            part = held.slice(start, footer.row_group(group).num_rows)
            start += part.num_rows
            for name in OF_SPARK:
                keys = part[name].combine_chunks().drop_null()
                assert refused(path, table.schema(), name, keys, group) == [], (seed, name, group)
                count += len(keys)
                absent = pa.array(
                    set(others[name].to_pylist()) - set(part[name].to_pylist()) - {None, 0.0}, others[name].type
                )
                right += len(refused(path, table.schema(), name, absent, group))
                asked += len(absent)
    assert right > 0.9 * asked
    catalog.drop_table(("ns", "t"))
    catalog.close()
    return count


def test_filters_of_spark_are_read_as_spark_means_them(spark: SparkSession, warehouse: WarehouseRef) -> None:
    assert check_files_of_spark(spark, warehouse, 11) > 2000


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_filters_of_spark(spark: SparkSession, warehouse: WarehouseRef) -> None:
    print(f"\n{SOAK_CASES} cases from seed {SOAK_SEED}")
    done, seed = 0, SOAK_SEED
    while done < SOAK_CASES:
        done, seed = done + check_files_of_spark(spark, warehouse, seed), seed + 2
    print(f"{done} values in files of Spark")


def test_merges_and_reads_leave_out_files_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    made = MergeBed(tmp_path)
    rows = rows_of(list(OF_SPARK), 21)
    written_by_spark(spark, made.warehouse, rows)
    keys = [text for text in rows["text"].to_pylist()[: ROWS // 2] if text][:2]
    feed = pa.table({"text": keys, "int": pa.array([7, 7], pa.int32())})
    with eager_filters():
        report = made.merge(task_of(made.source(feed), ["text"]))
    said = {one.name: (one.files_in, one.files_out) for one in report.funnel}
    assert (said[PruneStage.BLOOM], report.counts["rowsMatched"]) == ((2, 1), 2)
    assert read(made.table(), ["int"], f"text = '{keys[0]}'", ReadOptions())["int"].to_pylist() == [7]
    made.catalog.close()


@pytest.mark.parametrize("driver_rows", [0, None], ids=["tasks", "driver"])
def test_spark_reads_only_files_that_filters_leave(
    spark: SparkSession, tmp_path: Path, driver_rows: int | None
) -> None:
    """A table without any index, and one with an index that covers a part of it."""
    bed = open_bed(spark, tmp_path, driver_rows)
    kinds = pa.schema([("k", pa.string()), ("n", pa.int64())])
    bed.lake.create(kinds, properties={f"{BLOOM_FILTER_OF}k": "true", f"{BLOOM_RATE_OF}k": "0.00001"})
    for file in range(12):
        append(bed.lake.table(), pa.table({"k": [f"k{i:04}" for i in range(file, 600, 12)], "n": range(50)}, kinds))
    query = "select n from skipstone.ns.t where k in ('k0007', 'k0013', 'k0302')"
    for covered, dropped in ((0, 9), (3, 8)):
        if covered:
            bed.reindex(BY_K, max_segments=covered)
        found = bed.query(query)
        assert found.files_read == [3]
        assert found.only.plan is not None
        assert found.only.plan.filters is not None
        assert found.only.plan.filters.dropped == dropped
        assert "bloom filters: " in str(found.explanation)
    assert bed.query("select n from skipstone.ns.t where n = 4").refusals == [Refusal.INDEX_NOT_USED]
    bed.lake.catalog.close()

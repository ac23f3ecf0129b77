"""Tables that we write are read identically by engines that are not ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import SparkSession
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.spark.lake import append
from tests.spark.secondengine import duckdb_rows, second_spark

ALL_TYPES = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "real", FloatType()),
    NestedField(5, "number", DoubleType()),
    NestedField(6, "price", DecimalType(9, 2)),
    NestedField(7, "total", DecimalType(38, 10)),
    NestedField(8, "day", DateType()),
    NestedField(9, "seen", TimestampType()),
    NestedField(10, "sent", TimestamptzType()),
    NestedField(11, "name", StringType()),
    NestedField(12, "raw", BinaryType()),
    NestedField(13, "code", FixedType(4)),
    NestedField(14, "tags", ListType(20, StringType(), element_required=False)),
    NestedField(15, "place", StructType(NestedField(21, "city", StringType()), NestedField(22, "zip", IntegerType()))),
    NestedField(16, "extra", MapType(23, StringType(), 24, LongType(), value_required=False)),
)


def example_rows(count: int = 300) -> pa.Table:
    """Rows with nulls, NaN, negative zero, dates before 1970 and text beyond ASCII."""
    return pa.Table.from_pylist([_row(number) for number in range(count)], schema=arrow_schema(ALL_TYPES))


def _row(number: int) -> dict[str, Any]:
    if number % 7 == 3:
        return {"id": number}
    day = dt.date(1965 + number % 90, 1 + number % 12, 1 + number % 28)
    moment = dt.datetime.combine(day, dt.time(number % 24, 3, 4, 56789))
    return {
        "id": number,
        "flag": number % 2 == 0,
        "small": -number,
        "real": float("nan") if number % 11 == 0 else number / 8,
        "number": -0.0 if number % 13 == 0 else number / 3,
        "price": Decimal(number - 150) / 100,
        "total": Decimal(number) * Decimal("-12345678901234567.0000000001"),
        "day": moment.date(),
        "seen": moment,
        "sent": moment.replace(tzinfo=dt.UTC),
        "name": ["Zürich", "東京", "a/b=c %", "", "𝄞" * 20][number % 5],
        "raw": bytes([number % 256, 255]),
        "code": number.to_bytes(4, "big"),
        "tags": [None, "x", "y"][: number % 4],
        "place": {"city": f"c{number % 3}", "zip": None if number % 3 else number},
        "extra": [("k", number), ("n", None)],
    }


SPECS = {
    "unpartitioned": PartitionSpec(),
    "identity of every kind": PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "flag"),
        PartitionField(8, 1001, IdentityTransform(), "day"),
        PartitionField(11, 1002, IdentityTransform(), "name"),
    ),
    "bucket and truncate": PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "id_bucket"),
        PartitionField(11, 1001, TruncateTransform(2), "name_trunc"),
        PartitionField(6, 1002, TruncateTransform(100), "price_trunc"),
    ),
    "year and month": PartitionSpec(
        PartitionField(9, 1000, YearTransform(), "seen_year"), PartitionField(8, 1001, MonthTransform(), "day_month")
    ),
    "day and hour": PartitionSpec(
        PartitionField(10, 1000, DayTransform(), "sent_day"), PartitionField(9, 1001, HourTransform(), "seen_hour")
    ),
    "void": PartitionSpec(PartitionField(11, 1000, VoidTransform(), "name_void")),
}


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    """Comparable rows: in order of id, NaN as text, and -0.0 told from 0.0."""
    return [{k: repr(v) for k, v in row.items()} for row in rows.sort_by("id").to_pylist()]


@dataclass(frozen=True)
class Written:
    """A table of every type under one partition spec, which holds ``example_rows``, and a session that reads it."""

    table: Table
    spark: SparkSession
    name: str


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WarehouseRef, Catalog]]:
    """A warehouse for the tables of this module."""
    root = tmp_path_factory.mktemp("lake")
    warehouse = WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL))
    catalog = open_catalog(warehouse)
    catalog.create_namespace_if_not_exists("ns")
    yield warehouse, catalog
    catalog.close()


@pytest.fixture(scope="module", params=SPECS.values(), ids=SPECS.keys())
def written(request: pytest.FixtureRequest, home: tuple[WarehouseRef, Catalog], spark: SparkSession) -> Written:
    """Written once for all tests, which only read."""
    warehouse, catalog = home
    name = f"t{request.param_index}"
    table = append(catalog.create_table(("ns", name), ALL_TYPES, partition_spec=request.param), example_rows())
    return Written(table, second_spark(spark, warehouse), f"{warehouse.catalog.name}.ns.{name}")


def test_plain_spark_reads_what_was_written(written: Written) -> None:
    found = written.spark.table(written.name).toArrow().cast(arrow_schema(written.table.schema()))
    assert by_id(found) == by_id(example_rows())


def test_duckdb_reads_what_was_written(written: Written) -> None:
    schema = written.table.schema()
    found = duckdb_rows(written.table).select([field.name for field in schema.fields]).cast(arrow_schema(schema))
    assert by_id(found) == by_id(example_rows())


def test_plain_spark_prunes_to_the_right_rows(written: Written) -> None:
    """Bounds or partition values that lie would make filters lose rows; all filters run as one query."""
    each = (f"select {n} as n, id from {written.name} where {sql}" for n, sql in enumerate(FILTERS))
    found = {(row["n"], row["id"]) for row in written.spark.sql(" union all ".join(each)).collect()}
    rows = example_rows().to_pylist()
    assert found == {(n, row["id"]) for n, holds in enumerate(FILTERS.values()) for row in rows if holds(row)}


FILTERS = {
    "name = 'Zürich'": lambda row: row["name"] == "Zürich",
    "name >= '𝄞'": lambda row: (row["name"] or "") >= "𝄞",
    "real = double('NaN')": lambda row: row["real"] is not None and row["real"] != row["real"],
    "price < -1.00": lambda row: row["price"] is not None and row["price"] < -1,
    "day = date '1970-06-06'": lambda row: row["day"] == dt.date(1970, 6, 6),
    "seen < timestamp_ntz '1970-01-01 00:00:00'": lambda row: row["seen"] is not None and row["seen"].year < 1970,
    "name is null": lambda row: row["name"] is None,
    "id between 17 and 19": lambda row: 17 <= row["id"] <= 19,
}

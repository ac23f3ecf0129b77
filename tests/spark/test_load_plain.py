"""Loads of small plain Parquet files, which the driver does without Spark: the same rows, and Spark where it must."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DecimalType, DoubleType, LongType, NestedField, StringType, TimestamptzType
from pyspark.sql import SparkSession
from skipstone.sources.plain import PlainLimits
from skipstone_core.contract.requests import BadRecordPolicy, ColumnMapping, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.spark.load_bed import Bed, bad, source

ALL_IN_SPARK = PlainLimits(0, 0)
TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "born", DateType()),
    NestedField(4, "price", DecimalType(9, 2)),
    NestedField(5, "weight", DoubleType()),
    NestedField(6, "at", TimestamptzType()),
)
BY_NAME = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="name"))
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("title", pa.dictionary(pa.int32(), pa.string())),
        ("born", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("weight", pa.float64()),
        ("at", pa.timestamp("ms", tz="UTC")),
        ("more", pa.list_(pa.int64())),
    ]
)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def rows(first: int, last: int) -> pa.Table:
    """Rows of every type, with nulls, and a column that the table does not have."""
    numbers = range(first, last + 1)
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "title": None if i % 7 == 0 else f"ñ{i % 3}",
                "born": date.fromordinal(i),
                "price": Decimal(i) / 4,
                "weight": i / 3,
                "at": datetime.fromtimestamp(-i, UTC),
                "more": [i],
            }
            for i in numbers
        ],
        TYPES,
    )


def put(bed: Bed, name: str, table: pa.Table) -> None:
    (bed.root / "in").mkdir(exist_ok=True)
    pq.write_table(table, bed.root / name, row_group_size=100)


def parquet(*paths: str, **rest: Any) -> SourceSpec:
    return source(SourceFormat.PARQUET, *paths, **rest)


def test_the_rows_are_those_that_spark_loads(bed: Bed, spark: SparkSession) -> None:
    put(bed, "in/1.parquet", rows(1, 250))
    put(bed, "in/2.parquet", rows(251, 260).slice(0, 0))
    put(bed, "in/3.parquet", rows(261, 300))
    mapped = parquet("in", mapping=(ColumnMapping(column="name", from_="title"),))
    for name, limits in {"here": None, "by_spark": ALL_IN_SPARK}.items():
        bed.create(TABLE, name, partition_spec=BY_NAME)
        report = bed.load(mapped, name, **({"limits": limits} if limits else {}))
        assert report.counts["rowsLoaded"] == 290
        assert ("session" in report.stages_ms) is (name == "by_spark")
    assert bed.rows("here") == bed.rows("by_spark")
    assert len(bed.rows("here")) == 290


def test_a_null_in_a_required_column_is_told_as_spark_tells_it_and_leaves_nothing(
    bed: Bed, spark: SparkSession
) -> None:
    """The first rows were written when the null is found."""
    bed.create(TABLE)
    numbers = pa.array([*range(70_000), None], pa.int64())
    put(bed, "in/bad.parquet", pa.table({"id": numbers}))
    with pytest.raises(BadData, match=r"1 rows do not fit and 0 are allowed; 'in/bad.parquet'") as error:
        bed.load(parquet("in/bad.parquet"))
    assert error.value.reason is Reason.BAD_RECORDS
    assert bed.data_files() == set()
    report = bed.load(parquet("in/bad.parquet"), bad_records=bad(BadRecordPolicy.DROP))
    assert (report.counts["rowsLoaded"], report.counts["rowsRejected"]) == (70_000, 1)
    assert bed.data_files() == {
        path.removeprefix("file://") for path in bed.table().inspect.files()["file_path"].to_pylist()
    }


def test_a_column_that_one_file_lacks_is_left_to_spark(bed: Bed, spark: SparkSession) -> None:
    bed.create(TABLE)
    put(bed, "in/1.parquet", pa.table({"id": [1], "weight": [1.5]}))
    put(bed, "in/2.parquet", pa.table({"id": [2]}))
    report = bed.load(parquet("in"))
    assert "session" in report.stages_ms
    assert [(row["id"], row["weight"]) for row in bed.rows()] == [(1, 1.5), (2, None)]


def test_a_wrong_time_zone_is_told_though_nothing_needs_it(bed: Bed, spark: SparkSession) -> None:
    bed.create(TABLE)
    put(bed, "in/1.parquet", pa.table({"id": [1]}))
    with pytest.raises(BadSpec, match="Mars/Olympus"):
        bed.load(parquet("in"), time_zone="Mars/Olympus")

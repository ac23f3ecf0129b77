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
from skipstone.runs import load
from skipstone.sources.plain import PlainLimits
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.requests import ColumnMapping, SourceFormat, SourceSpec
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


@pytest.mark.parametrize("column", [0, 1])
def test_a_page_that_arrow_passes_by_loses_no_rows(bed: Bed, spark: SparkSession, column: int) -> None:
    """One bit makes a page of data one of another kind; the other column holds what it held."""
    bed.create(TABLE)
    numbers = range(85_536)
    table = pa.table({"id": numbers, "name": [f"n{i}" for i in numbers]})
    put(bed, "in/1.parquet", table)
    path = bed.root / "in" / "1.parquet"
    whole = {"row_group_size": len(table), "use_dictionary": False, "compression": "none", "data_page_size": 1 << 24}
    pq.write_table(table, path, max_rows_per_page=20_000, write_batch_size=20_000, **whole)
    content = bytearray(path.read_bytes())
    page = pq.read_metadata(path).row_group(0).column(column).data_page_offset
    assert content[page : page + 2] == b"\x15\x00"
    content[page + 1] ^= 2
    path.write_bytes(content)
    with pytest.raises(BadData) as caught:
        bed.load(parquet("in"))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE
    assert bed.data_files() == set()


def test_files_that_hold_more_than_their_footers_tell_are_left_to_spark(bed: Bed, spark: SparkSession) -> None:
    bed.create(TABLE)
    put(bed, "in/1.parquet", pa.table({"id": range(1_000), "name": ["long" * 2_500] * 1_000}))
    report = bed.load(parquet("in"), limits=PlainLimits(rows=1_000, unpacked_bytes=1 << 20))
    assert "session" in report.stages_ms
    assert report.counts["rowsLoaded"] == 1_000


@pytest.mark.parametrize("columns", [["weight"], ["id"]])
def test_a_source_that_is_replaced_while_it_is_read_is_told(
    bed: Bed, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    """By a file without a column, of which reading says something else, or by one with other rows."""
    bed.create(TABLE)
    put(bed, "in/1.parquet", pa.table({"id": [1], "weight": [1.5]}))
    found = load.find_plain_rows

    def replaced(*arguments: Any) -> Any:
        source = found(*arguments)
        put(bed, "in/1.parquet", pa.table({name: [2, 3] for name in columns}))
        return source

    monkeypatch.setattr(load, "find_plain_rows", replaced)
    with pytest.raises(BadData, match=r"'in/1\.parquet' is not the file that this job began with") as caught:
        bed.load(parquet("in"))
    assert caught.value.reason is Reason.SOURCE_CHANGED
    assert bed.data_files() == set()

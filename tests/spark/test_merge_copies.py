"""Files of which a merge copied parts, read by engines that are not ours, with the statistics that manifests have."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.sql import SparkSession
from skipstone_core.contract.requests import MergeAction, MergeClause

from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, Row, rows_of, task_of
from tests.spark.secondengine import duckdb_rows, spark_rows

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "day", DateType()),
    NestedField(5, "at", TimestamptzType()),
    NestedField(6, "ratio", DoubleType()),
    NestedField(7, "part", StringType()),
    NestedField(8, "pair", StructType(NestedField(9, "a", LongType()), NestedField(10, "b", StringType()))),
)
BY_PART = PartitionSpec(PartitionField(7, 1000, IdentityTransform(), "part"))
DAY = dt.date(2020, 1, 1)
MOMENT = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
ROWS, GROUP = 400, 50


def row(number: int) -> Row:
    return {
        "id": number,
        "name": None if number % 7 == 0 else f"name {number % 11}",
        "price": Decimal(number) / 4,
        "day": DAY + dt.timedelta(days=number),
        "at": MOMENT + dt.timedelta(hours=number),
        "ratio": float("nan") if number % 60 == 1 else number / 3,
        "part": "p",
        "pair": {"a": number, "b": "x" * (number % 3)},
    }


@pytest.fixture(params=[UNPARTITIONED_PARTITION_SPEC, BY_PART], ids=["unpartitioned", "partitioned"])
def bed(tmp_path: Path, request: pytest.FixtureRequest) -> MergeBed:
    made = MergeBed(tmp_path, cores=2)
    made.create(SCHEMA, request.param, **{"write.parquet.row-group-limit": str(GROUP)})
    made.append([row(number) for number in range(ROWS)])
    return made


def merged(bed: MergeBed, changes: list[dict[str, Any]], *clauses: MergeClause) -> dict[int, Row]:
    """Merge; the rows that are expected, by id."""
    feed = [{name: value for name, value in change.items() if name != "pair"} for change in changes]
    bed.merge(task_of(bed.source(feed), when_matched=clauses or (UPDATE,), when_not_matched=()))
    expected: dict[int, Row] = {number: row(number) for number in range(ROWS)}
    for change in changes:
        if change.get("op") == "D":
            del expected[change["id"]]
        else:
            expected[change["id"]] = {**expected[change["id"]], **{k: v for k, v in change.items() if k != "op"}}
    return expected


def check(spark: SparkSession, bed: MergeBed, expected: dict[int, Row]) -> None:
    """All readers see the rows; bounds and counts in the manifest are those of the files."""
    table = bed.table()
    columns = table.scan().to_arrow()
    wanted = rows_of(columns.from_pylist([dict(one) for one in expected.values()], schema=columns.schema))
    assert rows_of(columns) == wanted
    assert rows_of(duckdb_rows(table).select(columns.column_names).cast(columns.schema)) == wanted
    assert rows_of(spark_rows(spark, bed.warehouse, "ns.t").select(columns.column_names).cast(columns.schema)) == wanted
    for task in table.scan().plan_files():
        check_statistics(task.file)


def check_statistics(file: Any) -> None:
    rows = pq.ParquetFile(file.file_path.removeprefix("file://")).read()
    for field in (SCHEMA.find_field(name) for name in ("id", "price", "day")):
        values = [value for value in rows[field.name].to_pylist() if value is not None]
        bounds = [
            from_bytes(field.field_type, found[field.field_id]) for found in (file.lower_bounds, file.upper_bounds)
        ]
        days = [(value - dt.date(1970, 1, 1)).days for value in values] if field.name == "day" else values
        assert bounds == [min(days), max(days)]
    assert file.record_count == rows.num_rows
    assert file.null_value_counts[2] == rows["name"].null_count
    assert file.nan_value_counts[6] == sum(math.isnan(value) for value in rows["ratio"].to_pylist())


def groups_of(bed: MergeBed) -> list[int]:
    """Rows of each row group of the only file."""
    (path,) = bed.paths()
    metadata = pq.read_metadata(path)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def test_an_update_of_few_columns_keeps_all_others(spark: SparkSession, bed: MergeBed) -> None:
    changes = [{**row(number), "name": "new", "price": Decimal("9999.25")} for number in (3, 120, 121, 399)]
    check(spark, bed, merged(bed, changes))
    assert groups_of(bed) == [GROUP] * (ROWS // GROUP)


def test_deletes_shrink_only_their_row_groups(spark: SparkSession, bed: MergeBed) -> None:
    changes = [{**row(number), "op": "D"} for number in (0, 60, 61)] + [{**row(399), "ratio": float("nan"), "op": "U"}]
    check(spark, bed, merged(bed, changes, DELETE_D, UPDATE))
    assert groups_of(bed) == [GROUP - 1, GROUP - 2, *[GROUP] * (ROWS // GROUP - 2)]


def test_a_merge_after_a_merge_and_an_added_column(spark: SparkSession, bed: MergeBed) -> None:
    merged(bed, [{**row(number), "day": DAY} for number in (60, 61)])
    with bed.table().update_schema() as update:
        update.add_column("extra", StringType())
        update.rename_column("name", "title")
    bed.merge(task_of(bed.source([{"id": 200, "extra": "e"}], "second"), when_matched=(UPDATE,), when_not_matched=()))
    found = {one["id"]: one for one in spark_rows(spark, bed.warehouse, "ns.t").to_pylist()}
    assert len(found) == ROWS
    assert found[200]["extra"] == "e"
    assert found[201]["extra"] is None
    assert [found[number]["day"] for number in (59, 60, 61)] == [row(59)["day"], DAY, DAY]
    assert found[61]["title"] == row(61)["name"]


def test_a_row_that_moves_to_another_partition(spark: SparkSession, bed: MergeBed) -> None:
    gone = MergeClause(action=MergeAction.UPDATE, values={"part": "'q'"})
    expected = merged(bed, [row(8), row(302)], gone)
    for number in (8, 302):
        expected[number] = {**expected[number], "part": "q"}
    check(spark, bed, expected)

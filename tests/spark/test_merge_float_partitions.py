"""Merges of tables that are partitioned by floating point columns."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, PrimitiveType, StringType
from pyspark.sql import SparkSession
from skipstone_core.contract.reports import RunOutcome

from tests.spark.merge_bed import MergeBed, Row, task_of
from tests.spark.secondengine import second_spark

NAN = float("nan")


def by_v(kind: PrimitiveType, *more: str) -> tuple[Schema, PartitionSpec]:
    """``id``, ``v`` and ``name``, in partitions of equal values of ``v`` and of the columns ``more``."""
    columns = [NestedField(1, "id", LongType()), NestedField(2, "v", kind), NestedField(3, "name", StringType())]
    numbers = {column.name: column.field_id for column in columns}
    fields = [
        PartitionField(source_id=numbers[name], field_id=1000 + at, transform=IdentityTransform(), name=name)
        for at, name in enumerate(("v", *more))
    ]
    return Schema(*columns), PartitionSpec(*fields)


def rows(*values: float | None) -> list[Row]:
    return [{"id": at, "v": value, "name": f"n{at % 2}"} for at, value in enumerate(values)]


def bits(value: float | None) -> str:
    return "null" if value is None else struct.pack(">d", value).hex()


def by_java(spark: SparkSession, bed: MergeBed) -> list[tuple[int, str, str]]:
    found = second_spark(spark, bed.warehouse).table(f"{bed.warehouse.catalog.name}.ns.t").collect()
    return sorted((row.id, bits(row.v), row.name) for row in found)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("more", [(), ("name",)], ids=["one field", "two fields"])
@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_rows_of_a_nan_partition_are_merged(
    tmp_path: Path, spark: SparkSession, kind: PrimitiveType, more: tuple[str, ...], mode: str
) -> None:
    bed = MergeBed(tmp_path)
    bed.create(*by_v(kind, *more), **{"write.merge.mode": mode})
    before = [*rows(NAN, NAN, 1.5, None, NAN, 1.5)]
    bed.append(before[:3], before[3:])
    feed = bed.source([{"id": at, "name": "new"} for at in (0, 2, 3, 4)])
    report = bed.merge(task_of(feed, when_not_matched=()))
    assert report.outcome is RunOutcome.COMMITTED, report.message
    expected = [(row["id"], bits(row["v"]), "new" if row["id"] in (0, 2, 3, 4) else row["name"]) for row in before]
    assert by_java(spark, bed) == expected

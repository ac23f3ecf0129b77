"""Partitions by floats: Iceberg's readers take the values of such a column from the partition, so none may hold two."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType
from pyspark.sql import SparkSession
from skipstone.files.writer import DataFileWriter, write_spec
from skipstone.tables.arrow import arrow_schema
from skipstone_core.contract.requests import WarehouseRef

from tests.spark.lake import append, read_all
from tests.spark.secondengine import second_spark

VALUES = [0.0, -0.0, float("nan"), 1.5, -0.0, 0.0, None]
SPEC = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="v"))


def bits(values: list[float | None]) -> list[str]:
    return sorted("null" if value is None else struct.pack(">d", value).hex() for value in values)


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_every_engine_reads_zeros_with_the_sign_that_was_written(
    catalog: Catalog, warehouse: WarehouseRef, spark: SparkSession, kind: PrimitiveType
) -> None:
    schema = Schema(NestedField(1, "v", kind))
    table = catalog.create_table(("ns", "t"), schema, partition_spec=SPEC, properties={"format-version": "2"})
    table = append(table, pa.table([VALUES], arrow_schema(schema)))
    assert bits(read_all(table).column("v").to_pylist()) == bits(VALUES)
    read = second_spark(spark, warehouse).table(f"{warehouse.catalog.name}.ns.t")
    assert bits([row.v for row in read.collect()]) == bits(VALUES)


def test_batches_with_nan_go_on_with_one_file(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "v", DoubleType()))
    table = catalog.create_table(("ns", "t"), schema, partition_spec=SPEC)
    writer = DataFileWriter(write_spec(table, "testrun"), "0")
    for _ in range(2):
        writer.write(pa.table([VALUES], arrow_schema(schema)))
    found = sorted(repr(file.partition) for file in writer.close())
    assert found == sorted(["(0.0,)", "(-0.0,)", "(nan,)", "(1.5,)", "(None,)"])

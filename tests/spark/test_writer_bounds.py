"""Bounds of long texts: a row of any text can be written, and is found by what looks for it."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from skipstone_core.contract.requests import WarehouseRef

from tests.spark.lake import append
from tests.spark.secondengine import second_spark

#: Each in a file of its own, with its upper bound in the file's last character before the cut.
TEXTS = {
    "before the surrogates": "a" * 15 + "\ud7ff" + "tail",
    "the greatest": "b" * 15 + "\U0010ffff" + "tail",
    "nothing but the greatest": "\U0010ffff" * 20,
    "before the greatest": "\ud7ff" + "\U0010ffff" * 20,
}


def test_long_texts_are_written_and_found(catalog: Catalog, warehouse: WarehouseRef, spark: SparkSession) -> None:
    rows = [pa.table({"s": pa.array([text], pa.string())}) for text in (*TEXTS.values(), "other")]
    table = catalog.create_table(("ns", "t"), rows[0].schema, properties={"format-version": "2"})
    for one in rows:
        table = append(table, one)
    by_us = {name: table.scan(EqualTo("s", text)).to_arrow().column("s").to_pylist() for name, text in TEXTS.items()}
    assert by_us == {name: [text] for name, text in TEXTS.items()}
    read = second_spark(spark, warehouse).table(f"{warehouse.catalog.name}.ns.t")
    each = (read.where(col("s") == text).select(lit(name).alias("name"), "s") for name, text in TEXTS.items())
    assert {row.name: row.s for row in reduce(DataFrame.unionAll, each).collect()} == TEXTS

"""Bounds of long texts: a row of any text can be written, and is found by what looks for it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
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


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_long_text_is_written_and_found(
    catalog: Catalog, warehouse: WarehouseRef, spark: SparkSession, text: str
) -> None:
    rows = [pa.table({"s": pa.array([one], pa.string())}) for one in (text, "other")]
    table = catalog.create_table(("ns", "t"), rows[0].schema, properties={"format-version": "2"})
    for one in rows:
        table = append(table, one)
    assert table.scan(EqualTo("s", text)).to_arrow().column("s").to_pylist() == [text]
    found = second_spark(spark, warehouse).table(f"{warehouse.catalog.name}.ns.t").where(col("s") == text)
    assert [row.s for row in found.collect()] == [text]

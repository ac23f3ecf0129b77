"""Reads our tables with engines that are not ours: plain Spark with the Iceberg runtime, DuckDB on the files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from skipstone_core.contract.requests import WarehouseRef


def second_spark(spark: SparkSession, warehouse: WarehouseRef) -> SparkSession:
    """A session that knows ``warehouse`` by Spark's own JDBC catalog, keyed by the catalog's name as ours is."""
    session = spark.newSession()
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{warehouse.root}/catalog.db",
        ".warehouse": f"file://{warehouse.root}",
        ".jdbc.schema-version": "V1",
        ".cache-enabled": "false",
    }
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.{warehouse.catalog.name}{key}", value)
    session.conf.set("skipstone.rememberedSeconds", "0")  # an index is used as soon as it is there
    return session


def spark_rows(spark: SparkSession, warehouse: WarehouseRef, table: str) -> pa.Table:
    """All rows of ``table`` (namespace.name) as plain Spark reads them."""
    return second_spark(spark, warehouse).table(f"{warehouse.catalog.name}.{table}").toArrow()


def duckdb_rows(table: Table) -> pa.Table:
    """All rows of the live data files of ``table`` (which must have no deletes) as DuckDB reads them."""
    paths = [str(Path(task.file.file_path.removeprefix("file://"))) for task in table.scan().plan_files()]
    return duckdb.from_parquet(paths, hive_partitioning=False).to_arrow_table()

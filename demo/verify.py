"""Verifies the demonstration's table with two engines that are not ours.

Reads the table by plain Spark with the Iceberg runtime (no Skipstone code) and compares it with a DuckDB replay of
the CSV files and the feed. Runs in a pod that reaches the Warehouse.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from demo.data import COLUMNS
from demo.lakes import CATALOG, Lake, Volume, open_lake
from demo.replay import differences, fingerprint, open_replay


def plain_session(root: Path) -> SparkSession:
    """Spark with nothing but the Iceberg runtime, on the SQLite catalog below ``root``."""
    return open_session(Volume(root))


def open_session(lake: Lake) -> SparkSession:
    """Spark with nothing but the Iceberg runtime, on the catalog of ``lake``."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("verify")
        .config(f"spark.sql.catalog.{CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in lake.spark_settings().items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read_plain(lake: Lake, table: str) -> pa.Table:
    """All rows of ``table`` as plain Spark reads them; the timestamp as text like in the CSV files."""
    spark = open_session(lake)
    try:
        names = [name for name in COLUMNS if name != "time_hour"]
        frame = spark.table(f"{CATALOG}.{table}").selectExpr(
            *names, "date_format(time_hour, \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS time_hour"
        )
        return frame.select(*COLUMNS).toArrow()
    finally:
        spark.stop()


def verify(lake: Lake, table: str, *, feed: bool = True) -> tuple[str, ...]:
    """Sentences for every difference between the table and the replay; empty when they are equal."""
    with lake.reading() as folder:
        connection = open_replay(folder, feed=feed)
    connection.register("found", read_plain(lake, table))
    return differences(fingerprint(connection, "expected"), fingerprint(connection, "found"))


def main(argv: list[str]) -> int:
    """Command line: ``verify ROOT NAMESPACE.TABLE``; exit code 1 when a column differs."""
    parser = argparse.ArgumentParser(prog="demo.verify")
    parser.add_argument("root")
    parser.add_argument("table")
    parser.add_argument("--without-feed", action="store_true", help="expect the loads only")
    arguments = parser.parse_args(argv)
    found = verify(open_lake(arguments.root), arguments.table, feed=not arguments.without_feed)
    for sentence in found:
        print(f"DIFFERENT {sentence}")
    print(json.dumps({"table": arguments.table, "columns": len(COLUMNS), "different": len(found)}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

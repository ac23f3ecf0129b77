"""Verifies the demonstration's table with two engines that are not ours.

Reads the table by plain Spark with the Iceberg runtime (no Skipstone code) and compares it with a DuckDB replay of
the CSV files and the feed. Runs in a pod that reaches the Warehouse. Where there is no Java, plain PyIceberg reads.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
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


def read_without_java(lake: Lake, table: str) -> pa.Table:
    """The same as plain PyIceberg reads them."""
    rows = lake.catalog().load_table(table).scan(selected_fields=COLUMNS).to_arrow().select(list(COLUMNS))
    times = pc.strftime(rows["time_hour"].cast(pa.timestamp("s", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    return rows.set_column(COLUMNS.index("time_hour"), "time_hour", times)


ENGINES: dict[str, Callable[[Lake, str], pa.Table]] = {"spark": read_plain, "pyiceberg": read_without_java}


def verify(
    lake: Lake, table: str, *, feed: bool = True, engine: str = "spark", first_month: int = 1
) -> tuple[str, ...]:
    """Sentences for every difference between the table and the replay; empty when they are equal."""
    with lake.reading() as folder:
        connection = open_replay(folder, months=tuple(range(first_month, 13)), feed=feed)
    actual = ENGINES[engine](lake, table)
    connection.register("found", actual)
    different = differences(fingerprint(connection, "expected"), fingerprint(connection, "found"))
    if not different:
        print(f"{actual.num_rows:,} rows in {actual.num_columns} columns: equal")
    return different


def main(argv: list[str]) -> int:
    """Command line: ``verify ROOT NAMESPACE.TABLE``; exit code 1 when a column differs."""
    parser = argparse.ArgumentParser(prog="demo.verify")
    parser.add_argument("root")
    parser.add_argument("table")
    parser.add_argument("--without-feed", action="store_true", help="expect the loads only")
    parser.add_argument("--engine", choices=sorted(ENGINES), default="spark", help="what reads the table")
    parser.add_argument("--first-month", type=int, default=1, help="the first month that was loaded")
    arguments = parser.parse_args(argv)
    lake, feed = open_lake(arguments.root), not arguments.without_feed
    sentences = verify(lake, arguments.table, feed=feed, engine=arguments.engine, first_month=arguments.first_month)
    for sentence in sentences:
        print(f"DIFFERENT {sentence}")
    print(json.dumps({"table": arguments.table, "columns": len(COLUMNS), "different": len(sentences)}))
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

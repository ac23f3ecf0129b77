"""Verifies the demonstration's table with two engines that are not ours.

Reads the table by plain Spark with the Iceberg runtime (no Skipstone code) and compares it with a DuckDB replay of
the CSV files and the feed. Runs in a pod that mounts the Warehouse's claim.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from demo.data import COLUMNS
from demo.replay import differences, fingerprint, open_replay

#: Rows of a JDBC catalog are keyed by the catalog's name, so Spark must use the Warehouse's.
CATALOG = "skipstone"
#: Where the demonstration's image keeps the JDBC driver of the catalog; only the JVM's own class path finds drivers.
JARS = Path("/opt/demo/jars")
#: Names Spark's jars, and has to be first: the image's archive of classes is for class paths that begin with it.
SPARK_CLASSES = Path("/opt/skipstone/classpath.jar")


def plain_session(root: Path) -> SparkSession:
    """Spark with nothing but the Iceberg runtime, on the SQLite catalog below ``root``."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("verify")
        .config(prefix, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{prefix}.type", "jdbc")
        .config(f"{prefix}.uri", f"jdbc:sqlite:{root}/catalog.db")
        .config(f"{prefix}.jdbc.schema-version", "V1")
        .config(f"{prefix}.warehouse", str(root))
        .config("spark.driver.extraClassPath", f"{SPARK_CLASSES}:{JARS}/*")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    return builder.getOrCreate()


def read_plain(root: Path, table: str) -> pa.Table:
    """All rows of ``table`` as plain Spark reads them; the timestamp as text like in the CSV files."""
    spark = plain_session(root)
    try:
        names = [name for name in COLUMNS if name != "time_hour"]
        frame = spark.table(f"{CATALOG}.{table}").selectExpr(
            *names, "date_format(time_hour, \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS time_hour"
        )
        return frame.select(*COLUMNS).toArrow()
    finally:
        spark.stop()


def verify(root: Path, table: str, *, feed: bool = True) -> tuple[str, ...]:
    """Sentences for every difference between the table and the replay; empty when they are equal."""
    connection = open_replay(root, feed=feed)
    connection.register("found", read_plain(root, table))
    return differences(fingerprint(connection, "expected"), fingerprint(connection, "found"))


def main(argv: list[str]) -> int:
    """Command line: ``verify ROOT NAMESPACE.TABLE``; exit code 1 when a column differs."""
    parser = argparse.ArgumentParser(prog="demo.verify")
    parser.add_argument("root", type=Path)
    parser.add_argument("table")
    parser.add_argument("--without-feed", action="store_true", help="expect the loads only")
    arguments = parser.parse_args(argv)
    found = verify(arguments.root, arguments.table, feed=not arguments.without_feed)
    for sentence in found:
        print(f"DIFFERENT {sentence}")
    print(json.dumps({"table": arguments.table, "columns": len(COLUMNS), "different": len(found)}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Asks the planning server of the Warehouse with engines that know nothing of Skipstone, and compares with DuckDB.

Runs in a pod that reaches the Warehouse. Prints for each engine the rows and how many files the server left to read.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import urllib.request
from collections.abc import Callable

from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from demo.lakes import CATALOG, Lake, open_lake
from demo.replay import open_replay

#: Variables of the pod: the address of the server, and a token that it knows.
URL, TOKEN = "DEMO_PLANNING_URL", "DEMO_PLANNING_TOKEN"
CONDITIONS = ("tailnum = 'N356SW'", "tailnum in ('N367SW', 'N346SW')", "carrier = '9E' and flight = 3284")
COLUMNS = ("month", "day", "carrier", "flight", "origin", "dest")
Rows = list[tuple[object, ...]]


def files_of_plans(url: str) -> tuple[int, int]:
    """Live files of all plans of the server so far, and how many of them were left to read."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    matches = [
        re.search(rf"^skipstone_planning_{name}_total ([\d.e+]+)$", text, re.M) for name in ("files", "files_left")
    ]
    total, left = (float(match[1]) if match else 0.0 for match in matches)
    return int(total), int(left)


def asked_by_spark(lake: Lake, url: str, table: str) -> Callable[[str], Rows]:
    """Plain Spark SQL with Iceberg's runtime; no code of Skipstone is in its process."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    builder = SparkSession.builder.master("local[1]").config(prefix, "org.apache.iceberg.spark.SparkCatalog")
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in (settings | lake.planned_settings(url, os.environ.get(TOKEN, ""))).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    text = f"select {', '.join(COLUMNS)} from {CATALOG}.{table} where "
    return lambda condition: [tuple(row) for row in spark.sql(text + condition).collect()]


def asked_by_pyiceberg(lake: Lake, url: str, table: str) -> Callable[[str], Rows]:
    """PyIceberg, which has no Spark."""
    prefix = f"spark.sql.catalog.{CATALOG}."
    given = lake.planned_settings(url, os.environ.get(TOKEN, ""))
    catalog = load_catalog(
        CATALOG,
        **lake.reach(),
        **{
            name: given[prefix + name]
            for name in ("type", "uri", "token", "scan-planning-mode")
            if prefix + name in given
        },
    )
    loaded = catalog.load_table(table)
    return lambda condition: [
        tuple(row.values())
        for row in loaded.scan(condition, selected_fields=COLUMNS).to_arrow().select(COLUMNS).to_pylist()
    ]


def wrong_answers(lake: Lake, url: str, table: str) -> list[str]:
    """Engines and conditions whose rows differ from DuckDB's; prints the files that the server left."""
    with lake.reading() as folder:
        reference = open_replay(folder, feed=False)
    wrong = []
    for engine, begin in (("Spark SQL", asked_by_spark), ("PyIceberg", asked_by_pyiceberg)):
        ask = begin(lake, url, table)
        for condition in CONDITIONS:
            before = files_of_plans(url)
            rows = ask(condition)
            after = files_of_plans(url)
            expected = reference.execute(f"SELECT {', '.join(COLUMNS)} FROM expected WHERE {condition}").fetchall()
            is_right = sorted(map(repr, rows)) == sorted(map(repr, expected))
            print(
                f"{engine}: {condition}: {after[1] - before[1]} of {after[0] - before[0]} files, {len(rows)} rows, "
                f"{'as DuckDB says' if is_right else 'DIFFERENT from DuckDB'}"
            )
            if not is_right:
                wrong.append(f"{engine}: {condition}")
    return wrong


def main(argv: list[str]) -> int:
    """Command line: ``engines ROOT NAMESPACE.TABLE``; exit code 1 when an answer is wrong."""
    parser = argparse.ArgumentParser(prog="demo.engines")
    parser.add_argument("root")
    parser.add_argument("table")
    arguments = parser.parse_args(argv)
    return 1 if wrong_answers(open_lake(arguments.root), os.environ[URL], arguments.table) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

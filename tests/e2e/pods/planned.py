"""A reader who has never heard of Skipstone: stock PyIceberg, Spark and Spark Connect before the planning server.

Runs in a pod that mounts the Warehouse's claim, where the data files are: ``ROOT ENGINE URL TOKEN NAMESPACE.TABLE
COLUMN VALUE``. Prints the rows in which the column has the value, how many files the server planned and how many
of them it left to read; and what it makes of a write and of a stranger.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.expressions import EqualTo
from pyspark.sql import SparkSession

_, engine, url, token, name, column, value = sys.argv[1:]
SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
    "spark.sql.catalog.lake.uri": url,
    "spark.sql.catalog.lake.token": token,
    "spark.sql.catalog.lake.scan-planning-mode": "server",
}


def files() -> tuple[int, int]:
    """Files of all plans so far: all that were live, and those that were left to read."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    total, left = (
        sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(pattern, line))
        for pattern in (r"skipstone_planning_files_total\b", r"skipstone_planning_files_left_total\b")
    )
    return int(total), int(left)


def by_pyiceberg() -> list[list[object]]:
    """The rows, without Spark."""
    table = catalog.load_table(name)
    found = table.scan(row_filter=EqualTo(column, value), selected_fields=("id", column)).to_arrow()
    return [[row["id"], row[column]] for row in found.to_pylist()]


def by_spark() -> list[list[object]]:
    """The rows by plain SQL, in a session of its own or of a Connect server's."""
    builder = SparkSession.builder
    builder = builder.remote("local[1]") if engine == "connect" else builder.master("local[1]")
    for key, setting in SPARK.items():
        builder = builder.config(key, setting)
    spark = builder.getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect") == (engine == "connect")
    rows = spark.sql(f"select id, {column} from lake.{name} where {column} = '{value}'").collect()
    spark.stop()
    return [list(row) for row in rows]


catalog = RestCatalog("lake", uri=url, token=token, **{"scan-planning-mode": "server"})
before = files()
rows = by_pyiceberg() if engine == "pyiceberg" else by_spark()
after = files()
told: dict[str, object] = {"rows": sorted(rows), "files": after[0] - before[0], "left": after[1] - before[1]}
told["namespaces"] = sorted(".".join(levels) for levels in catalog.list_namespaces())
told["tables"] = sorted(".".join(levels) for levels in catalog.list_tables(name.rpartition(".")[0]))
try:
    catalog.drop_table(name)
    told["drop"] = "dropped"
except (RESTError, NotImplementedError) as error:
    told["drop"] = str(error)
try:
    RestCatalog("lake", uri=url, token="not-a-token-of-this-warehouse").list_namespaces()
    told["stranger"] = "let in"
except RESTError as error:
    told["stranger"] = type(error).__name__
told["knows_skipstone"] = any(module.partition(".")[0].startswith("skipstone") for module in sys.modules)
print("ANSWER " + json.dumps(told))

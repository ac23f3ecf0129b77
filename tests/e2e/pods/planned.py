"""A reader who has never heard of Skipstone: stock PyIceberg and stock Spark before the planning server.

Runs in a pod that mounts the Warehouse's claim, where the data files are: ``ROOT URL TOKEN NAMESPACE.TABLE COLUMN
VALUE``. Prints for each engine the rows in which the column has the value, and for how many files the server said that
they have to be read, of how many; and what the server makes of a write.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Callable

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.expressions import EqualTo
from pyspark.sql import SparkSession

_, url, token, name, column, value = sys.argv[1:]


def files() -> tuple[int, int]:
    """Files of all plans so far: all that were live, and those that were left to read."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    total, left = (
        sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(pattern, line))
        for pattern in (r"skipstone_planning_files_total\b", r"skipstone_planning_files_left_total\b")
    )
    return int(total), int(left)


def planned(read: Callable[[], list[list[object]]]) -> dict[str, object]:
    """The rows of ``read``, and what the server planned for them."""
    before = files()
    rows = read()
    after = files()
    return {"rows": sorted(rows), "files": after[0] - before[0], "left": after[1] - before[1]}


catalog = RestCatalog("lake", uri=url, token=token, **{"scan-planning-mode": "server"})
table = catalog.load_table(name)


def by_pyiceberg() -> list[list[object]]:
    """The rows, without Spark."""
    found = table.scan(row_filter=EqualTo(column, value), selected_fields=("id", column)).to_arrow()
    return [[row["id"], row[column]] for row in found.to_pylist()]


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "rest")
    .config("spark.sql.catalog.lake.uri", url)
    .config("spark.sql.catalog.lake.token", token)
    .config("spark.sql.catalog.lake.scan-planning-mode", "server")
    .getOrCreate()
)


def by_spark() -> list[list[object]]:
    """The rows by plain SQL."""
    rows = spark.sql(f"select id, {column} from lake.{name} where {column} = '{value}'").collect()
    return [list(row) for row in rows]


told: dict[str, object] = {"pyiceberg": planned(by_pyiceberg), "spark": planned(by_spark)}
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
spark.stop()

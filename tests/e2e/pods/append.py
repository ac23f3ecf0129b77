"""A foreign writer: appends rows to a table by plain PyIceberg or plain Spark, and knows nothing of Skipstone.

Runs in a pod that mounts the Warehouse's claim: ``ROOT NAMESPACE.TABLE pyiceberg|spark ROWS...``, rows as a list of
JSON objects for each append. Prints the last segment that it made and when.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from demo.verify import CATALOG, plain_session


def append_by_pyiceberg(catalog: SqlCatalog, table: str, rows: list[dict[str, Any]]) -> None:
    """As a Python job does it."""
    found = catalog.load_table(table)
    found.append(pa.Table.from_pylist(rows, schema=found.schema().as_arrow()))


def append_by_spark(root: str, table: str, rows: list[dict[str, Any]]) -> None:
    """As a Spark job does it."""
    spark = plain_session(Path(root))
    schema = spark.table(f"{CATALOG}.{table}").schema
    found = spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
    found.coalesce(1).writeTo(f"{CATALOG}.{table}").append()
    spark.stop()


root, table, engine, *texts = sys.argv[1:]
catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{root}/catalog.db", warehouse=root)
for text in texts:
    if engine == "spark":
        append_by_spark(root, table, json.loads(text))
    else:
        append_by_pyiceberg(catalog, table, json.loads(text))
made = catalog.load_table(table).current_snapshot()
assert made is not None
print("ANSWER " + json.dumps({"segment": made.sequence_number, "time": made.timestamp_ms / 1000}))

"""Sail (pysail), a Spark Connect server that writes Iceberg by itself. ``python sail_writer.py ROOT``."""

from __future__ import annotations

import os
import sys

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
from rows import attempt, newest_metadata, rows

ROOT = sys.argv[1]
COLUMNS = (
    "id bigint, txt string, cat string, amount decimal(9, 2), price double, day date, ts timestamp_ntz, flag boolean, "
    "n int"
)
PLAIN = ("id", "txt", "cat", "amount", "day", "ts", "flag", "n")
SERVER = SparkConnectServer()
SERVER.start()
_, PORT = SERVER.listening_address
SPARK = SparkSession.builder.remote(f"sc://localhost:{PORT}").getOrCreate()


def given(start: int = 0, *, floats: bool = True) -> object:
    """Rows as a frame."""
    frame = SPARK.createDataFrame(rows(start), COLUMNS)
    return frame if floats else frame.select(*PLAIN)


def located(name: str, count: int) -> dict[str, object]:
    """The newest metadata file."""
    return {"metadata": newest_metadata(f"{ROOT}/{name}"), "rows": count}


def create(name: str, columns: str, by: str = "", **properties: str) -> None:
    """A table in the server's own catalog, whose files are below ROOT."""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    options = f"tblproperties ({listed})" if listed else ""
    SPARK.sql(f"create table {name} ({columns}) using iceberg {by} location '{ROOT}/{name}' {options}").collect()


def insert(name: str, start: int, *, floats: bool) -> None:
    """One append."""
    given(start, floats=floats).createOrReplaceTempView("given")
    SPARK.sql(f"insert into {name} select * from given").collect()


def saved() -> dict[str, object]:
    """Frames saved to a path, without a catalog."""
    for start in (0, 60):
        given(start).write.format("iceberg").mode("append").save(f"{ROOT}/saved")
    return located("saved", 120)


def written(name: str, by: str = "", *, floats: bool = False, **properties: str) -> dict[str, object]:
    """Two inserts, then a delete."""
    columns = COLUMNS if floats else COLUMNS.replace("price double, ", "")
    create(name, columns, by, **properties)
    insert(name, 0, floats=floats)
    insert(name, 60, floats=floats)
    SPARK.sql(f"delete from {name} where id % 10 = 3").collect()
    return located(name, 108)


def vectors() -> dict[str, object]:
    """Deletion vectors, of a delete, an update and a second delete of the same files."""
    written("vectors", **{"format-version": "3", **MERGE_ON_READ})
    SPARK.sql("update vectors set txt = 'updated by an engine' where id % 10 = 4").collect()
    SPARK.sql("delete from vectors where id % 10 = 5").collect()
    return located("vectors", 96)


MERGE_ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
attempt("save", saved)
attempt("copy-on-write", lambda: written("copied", floats=True))
attempt("equality-deletes", lambda: written("onread", **MERGE_ON_READ))
attempt("v3-vectors", vectors)
for transform in ("bucket(4, id)", "truncate(2, cat)", "years(ts)"):
    kind = transform.split("(")[0]
    attempt(kind, lambda n=f"by_{kind}", t=transform: written(n, f"partitioned by ({t})"))
sys.stdout.flush()
os._exit(0)  # the server's threads may keep the process for ever

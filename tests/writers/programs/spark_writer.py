"""Spark with Iceberg's runtime and its write options. ``python spark_writer.py ROOT``; PYTHONPATH has the project."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from rows import attempt, rows

from tests.spark.jars import ICEBERG_RUNTIME, jar_paths

ROOT = sys.argv[1]
COLUMNS = (
    "id bigint, txt string, cat string, amount decimal(9, 2), price double, day date, ts timestamp_ntz, flag boolean, "
    "n int"
)
MERGE_ON_READ = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
EVOLVED = (
    "alter table lake.ns.{t} add column extra string",
    "alter table lake.ns.{t} rename column cat to category",
    "alter table lake.ns.{t} drop column flag",
    "alter table lake.ns.{t} alter column n type bigint",
    "alter table lake.ns.{t} alter column amount type decimal(12, 2)",
)


def session() -> SparkSession:
    """Spark with a catalog of folders."""
    jars = ":".join(str(path) for path in jar_paths("iceberg-runtime", ICEBERG_RUNTIME))
    settings = {
        "spark.driver.extraClassPath": jars,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": ROOT,
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


SPARK = session()


def sql(text: str) -> None:
    """Run one statement."""
    SPARK.sql(text).collect()


def create(name: str, columns: str = COLUMNS, partitions: str = "", **properties: str) -> None:
    """A table of format version 2 unless ``properties`` say otherwise."""
    given = {"format-version": "2", **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    by = f"partitioned by ({partitions})" if partitions else ""
    sql(f"create table lake.ns.{name} ({columns}) using iceberg {by} tblproperties ({listed})")


def insert(name: str, start: int = 0, count: int = 60, columns: Sequence[str] = ("*",)) -> None:
    """One INSERT of given rows."""
    SPARK.createDataFrame(rows(start, count), COLUMNS).coalesce(1).createOrReplaceTempView("given")
    sql(f"insert into lake.ns.{name} select {', '.join(columns)} from given")


def delete(name: str) -> None:
    """Statements that delete and update; 12 of 120 rows go."""
    sql(f"delete from lake.ns.{name} where id % 10 = 3")
    sql(f"update lake.ns.{name} set txt = 'updated by an engine' where id % 10 = 4")


def located(name: str, count: int) -> dict[str, object]:
    """The newest metadata file of a table."""
    folder = Path(ROOT) / "ns" / name / "metadata"
    version = (folder / "version-hint.text").read_text().strip()
    (path,) = folder.glob(f"v{version}.*metadata.json")
    return {"metadata": str(path), "rows": count}


def written(name: str, partitions: str = "", **properties: str) -> dict[str, object]:
    """Two inserts, then deletes."""
    create(name, partitions=partitions, **properties)
    insert(name)
    insert(name, 60)
    delete(name)
    return located(name, 108)


def evolved(name: str, **properties: str) -> dict[str, object]:
    """Columns and partitioning change between inserts."""
    create(name, **{**MERGE_ON_READ, **properties})
    insert(name)
    for statement in EVOLVED:
        sql(statement.format(t=name))
    if properties.get("write.format.default") is None:
        sql(f"alter table lake.ns.{name} add partition field bucket(3, id)")
    insert(name, 60, columns=("id, txt, cat, amount, price, day, ts, n, 'more'",))
    delete(name)
    return located(name, 108)


def nested() -> dict[str, object]:
    """Structs, lists and maps, one of which gains a field."""
    create("nested", "id bigint, cat string, st struct<a: int, b: string>, items array<int>, m map<string, int>")
    chosen = "id, cat, named_struct('a', n, 'b', cat), array(n, null), map(cat, n)"
    insert("nested", columns=(chosen,))
    sql("alter table lake.ns.nested add column st.c double")
    insert("nested", 60, columns=(chosen.replace("'b', cat)", "'b', cat, 'c', price)"),))
    delete_nested = "delete from lake.ns.nested where id % 10 = 3"
    sql(delete_nested)
    return located("nested", 108)


def mixed() -> dict[str, object]:
    """Parquet, ORC and Avro files in one table."""
    create("mixed", **MERGE_ON_READ)
    for number, kind in enumerate(("parquet", "orc", "avro")):
        sql(f"alter table lake.ns.mixed set tblproperties ('write.format.default' = '{kind}')")
        insert("mixed", number * 40, 40)
        sql(f"delete from lake.ns.mixed where id = {number * 40 + 3}")
    return located("mixed", 117)


def audited() -> dict[str, object]:
    """Write, audit, publish: rows on a branch, which is not published."""
    create("audited", **{"write.wap.enabled": "true", **MERGE_ON_READ})
    insert("audited")
    sql("alter table lake.ns.audited create branch audit")
    SPARK.conf.set("spark.wap.branch", "audit")
    insert("audited", 60)
    sql("delete from lake.ns.audited where id < 10")
    SPARK.conf.unset("spark.wap.branch")
    insert("audited", 120)
    return located("audited", 120)


def optioned(name: str, **properties: str) -> None:
    """One case of ``written``; in its name, dashes."""
    attempt(name, lambda: written(name.replace("-", "_"), **{**MERGE_ON_READ, **properties}))


sql("create namespace if not exists lake.ns")
for mode in ("none", "counts", "truncate(4)"):
    optioned(f"metrics-{mode.split('(')[0]}", **{"write.metadata.metrics.default": mode})
for kind in ("orc", "avro"):
    optioned(kind, **{"write.format.default": kind, "write.delete.format.default": kind})
    attempt(f"{kind}-evolved", lambda k=kind: evolved(f"{k}_evolved", **{"write.format.default": k}))
attempt("mixed", mixed)
attempt("evolved", lambda: evolved("evolved"))
attempt("nested", nested)
attempt("wap-branch", audited)
attempt("elsewhere", lambda: written("elsewhere", **{"write.data.path": f"{ROOT}/elsewhere-data"}))
attempt("copy-on-write", lambda: written("copied"))
objects = {"write.object-storage.enabled": "true", **MERGE_ON_READ}
attempt("object-storage", lambda: written("objects", "bucket(4, id)", **objects))
attempt("v3", lambda: written("third", **{"format-version": "3", **MERGE_ON_READ}))
attempt("granularity", lambda: written("granular", "cat", **{"write.delete.granularity": "partition", **MERGE_ON_READ}))
for number, transform in enumerate(("truncate(2, cat)", "years(ts)", "days(day)", "bucket(3, txt)")):
    attempt(f"by-{transform.split('(')[0]}", lambda n=f"p{number}", t=transform: written(n, t, **MERGE_ON_READ))

#!/usr/bin/env bash
# A delete by deltalake moves the times of rows that it keeps, if Spark wrote them: 9999-12-31 becomes 1816-03-30.
#
# One expects: a delete, update, merge or compaction of a Delta table writes the rows again that stay in a file, as they are.
# What happens: Spark writes timestamps into Parquet as INT96 by default, also those of Delta tables. deltalake reads these as
#   nanoseconds in 64 bits, which end in the year 2262, and lets later times wrap around. Its SQL shows the year 1816, and a step
#   that writes the file again stores it: from then on Spark reads the wrong time, too. No step fails; only the Arrow reader of
#   the package refuses the table. Files that deltalake wrote itself have INT64 and keep their times.
# Versions: pyspark 4.1.4, delta-spark_4.1_2.13 4.4.0, deltalake 1.6.6, pyarrow 26.0.1.
# Why it matters: 9999-12-31 is how tables with a history mark the row that is valid now. A compaction ends the validity of all
#   current rows in 1816, and after VACUUM no file has the right times any more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 deltalake==1.6.6 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "io.delta:delta-spark_4.1_2.13:4.4.0")
    .config("spark.jars.excludes", "io.airlift:aircompressor,com.github.luben:zstd-jni")  # which Spark has
    .config("spark.jars.ivy", f"{folder}/ivy")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .config("spark.databricks.delta.snapshotPartitions", 1)
    .config("spark.sql.shuffle.partitions", 1)
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")


def rows(table: str) -> str:
    return ", ".join(map(" until ".join, spark.sql(f"SELECT city, string(until) FROM delta.`{table}` ORDER BY id").collect()))


def merge(table: DeltaTable) -> None:
    source = pa.table({"id": pa.array([1], pa.int32()), "city": ["Rome"]})
    merging = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merging.when_matched_update({"city": "s.city"}).execute()


WRITES = {
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"city": "'Rome'"}, predicate="id = 1"),
    "merge": merge,
    "compaction": lambda table: table.optimize.compact(),
}
for name, write in WRITES.items():
    path = f"{folder}/{name}"
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, city STRING, until TIMESTAMP) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'Oslo', '2026-01-01'), (2, 'Lima', '9999-12-31 23:59:59')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 'Graz', '2026-01-01')")
    if name == "delete":
        table = QueryBuilder().register("t", DeltaTable(path))
        until = pa.table(table.execute("SELECT until FROM t WHERE id = 2").read_all())["until"][0]
        print(f"Spark reads {rows(path)}; deltalake reads Lima until {until.as_py():%Y-%m-%d %H:%M:%S}")
    write(DeltaTable(path))
    print(f"after {name} by deltalake, Spark reads {rows(path)}", flush=True)
spark.stop()
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='Spark reads Oslo until 2026-01-01 00:00:00, Lima until 9999-12-31 23:59:59, Graz until 2026-01-01 00:00:00; deltalake reads Lima until 1816-03-30 05:56:07
after delete by deltalake, Spark reads Lima until 1816-03-30 05:56:07.066278, Graz until 2026-01-01 00:00:00
after update by deltalake, Spark reads Rome until 2026-01-01 00:00:00, Lima until 1816-03-30 05:56:07.066278, Graz until 2026-01-01 00:00:00
after merge by deltalake, Spark reads Rome until 2026-01-01 00:00:00, Lima until 1816-03-30 05:56:07.066278, Graz until 2026-01-01 00:00:00
after compaction by deltalake, Spark reads Oslo until 2026-01-01 00:00:00, Lima until 1816-03-30 05:56:07.066278, Graz until 2026-01-01 00:00:00'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

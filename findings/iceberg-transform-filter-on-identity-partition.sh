#!/usr/bin/env bash
# Spark with Iceberg: `WHERE lake.system.bucket(4, c) = 2` on a table partitioned by c returns the rows where c = 2.
#
# One expects: a filter on a transform of a column returns the rows that pass it, however the table is partitioned.
# What happens: Spark hands the test of system.bucket, truncate, years, months, days or hours to Iceberg. For a partition
#   field that is the column itself, Iceberg's Identity transform projects the test as if it were one on the column: c = 2.
#   Inclusive and strict projection agree, so that Spark tests no row either: partitions are missing, and one is read whose
#   rows do not pass. On a table without partitions, or partitioned by another column, the same filter is right.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0.
# Why it matters: wrong rows without an error, for SELECT and for DELETE, which takes whole partitions for what passes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config("spark.jars.ivy", f"{sys.argv[1]}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", f"file://{sys.argv[1]}/lake")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
TESTS = ("lake.system.bucket(4, c) = 2", "lake.system.truncate(10, c) = 20", "lake.system.bucket(4, c) IN (0, 1)")
for name, partitions in (("plain", ""), ("by_column", "PARTITIONED BY (c)")):
    spark.sql(f"CREATE TABLE lake.n.{name} (c INT) USING iceberg {partitions}")
    spark.sql(f"INSERT INTO lake.n.{name} SELECT CAST(id AS INT) FROM range(1, 25)")
    for test in TESTS:
        rows = [row[0] for row in spark.sql(f"SELECT c FROM lake.n.{name} WHERE {test} ORDER BY c").collect()]
        print(f"table {name}: {test}: {rows}")
for name in ("plain", "by_column"):
    spark.sql(f"DELETE FROM lake.n.{name} WHERE lake.system.truncate(10, c) = 20")
    rows = [row[0] for row in spark.sql(f"SELECT c FROM lake.n.{name} WHERE c >= 18 ORDER BY c").collect()]
    print(f"table {name}: from 18 on after DELETE WHERE truncate(10, c) = 20: {rows}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^table' <<<"$seen")
echo "$seen"
expected='table plain: lake.system.bucket(4, c) = 2: [4, 16, 19]
table plain: lake.system.truncate(10, c) = 20: [20, 21, 22, 23, 24]
table plain: lake.system.bucket(4, c) IN (0, 1): [1, 2, 6, 10, 12, 13, 14, 15, 18, 21, 22, 23, 24]
table by_column: lake.system.bucket(4, c) = 2: [2]
table by_column: lake.system.truncate(10, c) = 20: [20]
table by_column: lake.system.bucket(4, c) IN (0, 1): [1]
table plain: from 18 on after DELETE WHERE truncate(10, c) = 20: [18, 19]
table by_column: from 18 on after DELETE WHERE truncate(10, c) = 20: [18, 19, 21, 22, 23, 24]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

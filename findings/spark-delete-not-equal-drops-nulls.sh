#!/usr/bin/env bash
# Spark with Iceberg: `DELETE FROM t WHERE x <> 5` removes rows whose x is null if whole files can be dropped.
#
# One expects: SQL's null <> 5 is unknown, so DELETE keeps such rows, as SELECT ... WHERE x <> 5 does not show them.
# What happens: Spark asks Iceberg whether a delete can be done on metadata alone. Iceberg judges whole files by their
#   statistics, and there "null is not equal to 5" is true: if every file or partition matches wholly or not at all, those
#   with nulls only are dropped too. As soon as one file has to be split, rows are judged one by one, and nulls stay.
#   `NOT (x = 5)` does the same. The same statement on the same rows removes none or all of the nulls, by their layout.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0.
# Why it matters: rows that no query of the condition shows are deleted without an error. Write `x <> 5 AND x IS NOT NULL`.
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
    .config("spark.sql.catalog.lake.warehouse", f"{sys.argv[1]}/lake")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
ROWS = [(1, 5), (2, 7), (3, None), (4, None)]


def keys(query):
    return sorted(row[0] for row in spark.sql(query).collect())


def keys_left(files, layout=""):
    spark.sql("DROP TABLE IF EXISTS lake.n.t")
    spark.sql(f"CREATE TABLE lake.n.t (k int, x int) USING iceberg {layout}")
    for rows in files:
        spark.createDataFrame(rows, "k int, x int").coalesce(1).writeTo("lake.n.t").append()
    shown = keys("SELECT k FROM lake.n.t WHERE x <> 5")
    spark.sql("DELETE FROM lake.n.t WHERE x <> 5")
    return f"the condition shows {shown}, DELETE leaves {keys('SELECT k FROM lake.n.t')}"


print("one file:", keys_left([ROWS]))
print("each value in files of its own:", keys_left([ROWS[:1], ROWS[1:2], ROWS[2:]]))
print("partitioned by x:", keys_left([ROWS], "PARTITIONED BY (x)"))
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep -E '^(one|each|partitioned)' <<<"$seen")
echo "$seen"
expected='one file: the condition shows [2], DELETE leaves [1, 3, 4]
each value in files of its own: the condition shows [2], DELETE leaves [1]
partitioned by x: the condition shows [2], DELETE leaves [1]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

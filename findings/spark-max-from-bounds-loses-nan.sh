#!/usr/bin/env bash
# Spark with Iceberg: max(x) is 1.0 of a table that holds 1.0 and NaN, if the writer of the file counted no NaN.
#
# One expects: max(x) is the greatest value that a scan shows. NaN is the greatest double in Spark.
# What happens: Iceberg's Spark runtime answers max and min from the bounds of the manifests. Bounds leave NaN out, as the
#   specification says, and nan_value_counts is optional: PyIceberg, DuckDB, Daft and others do not write it. Without a
#   count the runtime takes the upper bound for the answer. The same query with any condition that is not on a partition, or
#   of an expression, reads the rows and is right. If Spark wrote the file, with counts, it is right too.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0, pyiceberg 0.12.0.
# Why it matters: max and min are how people look for values that are out of range, and NaN is one. The answer depends on
#   which program wrote the file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 \
    "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

database, lake = f"{sys.argv[1]}/catalog.db", f"file://{sys.argv[1]}/lake"
catalog = SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=lake)
catalog.create_namespace("n")
schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
rows = pa.table({"k": [1, 2], "x": [1.0, float("nan")]}, schema=schema)
for name in ("pyiceberg", "spark"):
    catalog.create_table(f"n.{name}", schema=schema)
catalog.load_table("n.pyiceberg").append(rows)
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0")
    .config("spark.jars.ivy", f"{sys.argv[1]}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "jdbc")
    .config("spark.sql.catalog.lake.uri", f"jdbc:sqlite:{database}")
    .config("spark.sql.catalog.lake.jdbc.schema-version", "V1")
    .config("spark.sql.catalog.lake.warehouse", lake)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.sql("INSERT INTO lake.n.spark SELECT * FROM lake.n.pyiceberg")
for name in ("pyiceberg", "spark"):
    one = [spark.sql(f"SELECT {text} FROM lake.n.{name}").collect()[0][0] for text in ("max(x)", "max(x + 0)")]
    print(f"table written by {name}: max(x) is {one[0]}, max(x + 0) is {one[1]}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^table' <<<"$seen")
echo "$seen"
expected='table written by pyiceberg: max(x) is 1.0, max(x + 0) is nan
table written by spark: max(x) is nan, max(x + 0) is nan'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

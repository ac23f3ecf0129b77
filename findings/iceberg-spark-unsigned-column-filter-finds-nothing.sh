#!/usr/bin/env bash
# Spark finds no row by a filter on an unsigned column that PyIceberg added, and fails without the filter.
#
# One expects: PyIceberg's add_files takes a file with a column of 32 unsigned bits into a table of longs, with right bounds. Spark
#   reads the column as a long, as its own Parquet reader does, or refuses to.
# What happens: without a filter Iceberg's reader refuses the column (Unsupported logical type: UINT_32). With one it first compares
#   the statistics of the row groups, and takes these for signed numbers: if the greatest value is 2^31 or more, it counts as negative,
#   the row group is skipped before anything is refused, and the answer is empty, for small values, too.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0, pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: a query with a filter is what people run. An empty answer looks like "no such row", not like a file that
#   the engine cannot read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 \
    "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession
from py4j.protocol import Py4JJavaError

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("n")
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config("spark.jars.ivy", f"{folder}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
for name, greatest in (("small", 2_147_483_647), ("large", 2_147_483_648)):
    table = catalog.create_table(f"n.{name}", schema=Schema(NestedField(1, "k", LongType()), NestedField(2, "u", LongType())))
    rows = {"k": pa.array([1, 2], pa.int64()), "u": pa.array([5, greatest], pa.uint32())}
    pq.write_table(pa.table(rows), f"{folder}/{name}.parquet")
    table.add_files([f"file://{folder}/{name}.parquet"])
    print(f"table {name}: Spark's own reader gives", [row.u for row in spark.read.parquet(f"file://{folder}/{name}.parquet").collect()])
    frame = spark.read.format("iceberg").load(table.metadata_location)
    for text in ("true", "u = 5", f"u = {greatest}", "u > 0"):
        try:
            print(f"table {name}: where {text}:", [row.u for row in frame.where(text).collect()])
        except (PySparkException, Py4JJavaError) as error:
            print(f"table {name}: where {text}: an error that names UINT_32" if "UINT_32" in str(error) else error)
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^table' <<<"$seen")
echo "$seen"
expected="table small: Spark's own reader gives [5, 2147483647]
table small: where true: an error that names UINT_32
table small: where u = 5: an error that names UINT_32
table small: where u = 2147483647: an error that names UINT_32
table small: where u > 0: an error that names UINT_32
table large: Spark's own reader gives [5, 2147483648]
table large: where true: an error that names UINT_32
table large: where u = 5: []
table large: where u = 2147483648: []
table large: where u > 0: []"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

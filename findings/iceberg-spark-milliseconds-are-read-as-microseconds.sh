#!/usr/bin/env bash
# Spark with Iceberg: timestamps of a Parquet file in milliseconds are read as microseconds, and filters lose their rows.
#
# One expects: a file that add_files takes is read as it is. Parquet stores the unit beside the column, Iceberg's Java library
#   has readers for milliseconds, and PyIceberg and DuckDB read such files right.
# What happens: where the column is dictionary-encoded, as pyarrow writes it by default, the vectorized reader takes the numbers
#   for microseconds: 2024-06-01 becomes 1970-01-20. Where it is plain, values are right, but `ts > '2023-01-01'` compares the
#   row group's statistics, in milliseconds, with microseconds, and finds no row, with vectorized reads and without. A condition
#   that is not pushed down (ts + interval '0' second) finds them where the values are right.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0, pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: milliseconds are what Kafka Connect, pandas and DuckDB (TIMESTAMP_MS) write. Files of a lake that were added to
#   a table without copying are read 54 years off, or vanish from every query with a filter, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 \
    "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

database, lake = f"{sys.argv[1]}/catalog.db", f"file://{sys.argv[1]}/lake"
catalog = SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=lake)
catalog.create_namespace("n")
rows = pa.table({"k": [1, 2], "ts": pa.array([datetime(2024, 1, 1, 12), datetime(2024, 6, 1)], pa.timestamp("ms"))})
for name, with_dictionary in (("dictionary", True), ("plain", False)):
    path = f"{sys.argv[1]}/{name}.parquet"
    pq.write_table(rows, path, use_dictionary=with_dictionary)
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
    catalog.create_table(f"n.{name}", schema=schema).add_files([path])
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


def column(name, text):
    return [str(row[0]) for row in spark.sql(f"SELECT {text} ORDER BY k".replace("TABLE", f"lake.n.{name}")).collect()]


for name in ("dictionary", "plain"):
    print(f"{name}: PyIceberg reads {[str(one) for one in catalog.load_table(f'n.{name}').scan().to_arrow()['ts'].to_pylist()]}")
    for vectorized in ("true", "false"):
        spark.sql(f"ALTER TABLE lake.n.{name} SET TBLPROPERTIES ('read.parquet.vectorization.enabled'='{vectorized}')")
        values = column(name, "ts FROM TABLE")
        pushed = column(name, "k FROM TABLE WHERE ts > timestamp_ntz'2023-01-01'")
        held = column(name, "k FROM TABLE WHERE ts + interval '0' second > timestamp_ntz'2023-01-01'")
        print(f"{name}, vectorized {vectorized}: {values}; filter finds {pushed}, not pushed down {held}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^dictionary\|^plain' <<<"$seen")
echo "$seen"
expected="dictionary: PyIceberg reads ['2024-01-01 12:00:00', '2024-06-01 00:00:00']
dictionary, vectorized true: ['1970-01-20 17:21:50.400000', '1970-01-20 21:00:00']; filter finds [], not pushed down []
dictionary, vectorized false: ['2024-01-01 12:00:00', '2024-06-01 00:00:00']; filter finds [], not pushed down ['1', '2']
plain: PyIceberg reads ['2024-01-01 12:00:00', '2024-06-01 00:00:00']
plain, vectorized true: ['2024-01-01 12:00:00', '2024-06-01 00:00:00']; filter finds [], not pushed down ['1', '2']
plain, vectorized false: ['2024-01-01 12:00:00', '2024-06-01 00:00:00']; filter finds [], not pushed down ['1', '2']"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

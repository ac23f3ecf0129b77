#!/usr/bin/env bash
# PyIceberg does not read a table that Spark partitioned by two decimals of one precision and scale, or by two UUIDs.
#
# One expects: PyIceberg reads any table of Iceberg's format version 2 whose types it knows.
# What happens: the manifest's Avro schema declares the type of both partition values once, as the specification of Avro
#   asks, and refers to it by its name the second time ("decimal_9_2"). PyIceberg's conversion of schemas knows no names and
#   raises TypeError: Type not recognized. One partition column of that type is read, and two of different ones.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0, pyiceberg 0.12.0.
# Why it matters: scans, appends that merge manifests, and every tool on top of PyIceberg fail on such tables.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 \
    "pyiceberg[pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config("spark.jars.ivy", f"{sys.argv[1]}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", f"file://{sys.argv[1]}/lake")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
for name, kinds in (("alike", ("9, 2", "9, 2")), ("different", ("9, 2", "9, 3"))):
    columns = ", ".join(f"{column} DECIMAL({kind})" for column, kind in zip("ab", kinds))
    spark.sql(f"CREATE TABLE lake.n.{name} ({columns}) USING iceberg PARTITIONED BY (a, b)")
    spark.sql(f"INSERT INTO lake.n.{name} VALUES (1.5, 2.5), (2.5, 1.5)")
    rows = spark.table(f"lake.n.{name}").count()
    table = StaticTable.from_metadata(f"file://{sys.argv[1]}/lake/n/{name}/metadata/v2.metadata.json")
    try:
        seen = f"{len(table.scan().to_arrow())} rows"
    except TypeError as error:
        seen = f"TypeError: {error}"
    print(f"table {name}: Spark reads {rows} rows, PyIceberg {seen}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^table' <<<"$seen")
echo "$seen"
expected='table alike: Spark reads 2 rows, PyIceberg TypeError: Type not recognized: decimal_9_2
table different: Spark reads 2 rows, PyIceberg 2 rows'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

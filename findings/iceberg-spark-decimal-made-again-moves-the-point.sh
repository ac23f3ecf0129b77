#!/usr/bin/env bash
# Spark with Iceberg: a decimal column that is made again with another scale shows the old values with their point moved.
#
# One expects: a file that add_files took has no field ids, so a new column with the name of a dropped one finds its values. Where
#   the type is another one, a reader converts them without a change, or refuses the file, as Spark and PyIceberg do where
#   the new column is a text.
# What happens: Spark's vectorized reader, the usual one, takes the unscaled numbers of the file with the scale of the table: 5.25
#   becomes 0.525. Its other reader and PyIceberg read 5.250 of the same file.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0, pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: Iceberg cannot change the scale of a column, so people drop it and add it again. Amounts of files that were added
#   are a tenth of what they were, without an error, and what is written from such a query keeps them so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 \
    "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

database, lake, path = f"{sys.argv[1]}/catalog.db", f"file://{sys.argv[1]}/lake", f"{sys.argv[1]}/added.parquet"
catalog = SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=lake)
catalog.create_namespace("n")
rows = pa.table({"k": [1, 2], "cost": pa.array([Decimal("5.25"), Decimal("-7.00")], pa.decimal128(9, 2))})
pq.write_table(rows, path)
catalog.create_table("n.t", schema=rows.schema).add_files([path])
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


def show(when):
    for vectorized in ("true", "false"):
        spark.sql(f"ALTER TABLE lake.n.t SET TBLPROPERTIES ('read.parquet.vectorization.enabled'='{vectorized}')")
        try:
            values = [str(row.cost) for row in spark.sql("SELECT cost FROM lake.n.t ORDER BY k").collect()]
        except Exception:
            values = "an error"
        print(f"{when}, Spark, vectorized {vectorized}: {values}")
    try:
        values = [str(value) for value in catalog.load_table("n.t").scan().to_arrow()["cost"].to_pylist()]
    except Exception as error:
        values = f"{type(error).__name__}: {error}"
    print(f"{when}, PyIceberg: {values}")


show("decimal(9,2)")
for kind in ("decimal(9,3)", "string"):
    spark.sql("ALTER TABLE lake.n.t DROP COLUMN cost")
    spark.sql(f"ALTER TABLE lake.n.t ADD COLUMN cost {kind}")
    show(f"made again as {kind}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^decimal\|^made' <<<"$seen")
echo "$seen"
expected="decimal(9,2), Spark, vectorized true: ['5.25', '-7.00']
decimal(9,2), Spark, vectorized false: ['5.25', '-7.00']
decimal(9,2), PyIceberg: ['5.25', '-7.00']
made again as decimal(9,3), Spark, vectorized true: ['0.525', '-0.700']
made again as decimal(9,3), Spark, vectorized false: ['5.250', '-7.000']
made again as decimal(9,3), PyIceberg: ['5.250', '-7.000']
made again as string, Spark, vectorized true: an error
made again as string, Spark, vectorized false: an error
made again as string, PyIceberg: ResolveError: Cannot promote an decimal to string"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

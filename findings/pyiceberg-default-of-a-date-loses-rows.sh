#!/usr/bin/env bash
# PyIceberg: `day = '2020-01-01'` finds no row whose day is 2020-01-01 by the default of a column that was added later.
#
# One expects: a v3 column with an initial default shows the default in rows of older files, and a filter sees what a scan shows.
# What happens: that holds for numbers, texts, booleans and decimals. For date and timestamp columns PyIceberg compares the
#   default as it stands in the schema (a date) with the constant (a number of days): `=` and `in` find nothing, and `<` raises a
#   TypeError. `day is not null` finds the rows, and the scan without a filter shows the date. For a field in a struct, `place.floor = 5`
#   also gives rows whose struct is null. Spark and DuckDB give the rows that the scan shows.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1; Spark 4.1.4 with Iceberg 1.12.0 makes the table and is the second engine, as PyIceberg
#   writes no v3 tables.
# Why it matters: to fill a new column without a rewrite is what defaults are for, and a date is the usual such column.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 'pyiceberg[pyarrow]==0.12.0' pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import glob
import sys

from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config("spark.jars.ivy", f"{folder}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", f"{folder}/lake")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.sql("create table lake.n.t (k int, place struct<city: string>) using iceberg tblproperties ('format-version' = '3')")
spark.sql("insert into lake.n.t values (1, named_struct('city', 'Rome')), (2, null)")
types, literal = spark._jvm.org.apache.iceberg.types.Types, spark._jvm.org.apache.iceberg.expressions.Expressions.lit
change = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "lake.n.t").updateSchema()
change.addColumn("n", types.IntegerType.get(), None, literal(7))
for name, kind, text in (
    ("day", types.DateType.get(), "2020-01-01"),
    ("at", types.TimestampType.withoutZone(), "2020-01-01T00:00:00"),
):
    change.addColumn(name, kind, None, literal(text).to(kind))
change.addColumn("place", "floor", types.IntegerType.get(), None, literal(5))
change.commit()
spark.sql("refresh table lake.n.t")
table = StaticTable.from_metadata(max(glob.glob(f"{folder}/lake/n/t/metadata/*.metadata.json")))
print("scan:", [(row["k"], row["n"], str(row["day"]), str(row["at"])) for row in table.scan().to_arrow().to_pylist()])
for condition in (
    "n = 7",
    "day = '2020-01-01'",
    "day in ('2020-01-01', '1990-01-01')",
    "day < '2021-01-01'",
    "day is not null",
    "at = '2020-01-01T00:00:00'",
    "place.floor = 5",
):
    try:
        seen = sorted(table.scan(row_filter=condition).to_arrow()["k"].to_pylist())
    except TypeError as error:
        seen = f"TypeError: {error}"
    answer = condition.replace("at = '", "at = timestamp_ntz '")
    kept = [row.k for row in spark.sql(f"select k from lake.n.t where {answer} order by k").collect()]
    print(f"{condition}: PyIceberg {seen}, Spark {kept}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep -E '^(scan|[a-z. ]+ (=|in|<|is) ?.*PyIceberg)' <<<"$seen")
echo "$seen"
expected=$(cat <<'SEEN'
scan: [(1, 7, '2020-01-01', '2020-01-01 00:00:00'), (2, 7, '2020-01-01', '2020-01-01 00:00:00')]
n = 7: PyIceberg [1, 2], Spark [1, 2]
day = '2020-01-01': PyIceberg [], Spark [1, 2]
day in ('2020-01-01', '1990-01-01'): PyIceberg [], Spark [1, 2]
day < '2021-01-01': PyIceberg TypeError: '<' not supported between instances of 'datetime.date' and 'int', Spark [1, 2]
day is not null: PyIceberg [1, 2], Spark [1, 2]
at = '2020-01-01T00:00:00': PyIceberg [], Spark [1, 2]
place.floor = 5: PyIceberg [1, 2], Spark [1]
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

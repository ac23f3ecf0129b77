#!/usr/bin/env bash
# Spark with Iceberg: a default of a column that is added later closes a table of ORC files to every query that names it.
#
# One expects: an initial default is a change of metadata, which the reader fills in, whatever format older files have; or the
#   change of the schema is refused, as it is for a v2 table.
# What happens: the change is accepted. From then on `select *`, and each query that asks old rows for the column, fails with
#   "ORC cannot read default value". Queries of other columns go on, and so do those whose condition rules the old files out.
#   Files of Parquet and Avro in a table of the same schema are read right.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0.
# Why it matters: writers of new rows see nothing of it, so the readers find the table broken, and a default of a column cannot be
#   taken back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
import sys

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
types, literal = spark._jvm.org.apache.iceberg.types.Types, spark._jvm.org.apache.iceberg.expressions.Expressions.lit
for form in ("parquet", "avro", "orc"):
    name = f"lake.n.{form}"
    spark.sql(f"create table {name} (k int) using iceberg tblproperties ('format-version' = '3', 'write.format.default' = '{form}')")
    spark.sql(f"insert into {name} values (1), (2)")
    change = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name).updateSchema()
    change.addColumn("city", types.StringType.get(), None, literal("Rome")).commit()
    spark.sql(f"refresh table {name}")
    spark.sql(f"insert into {name} values (3, 'Oslo')")
    for query in ("k", "k, city", "k, city where k > 2"):
        columns, _, condition = query.partition(" where ")
        text = f"select {columns} from {name} {'where ' + condition if condition else ''} order by k"
        try:
            seen = [tuple(row) for row in spark.sql(text).collect()]
        except Exception as error:
            seen = next(part for part in str(error).splitlines() if "cannot read default" in part).split("Exception: ")[-1]
        print(f"{form}, select {query}: {seen}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep ', select ' <<<"$seen")
echo "$seen"
expected=$(cat <<'SEEN'
parquet, select k: [(1,), (2,), (3,)]
parquet, select k, city: [(1, 'Rome'), (2, 'Rome'), (3, 'Oslo')]
parquet, select k, city where k > 2: [(3, 'Oslo')]
avro, select k: [(1,), (2,), (3,)]
avro, select k, city: [(1, 'Rome'), (2, 'Rome'), (3, 'Oslo')]
avro, select k, city where k > 2: [(3, 'Oslo')]
orc, select k: [(1,), (2,), (3,)]
orc, select k, city: ORC cannot read default value for field city (string): Rome
orc, select k, city where k > 2: [(3, 'Oslo')]
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# Spark with Iceberg: rows of a file with a shredded variant can be read, but not updated, deleted or rewritten.
#
# One expects: `write.parquet.shred-variants` changes how a variant lies in Parquet, and every statement works as before.
# What happens: a query that selects the variant reads it row by row and works. UPDATE, DELETE and (once the table does not
#   shred any more) rewrite_data_files read the file with the vectorized reader, which fails with "Unsupported variant:
#   shredded typed_value primitive", also if the statement names other columns only. With the table's property
#   `read.parquet.vectorization.enabled` set to false, all of them work.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0.
# Why it matters: whoever turns shredding on can insert and select, and finds out at the first UPDATE that no row can be
#   changed; whoever turns it off again cannot rewrite the files without the other property.
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
FAULT = "Unsupported variant: shredded typed_value primitive"
CALL = "CALL lake.system.rewrite_data_files(table => 'n.t', options => map('rewrite-all', 'true'))"


def tried(name, statement):
    try:
        spark.sql(statement).collect()
    except Exception as error:
        print(f"{name}: {FAULT if FAULT in str(error) else 'another error'}")
    else:
        print(f"{name}: works")


def is_set(name, value):
    spark.sql(f"ALTER TABLE lake.n.t SET TBLPROPERTIES ('{name}' = '{value}')")


spark.sql(
    "CREATE TABLE lake.n.t (id bigint, name string, v variant) USING iceberg "
    "TBLPROPERTIES ('format-version' = '3', 'write.parquet.shred-variants' = 'true')"
)
spark.sql(
    "INSERT INTO lake.n.t SELECT /*+ coalesce(1) */ id, 'n' || id, parse_json('{\"a\": ' || id || '}') FROM range(20)"
)
tried("select the variant", "SELECT id, v FROM lake.n.t WHERE id = 3")
tried("update another column", "UPDATE lake.n.t SET name = 'x' WHERE id = 3")
tried("delete", "DELETE FROM lake.n.t WHERE id = 4")
is_set("write.parquet.shred-variants", "false")
tried("rewrite without shredding", CALL)
is_set("read.parquet.vectorization.enabled", "false")
tried("update without vectorization", "UPDATE lake.n.t SET name = 'x' WHERE id = 3")
tried("rewrite without vectorization", CALL)
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep -E '^(select|update|delete|rewrite)' <<<"$seen")
echo "$seen"
expected='select the variant: works
update another column: Unsupported variant: shredded typed_value primitive
delete: Unsupported variant: shredded typed_value primitive
rewrite without shredding: Unsupported variant: shredded typed_value primitive
update without vectorization: works
rewrite without vectorization: works'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

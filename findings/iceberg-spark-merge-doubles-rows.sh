#!/usr/bin/env bash
# MERGE INTO of Spark doubles rows of an Iceberg table that it does not change, if the source has a key twice.
#
# One expects: a MERGE without WHEN MATCHED changes no row that has a match. Several source rows with one key are an error
#   (MERGE_CARDINALITY_VIOLATION) where they would change a row, and make no difference where no clause applies to it.
# What happens: with WHEN NOT MATCHED BY SOURCE, Spark joins the rows of the files that it writes again with the source, and writes
#   a matched row once for each source row that matches it. The check for several matches is left out, as no clause changes the row.
#   Tables with copy-on-write, the default, get the row twice. With merge-on-read they do not, and neither without that clause.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0.
# Why it matters: "insert what is new, delete what is gone" is how a table follows an extract. One repeated line in the
#   extract doubles a row that it did not even mean to change, and each further run of the statement doubles it again.
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
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.c", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.c.type", "hadoop")
    .config("spark.sql.catalog.c.warehouse", f"{folder}/lake")
    .config("spark.sql.shuffle.partitions", 1)
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.createDataFrame([(1, "new"), (1, "new")], "id int, v string").createOrReplaceTempView("s")
FOLLOW = "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
for mode, clauses, times in (
    ("copy-on-write", FOLLOW, 1),
    ("copy-on-write", FOLLOW, 2),
    ("copy-on-write", "WHEN NOT MATCHED BY SOURCE THEN DELETE", 1),
    ("copy-on-write", "WHEN NOT MATCHED THEN INSERT *", 1),
    ("merge-on-read", FOLLOW, 1),
):
    spark.sql("DROP TABLE IF EXISTS c.n.t")
    spark.sql(f"CREATE TABLE c.n.t (id int, v string) USING iceberg TBLPROPERTIES ('write.merge.mode' = '{mode}')")
    spark.sql("INSERT INTO c.n.t VALUES (1, 'old'), (2, 'old'), (3, 'old')")
    for _ in range(times):
        spark.sql(f"MERGE INTO c.n.t AS t USING s ON t.id = s.id {clauses}")
    rows = sorted((row.id, row.v) for row in spark.table("c.n.t").collect())
    print(f"rows: {mode}, {clauses}, {times} times:", rows)
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^rows' <<<"$seen")
echo "$seen"
follow="WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
expected="rows: copy-on-write, $follow, 1 times: [(1, 'old'), (1, 'old')]
rows: copy-on-write, $follow, 2 times: [(1, 'old'), (1, 'old'), (1, 'old'), (1, 'old')]
rows: copy-on-write, WHEN NOT MATCHED BY SOURCE THEN DELETE, 1 times: [(1, 'old'), (1, 'old')]
rows: copy-on-write, WHEN NOT MATCHED THEN INSERT *, 1 times: [(1, 'old'), (2, 'old'), (3, 'old')]
rows: merge-on-read, $follow, 1 times: [(1, 'old')]"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# Iceberg: a table that is created under the name of a renamed one gets its folder, and remove_orphan_files then deletes the
#   other's files.
#
# One expects: two tables have two folders, or the catalog refuses the second; a procedure that cleans up after one table
#   deletes no file of another. Renaming a table and creating a new one under its name is how tables are archived, replaced
#   or rebuilt.
# What happens: a rename changes an entry in the catalog, and the folder keeps the old name. A catalog chooses the folder of
#   a new table by its name, and does not look whether a table is there. Both tables work, until remove_orphan_files runs for
#   one of them: it takes each file in the folder that this table does not name for an orphan, and deletes data files,
#   manifests and metadata of the other.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0 (JDBC catalog). PyIceberg 0.12.0 chooses folders in the same
#   way.
# Why it matters: the procedure is in every maintenance schedule, runs days after the rename, and reports success. The
#   archived table cannot be restored. Set the catalog property `unique-table-location` to true, or give each table a
#   LOCATION of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

database, lake = f"{sys.argv[1]}/catalog.db", Path(sys.argv[1], "lake")
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0")
    .config("spark.jars.ivy", f"{sys.argv[1]}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "jdbc")
    .config("spark.sql.catalog.lake.uri", f"jdbc:sqlite:{database}")
    .config("spark.sql.catalog.lake.jdbc.schema-version", "V1")
    .config("spark.sql.catalog.lake.warehouse", f"file://{lake}")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.sql("CREATE NAMESPACE lake.n")
spark.sql("CREATE TABLE lake.n.orders (id bigint) USING iceberg")
spark.sql("INSERT INTO lake.n.orders VALUES (1), (2)")
spark.sql("ALTER TABLE lake.n.orders RENAME TO n.orders_of_last_year")
spark.sql("CREATE TABLE lake.n.orders (id bigint) USING iceberg")
spark.sql("INSERT INTO lake.n.orders VALUES (3)")


def location(table):
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED lake.n.{table}").collect()
    return next(row[1] for row in rows if row[0] == "Location").removeprefix(f"file://{lake}")


print("see: locations", [location(table) for table in ("orders_of_last_year", "orders")])
ten_days_ago = time.time() - 10 * 24 * 3600
for file in filter(Path.is_file, lake.rglob("*")):
    os.utime(file, (ten_days_ago, ten_days_ago))
removed = [Path(row[0]).name for row in spark.sql("CALL lake.system.remove_orphan_files(table => 'n.orders')").collect()]
kinds = {"data files": ".parquet", "metadata files": ".metadata.json", "manifests": ".avro"}
print("see: removed", {kind: sum(name.endswith(end) for name in removed) for kind, end in kinds.items()})
for table in ("orders", "orders_of_last_year"):
    spark.catalog.clearCache()
    try:
        print(f"see: {table}", spark.newSession().sql(f"SELECT id FROM lake.n.{table}").collect())
    except Exception as error:
        print(f"see: {table}", "cannot be read:", "NotFoundException" if "NotFoundException" in str(error) else str(error)[:300])
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(sed -n 's/^see: //p' <<<"$seen")
echo "$seen"
expected='locations ['\''/n/orders'\'', '\''/n/orders'\'']
removed {'\''data files'\'': 1, '\''metadata files'\'': 2, '\''manifests'\'': 2}
orders [Row(id=3)]
orders_of_last_year cannot be read: NotFoundException'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

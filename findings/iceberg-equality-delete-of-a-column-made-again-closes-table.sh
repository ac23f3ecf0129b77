#!/usr/bin/env bash
# Spark with Iceberg: when a column was dropped and added again, an equality delete by the old one closes the new one.
#
# One expects: ALTER TABLE ... DROP COLUMN k and ADD COLUMN k make another column with another field id. The specification says
#   that a column of an equality delete that was dropped from the table must still be used to apply the delete.
# What happens: while k is dropped, Iceberg's Java library reads the old column for the delete, and the rows are right. As
#   soon as there is a column of this name again, it puts both into the schema in which it reads a data file, and refuses
#   that: a schema must not have two fields of one name. Every query that reads the new column fails, and so does
#   rewrite_data_files, which would apply the delete. Queries without the column, and without it the table, work.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0.
# Why it matters: Flink and other streams write equality deletes, and replacing a column is a usual way to change its type.
#   Neither statement warns, `SELECT *` fails for as long as one equality delete by the old column is left, and the
#   statement that removes equality deletes fails, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
import re
import sys

from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config("spark.jars.ivy", f"{folder}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", f"file://{folder}/lake")
    .config("spark.sql.catalog.lake.cache-enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
java, iceberg = spark._jvm, spark._jvm.org.apache.iceberg


def delete_equal(column, value):
    """Commit a file with one equality delete, written by Iceberg's Java library."""
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "lake.n.people")
    names = java.java.util.ArrayList()
    names.add(column)
    schema = table.schema().select(names)
    ids = spark.sparkContext._gateway.new_array(java.int, 1)
    ids[0] = table.schema().findField(column).fieldId()
    parquet = iceberg.FileFormat.fromString("parquet")
    builder = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(table).deleteFileFormat(parquet)
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    file = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(parquet).build().newOutputFile()
    writer = factory.newEqualityDeleteWriter(file, table.spec(), None)
    row = iceberg.data.GenericRecord.create(schema)
    row.setField(column, value)
    writer.write(row)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def show(state, query="SELECT n FROM lake.n.people ORDER BY n"):
    """Print what a query returns, or why it fails."""
    try:
        result = [tuple(row) for row in spark.sql(query).collect()]
    except Exception as error:
        result = re.search(r"ValidationException: .*", str(error)).group()
    print(f"table {state}: {result}")


spark.sql("CREATE TABLE lake.n.people (n INT, k INT) USING iceberg")
spark.sql("INSERT INTO lake.n.people VALUES (1, 7), (2, 8)")
delete_equal("k", 7)
show("with k = 7 deleted")
spark.sql("ALTER TABLE lake.n.people DROP COLUMN k")
show("without k")
spark.sql("ALTER TABLE lake.n.people ADD COLUMN k STRING")
show("with k again, n alone")
show("with k again, all columns", "SELECT * FROM lake.n.people")
rewrite = "CALL lake.system.rewrite_data_files(table => 'n.people', options => map('delete-file-threshold', '1'))"
show("rewritten", rewrite)
spark.sql("ALTER TABLE lake.n.people DROP COLUMN k")
show("without k again")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^table' <<<"$seen")
echo "$seen"
expected=$(cat <<'SEEN'
table with k = 7 deleted: [(2,)]
table without k: [(2,)]
table with k again, n alone: [(2,)]
table with k again, all columns: ValidationException: Invalid schema: multiple fields for name k: 3 and 2
table rewritten: ValidationException: Invalid schema: multiple fields for name k: 3 and 2
table without k again: [(2,)]
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# DuckDB: an equality delete in one partition of an Iceberg table takes the rows of all partitions.
#
# One expects: a file of equality deletes belongs to a partition, as a data file does, and takes rows of data files of this
#   partition only. The specification of tables lets it apply to all partitions only if its partition spec has no fields.
# What happens: DuckDB's reader compares sequence numbers, but not partitions. A delete of id 1 in the partition `a` takes
#   the row with id 1 in `b`, too. Spark keeps that row. A position delete or a deletion vector names its file and is right.
# Versions: duckdb 1.5.5, duckdb-extension-iceberg 1.5.5, pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0.
# Why it matters: Flink writes each delete into the partition of its row, and a key that is unique within a tenant or a day
#   only has the same value in others. Those rows are missing without an error. Resolve the deletes by position before
#   DuckDB reads.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 duckdb==1.5.5 \
    duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5
cat >"$folder/program.py" <<'PY'
import importlib.util
import sys
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

folder = sys.argv[1]
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for extension in ("avro", "iceberg"):
    (place,) = importlib.util.find_spec(f"duckdb_extension_{extension}").submodule_search_locations
    (library,) = Path(place).rglob("*.duckdb_extension")
    connection.load_extension(str(library))
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config("spark.jars.ivy", f"{folder}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", f"file://{folder}/lake")
    .config("spark.sql.catalog.lake.cache-enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
java, iceberg = spark._jvm, spark._jvm.org.apache.iceberg


def delete_equal(name, column, values, **partition):
    """Commit a file of equality deletes, written by Iceberg's Java library."""
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.n.{name}")
    names = java.java.util.ArrayList()
    names.add(column)
    schema = table.schema().select(names)
    ids = spark.sparkContext._gateway.new_array(java.int, 1)
    ids[0] = table.schema().findField(column).fieldId()
    parquet = iceberg.FileFormat.fromString("parquet")
    builder = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(table).deleteFileFormat(parquet)
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    place = iceberg.data.GenericRecord.create(table.spec().partitionType()) if partition else None
    for field, value in partition.items():
        place.setField(field, value)
    files = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(parquet).build()
    file = files.newOutputFile(table.spec(), place) if partition else files.newOutputFile()
    writer = factory.newEqualityDeleteWriter(file, table.spec(), place)
    row = iceberg.data.GenericRecord.create(schema)
    for value in values:
        row.setField(column, value)
        writer.write(row)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def show(name, state):
    """Print the rows that each engine reads."""
    metadata = max(Path(folder, "lake", "n", name, "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:-14]))
    rows = sorted(connection.sql(f"select * from iceberg_scan('{metadata}')").fetchall(), key=repr)
    theirs = sorted((tuple(row) for row in spark.table(f"lake.n.{name}").collect()), key=repr)
    print(f"table {name}, {state}: Spark {theirs}, DuckDB {rows}")


spark.sql("CREATE TABLE lake.n.orders (id INT, tenant STRING) USING iceberg PARTITIONED BY (tenant)")
spark.sql("INSERT INTO lake.n.orders VALUES (1, 'a'), (2, 'a'), (1, 'b'), (2, 'b')")
show("orders", "as it was")
delete_equal("orders", "id", [1], tenant="a")
show("orders", "id = 1 deleted in the partition a")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^table' <<<"$seen")
echo "$seen"
expected=$(cat <<'SEEN'
table orders, as it was: Spark [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')], DuckDB [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')]
table orders, id = 1 deleted in the partition a: Spark [(1, 'b'), (2, 'a'), (2, 'b')], DuckDB [(2, 'a'), (2, 'b')]
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

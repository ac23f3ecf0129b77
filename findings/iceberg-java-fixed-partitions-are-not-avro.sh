#!/usr/bin/env bash
# Iceberg's Java library writes and reads partition values of fixed types with a length that Avro's fixed does not have.
#
# One expects: a table partitioned by a column of type fixed[N] is read alike by Spark and PyIceberg, whoever wrote it.
# What happens: manifests declare such a partition value as Avro's fixed, which is N bytes. Java's writer puts the length
#   before them, as for bytes (ValueWriters.FixedByteBufferWriter calls writeBytes), and its reader expects it. PyIceberg
#   reads what the schema says: all that follows in the manifest is read from the wrong place. It shows partition values
#   and counts that nobody wrote, and a filter on the column finds nothing, without an error.
# Versions: pyspark 4.1.4, iceberg-spark-runtime-4.1_2.13 1.12.0, pyiceberg 0.12.0.
# Why it matters: such a table is only read right by the library that wrote it (Flink's BINARY(n) makes such columns).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 \
    "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField
from pyspark.sql import SparkSession

database, lake = f"{sys.argv[1]}/catalog.db", f"file://{sys.argv[1]}/lake"
catalog = SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=lake)
catalog.create_namespace("n")
schema = Schema(NestedField(1, "k", LongType(), required=False), NestedField(2, "f", FixedType(2), required=False))
spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "f"))
catalog.create_table("n.t", schema=schema, partition_spec=spec)
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
spark.sql("INSERT INTO lake.n.t SELECT id, CAST(IF(id = 1, X'81ff', X'82ff') AS BINARY) FROM range(1, 6)")
table = catalog.load_table("n.t")
print("table: Spark counts", spark.sql("SELECT f, count(*) FROM lake.n.t GROUP BY f ORDER BY f").collect())
files = table.inspect.files().to_pylist()
partitions = [entry["partition"]["f"] for entry in table.inspect.entries()["data_file"].to_pylist()]
print("table: PyIceberg sees partitions", sorted(partitions), "with counts of rows", sorted(f["record_count"] for f in files))
for value in (b"\x81\xff", b"\x82\xff"):
    found = table.scan(row_filter=EqualTo("f", value)).to_arrow()
    print(f"table: PyIceberg finds {len(found)} rows where f is {value!r}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^table' <<<"$seen")
echo "$seen"
expected="table: Spark counts [Row(f=b'\\x81\\xff', count(1)=1), Row(f=b'\\x82\\xff', count(1)=4)]
table: PyIceberg sees partitions [b'\\x04\\x81', b'\\x04\\x82'] with counts of rows [-576, -192]
table: PyIceberg finds 0 rows where f is b'\\x81\\xff'
table: PyIceberg finds 0 rows where f is b'\\x82\\xff'"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

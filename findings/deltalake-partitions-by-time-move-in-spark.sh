#!/usr/bin/env bash
# Times in a partition column of the deltalake package are other times in Spark, unless its session is in UTC.
#
# One expects: a timestamp of Delta is an instant, the same in each engine and time zone, in whatever column it is.
# What happens: deltalake writes the values of partition columns into the log as texts in UTC without an offset. Delta's protocol
#   allows such texts and does not define their zone; Spark reads them in the time zone of its session. So in New York an event
#   of 03:00Z is in a partition of 08:00Z, while the same time in a data file stays what it is. Spark itself writes an offset,
#   so the other way round all times are equal.
# Versions: pyspark 4.1.4, delta-spark_4.1_2.13 4.4.0, deltalake 1.6.6, pyarrow 26.0.1.
# Why it matters: a filter by an instant finds the rows of another hour or none, and a MERGE by such a key inserts every row
#   a second time. No step fails, and tests on machines in UTC pass.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 deltalake==1.6.6 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "io.delta:delta-spark_4.1_2.13:4.4.0")
    .config("spark.jars.excludes", "io.airlift:aircompressor,com.github.luben:zstd-jni")  # which Spark has
    .config("spark.jars.ivy", f"{folder}/ivy")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .config("spark.databricks.delta.snapshotPartitions", 1)
    .config("spark.sql.shuffle.partitions", 1)
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
AT = datetime(2026, 1, 1, 3, tzinfo=UTC)
ROWS = pa.table({"id": pa.array([1], pa.int64()), "at": pa.array([AT], pa.timestamp("us", "UTC"))})


def in_spark(zone: str) -> str:
    spark.conf.set("spark.sql.session.timeZone", zone)
    sentences = []
    for name in ("plain", "parted"):
        micros = spark.sql(f"SELECT unix_micros(at) FROM delta.`{folder}/{name}`").collect()[0][0]
        found = spark.sql(f"SELECT * FROM delta.`{folder}/{name}` WHERE at = timestamp'2026-01-01 03:00:00Z'").count()
        sentences.append(f"{name} {datetime.fromtimestamp(micros // 1_000_000, UTC):%H:%M}Z, found {found}")
    return "; ".join(sentences)


def rows(name: str) -> int:
    return spark.sql(f"SELECT * FROM delta.`{folder}/{name}`").count()


write_deltalake(f"{folder}/plain", ROWS)
write_deltalake(f"{folder}/parted", ROWS, partition_by=["at"])
seen = [DeltaTable(f"{folder}/{name}").to_pyarrow_table()["at"][0].as_py() for name in ("plain", "parted")]
print("deltalake: " + "; ".join(f"{name} {at:%H:%M}Z" for name, at in zip(("plain", "parted"), seen)))
print(f"Spark in UTC: {in_spark('UTC')}")
print(f"Spark in New York: {in_spark('America/New_York')}")
spark.sql("SELECT 1L AS id, timestamp'2026-01-01 03:00:00Z' AS at").createOrReplaceTempView("s")
for name in ("plain", "parted"):
    spark.sql(f"MERGE INTO delta.`{folder}/{name}` t USING s ON t.id = s.id AND t.at = s.at WHEN NOT MATCHED THEN INSERT *")
print(f"after a MERGE of the same row: plain {rows('plain')}, parted {rows('parted')}")
spark.stop()
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected="deltalake: plain 03:00Z; parted 03:00Z
Spark in UTC: plain 03:00Z, found 1; parted 03:00Z, found 1
Spark in New York: plain 03:00Z, found 1; parted 08:00Z, found 0
after a MERGE of the same row: plain 1, parted 2"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

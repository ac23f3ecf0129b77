#!/usr/bin/env bash
# sqlglot: a text of Spark with two quotes in a row, 'it''s', loses its quote when the statement is translated.
#
# One expects: a translator of SQL keeps the value of a literal. Two quotes in a row are a quote in standard SQL, and since
#   version 4.0 in Spark: select 'it''s' gives it's.
# What happens: sqlglot reads the literal as the two texts 'it' and 's' one behind the other, as Spark 3 did, and writes
#   concat('it', 's') for Spark and the same without the quote for other engines. It has one dialect for all versions, and
#   nothing tells that the value changed.
# Versions: sqlglot 30.30.0; pyspark 4.1.4.
# Why it matters: queries, filters and MERGE statements that are moved between engines compare with another text, so that
#   they miss the rows of O'Brien or write its name without the quote.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sqlglot==30.30.0 pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
import sqlglot
from pyspark.sql import SparkSession

QUERY = "SELECT 'it''s' AS name"
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("Spark:", spark.sql(QUERY).first().name)
for target in ("spark", "duckdb", "trino"):
    print(f"{target}:", sqlglot.transpile(QUERY, read="spark", write=target)[0])
print("Spark, translated to Spark:", spark.sql(sqlglot.transpile(QUERY, read="spark", write="spark")[0]).first().name)
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" 2>"$folder/log")
echo "$seen"
expected="Spark: it's
spark: SELECT CONCAT('it', 's') AS name
duckdb: SELECT 'it' || 's' AS name
trino: SELECT CONCAT('it', 's') AS name
Spark, translated to Spark: its"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# Spark: a row of nulls vanishes from a tab-separated file, and stays in a comma-separated one.
#
# One expects: the delimiter decides where fields end. A line of two empty fields is a row of two nulls with every delimiter.
# What happens: Spark drops blank lines before it parses, and a line is blank if it holds nothing but white space. A tab is
#   white space, so a line that is only delimiters is dropped, and count() is one less. With a comma the same row is there.
# Versions: pyspark 4.1.4.
# Why it matters: exports of optional columns have such rows, tools compare row counts, and nothing tells of the loss.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
import sys
from pathlib import Path
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
for name, delimiter in (("comma", ","), ("tab", "\t")):
    path = Path(sys.argv[1], f"{name}.csv")
    path.write_text("".join(f"{a}{delimiter}{b}\n" for a, b in (("a", "b"), ("1", "2"), ("", ""), ("3", "4"))))
    frame = spark.read.option("header", True).option("delimiter", delimiter).csv(str(path))
    print(f"seen {name}: {frame.count()} rows, {[tuple(row) for row in frame.collect()]}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^seen' <<<"$seen")
echo "$seen"
expected="seen comma: 3 rows, [('1', '2'), (None, None), ('3', '4')]
seen tab: 2 rows, [('1', '2'), ('3', '4')]"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

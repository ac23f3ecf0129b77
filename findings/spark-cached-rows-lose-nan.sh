#!/usr/bin/env bash
# Spark: a DataFrame that is cached loses its NaN rows under `d > 5`.
#
# One expects: cache() changes how fast a query is, not its answer. NaN is the greatest double in Spark.
# What happens: Spark keeps bounds of each batch of cached rows and skips batches by them. The bounds of doubles and floats
#   leave NaN out, as no comparison with NaN is true in Java. A batch of 1.0 and NaN has the upper bound 1.0.
# Versions: pyspark 4.1.4.
# Why it matters: rows disappear without an error as soon as somebody adds cache(). The conditions `d > x`, `d >= x` and
#   `d = NaN` are concerned.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
df = spark.createDataFrame([(1, 1.0), (2, float("nan"))], "k int, d double").coalesce(1)
for name in ("as it is", "cached"):
    found = [[row.k for row in df.where(condition).collect()] for condition in ("d > 5", "d = double('nan')", "isnan(d)")]
    print(f"{name}: d > 5 finds {found[0]}, d = NaN finds {found[1]}, isnan(d) finds {found[2]}")
    df.cache()
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='as it is: d > 5 finds [2], d = NaN finds [2], isnan(d) finds [2]
cached: d > 5 finds [], d = NaN finds [], isnan(d) finds [2]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

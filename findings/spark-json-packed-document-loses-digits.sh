#!/usr/bin/env bash
# Spark: a Json document in a .gz file is read as other text than the same document unpacked.
#
# One expects: gzip changes how a file is stored, not what its values are. A number read as string is the text that the file
#   has, as it is from an unpacked file and from packed files with one record a line.
# What happens: with multiLine, an unpacked document keeps `100000000000000000000.50`, `1.10` and `1e400`. From the packed one
#   the same numbers come as `1.0E20`, `1.1` and `"Infinity"`, with quotes: Spark copies the text of a value only where it can
#   read the file a second time, else it writes the value that its parser made.
# Versions: pyspark 4.1.4.
# Why it matters: amounts and identifiers that a schema reads as text to keep them exact lose digits as soon as a producer
#   turns compression on, without an error or a bad record.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4
cat >"$folder/program.py" <<'PY'
import gzip
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
RECORDS = ('{"x": 100000000000000000000.50}', '{"x": 1.10}', '{"x": 1e400}')
TEXTS = {"document": f"[{', '.join(RECORDS)}]", "lines": "\n".join(RECORDS)}
for name, text in TEXTS.items():
    for ending, content in ((".json", text.encode()), (".json.gz", gzip.compress(text.encode()))):
        path = Path(sys.argv[1], f"{name}{ending}")
        path.write_bytes(content)
        frame = spark.read.option("multiLine", name == "document").schema("x string").json(str(path))
        print(f"seen {path.name}: {[row.x for row in frame.collect()]}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^seen' <<<"$seen")
echo "$seen"
expected="seen document.json: ['100000000000000000000.50', '1.10', '1e400']
seen document.json.gz: ['1.0E20', '1.1', '\"Infinity\"']
seen lines.json: ['100000000000000000000.50', '1.10', '1e400']
seen lines.json.gz: ['100000000000000000000.50', '1.10', '1e400']"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

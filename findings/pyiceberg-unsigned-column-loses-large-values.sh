#!/usr/bin/env bash
# PyIceberg adds a file with a column of 32 unsigned bits to a table of longs, and then does not find its large values.
#
# One expects: add_files refuses a Parquet file whose types do not fit the table's. The table has long, the file uint32: each value
#   fits, PyIceberg takes the file, and a scan shows 3000000000 as it was written. So a filter for this value finds it.
# What happens: for each file, a scan translates the filter to the types that PyIceberg gives the columns of the file. It takes
#   uint32 for Iceberg's int, in which 3000000000 does not exist: =, in, > and >= are then false for all rows of the file,
#   != and not in are true for all of them, and count() agrees. Below 2^31 filters are right. The bounds of the file in the
#   manifest are right, too, and so is a delete by the same filter.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: systems that have unsigned numbers (databases, Arrow, pandas, Polars, ClickHouse) write such files. The table
#   looks whole, and lookups by a key beyond 2^31 find nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("n")
table = catalog.create_table("n.t", schema=Schema(NestedField(1, "k", LongType()), NestedField(2, "u", LongType())))
rows = {"k": pa.array([1, 2, 3], pa.int64()), "u": pa.array([5, 3_000_000_000, 7], pa.uint32())}
pq.write_table(pa.table(rows), f"{folder}/added.parquet")
table.add_files([f"file://{folder}/added.parquet"])
print("all rows:", table.scan().to_arrow()["u"].to_pylist())
bounds = table.inspect.files()["readable_metrics"].to_pylist()[0]["u"]
print("bounds in the manifest:", bounds["lower_bound"], "to", bounds["upper_bound"])
for text in ("u = 5", "u = 3000000000", "u >= 3000000000", "u > 2147483647", "u in (5, 3000000000)", "u != 3000000000", "u < 3000000001"):
    scan = table.scan(row_filter=text)
    print(f"{text}: finds {sorted(scan.to_arrow()['u'].to_pylist())}, counts {scan.count()}")
table.delete("u = 3000000000")
print("after delete(u = 3000000000):", table.scan().to_arrow()["u"].to_pylist())
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected="all rows: [5, 3000000000, 7]
bounds in the manifest: 5 to 3000000000
u = 5: finds [5], counts 1
u = 3000000000: finds [], counts 0
u >= 3000000000: finds [], counts 0
u > 2147483647: finds [3000000000], counts 1
u in (5, 3000000000): finds [5], counts 1
u != 3000000000: finds [5, 7, 3000000000], counts 3
u < 3000000001: finds [5, 7, 3000000000], counts 3
after delete(u = 3000000000): [5, 7]"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

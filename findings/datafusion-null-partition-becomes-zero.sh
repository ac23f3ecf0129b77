#!/usr/bin/env bash
# DataFusion: COPY ... PARTITIONED BY writes a null as 0, '', false or 1970-01-01.
#
# One expects: a row whose partition column is null is written to a folder for nulls (`__HIVE_DEFAULT_PARTITION__`, as Spark,
#   Hive, Arrow, DuckDB and Polars do), or is an error; the file, which does not hold the column, keeps no other trace of the
#   value.
# What happens: the folder has the default of the column's type: `part=0`, `part=0.0`, `part=`, `part=false`,
#   `part=1970-01-01`. A row with a null and a row with that value share a folder, and every reader shows the default.
#   Nothing reports it.
# Versions: datafusion 55.0.0, pyarrow 26.0.1.
# Why it matters: the nulls are gone for good: a sum over the column, a join by it, or a filter `is null` has another result,
#   and 0 is often the number of a real customer, or of a shop.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check datafusion==55.0.0 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import os
import sys

import pyarrow as pa
from datafusion import SessionContext

for name, values in (
    ("int64", pa.array([1, None])),
    ("float64", pa.array([1.5, None])),
    ("string", pa.array(["a", None])),
    ("bool", pa.array([True, None])),
    ("date32", pa.array([19_000, None], pa.int32()).cast(pa.date32())),
):
    folder = f"{sys.argv[1]}/{name}"
    context = SessionContext()
    context.from_arrow(pa.table({"id": [1, 2], "part": values}), "rows")
    try:
        context.sql(f"COPY rows TO '{folder}/' STORED AS PARQUET PARTITIONED BY (part)").collect()
        read = SessionContext().read_parquet(folder, table_partition_cols=[("part", values.type)])
        rows = sorted((row["id"], row["part"]) for row in read.to_arrow_table().to_pylist())
    except Exception as error:
        rows = f"{type(error).__name__}"
    print(f"{name} {values.to_pylist()}: folders {sorted(os.listdir(folder))}, read {rows}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='int64 [1, None]: folders ['\''part=0'\'', '\''part=1'\''], read [(1, 1), (2, 0)]
float64 [1.5, None]: folders ['\''part=0'\'', '\''part=1.5'\''], read [(1, 1.5), (2, 0.0)]
string ['\''a'\'', None]: folders ['\''part='\'', '\''part=a'\''], read [(1, '\''a'\''), (2, '\'''\'')]
bool [True, None]: folders ['\''part=false'\'', '\''part=true'\''], read [(1, True), (2, False)]
date32 [datetime.date(2022, 1, 8), None]: folders ['\''part=1970-01-01'\'', '\''part=2022-01-08'\''], read [(1, datetime.date(2022, 1, 8)), (2, datetime.date(1970, 1, 1))]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

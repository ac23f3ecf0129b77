#!/usr/bin/env bash
# Arrow: a filter of a dataset loses NaN rows of a Parquet file whose other values are all equal, is_nan() included.
#
# One expects: a filter selects the same rows of a Parquet file as of the same table in memory, and count_rows() counts the
#   rows that to_table() returns. Parquet leaves NaN out of its statistics, so "minimum = maximum = 1.0" does not say that
#   every value is 1.0.
# What happens: Arrow takes the statistics as a guarantee that every value is 1.0. `x != 1.0`, `~(x == 1.0)`, `~(x <= 1.0)`
#   and even is_nan(x) are simplified to false before a byte is read, and count_rows(x == 1.0) is 2 although to_table()
#   returns one row. A row group with two distinct numbers is read right, so the answer changes with the data beside NaN.
# Versions: pyarrow 26.0.1.
# Why it matters: pyarrow.dataset is below most Python readers of data lakes, and "find the NaN rows" is how people check
#   sensor data, in which long runs of one value are ordinary.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

x, nan = pc.field("x"), float("nan")
FILTERS = {"x != 1": x != 1.0, "~(x == 1)": ~(x == 1.0), "~(x <= 1)": ~(x <= 1.0), "is_nan(x)": pc.is_nan(x), "x == 1": x == 1.0}
for name, values in (("equal", [1.0, nan]), ("distinct", [1.0, 2.0, nan])):
    rows = pa.table({"k": list(range(len(values))), "x": values})
    pq.write_table(rows, f"{sys.argv[1]}/{name}.parquet")
    dataset = ds.dataset(f"{sys.argv[1]}/{name}.parquet")
    for text, expression in FILTERS.items():
        stored = dataset.to_table(filter=expression)["k"].to_pylist()
        counted = dataset.count_rows(filter=expression)
        print(f"{values} {text}: in memory {rows.filter(expression)['k'].to_pylist()}, Parquet {stored}, counted {counted}")
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder")
echo "$seen"
expected='[1.0, nan] x != 1: in memory [1], Parquet [], counted 0
[1.0, nan] ~(x == 1): in memory [1], Parquet [], counted 0
[1.0, nan] ~(x <= 1): in memory [1], Parquet [], counted 0
[1.0, nan] is_nan(x): in memory [1], Parquet [], counted 0
[1.0, nan] x == 1: in memory [0], Parquet [0], counted 2
[1.0, 2.0, nan] x != 1: in memory [1, 2], Parquet [1, 2], counted 2
[1.0, 2.0, nan] ~(x == 1): in memory [1, 2], Parquet [1, 2], counted 2
[1.0, 2.0, nan] ~(x <= 1): in memory [1, 2], Parquet [1, 2], counted 2
[1.0, 2.0, nan] is_nan(x): in memory [2], Parquet [2], counted 1
[1.0, 2.0, nan] x == 1: in memory [0], Parquet [0], counted 1'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

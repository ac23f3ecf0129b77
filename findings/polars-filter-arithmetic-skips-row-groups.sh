#!/usr/bin/env bash
# Polars: a filter with arithmetic on a column loses rows of Parquet files in which another row overflows.
#
# One expects: scan_parquet(...).filter(condition) returns the rows that the same filter returns in memory. Integers wrap
#   around in Polars, so that `2147483647 + 1` is a negative number: that one row fails `code + 1 > 2`, and the others pass.
# What happens: Polars computes the expression for the least and the greatest value of a row group, and skips the row group
#   if the results exclude a match. If the greatest value wraps around, the "range" has its ends exchanged, and all rows of
#   the row group are lost, those without an overflow too. With `use_statistics=False` they are found.
# Versions: polars 2.1.0.
# Why it matters: the greatest int is a usual placeholder, and unsigned columns (counts, stocks, identifiers of a database)
#   wrap around at zero: `10 - stock == 7` is plain arithmetic as long as no stock is above 10. The answer depends on which
#   rows share a file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0
cat >"$folder/program.py" <<'PY'
import sys

import polars as pl

col = pl.col
QUERIES = {
    "code + 1 > 2": (pl.Series("code", [5, 7, 2**31 - 1], dtype=pl.Int32), col("code") + 1 > 2),
    "code + 1 > 2, no placeholder": (pl.Series("code", [5, 7, 9], dtype=pl.Int32), col("code") + 1 > 2),
    "-code < 0": (pl.Series("code", [5, 7, -(2**31)], dtype=pl.Int32), -col("code") < 0),
    "10 - stock == 7": (pl.Series("stock", [3, 8, 12], dtype=pl.UInt32), 10 - col("stock") == 7),
    "10 - stock == 7, none above 10": (pl.Series("stock", [3, 8, 9], dtype=pl.UInt32), 10 - col("stock") == 7),
}
for text, (values, condition) in QUERIES.items():
    rows = pl.DataFrame(values)
    path = f"{sys.argv[1]}/rows.parquet"
    rows.write_parquet(path)
    lazy = pl.scan_parquet(path).filter(condition).collect()
    plain = pl.scan_parquet(path, use_statistics=False).filter(condition).collect()
    found = [frame.to_series().to_list() for frame in (rows.filter(condition), lazy, plain)]
    print(f"{values.to_list()} {text}: in memory {found[0]}, scan_parquet {found[1]}, without statistics {found[2]}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='[5, 7, 2147483647] code + 1 > 2: in memory [5, 7], scan_parquet [], without statistics [5, 7]
[5, 7, 9] code + 1 > 2, no placeholder: in memory [5, 7, 9], scan_parquet [5, 7, 9], without statistics [5, 7, 9]
[5, 7, -2147483648] -code < 0: in memory [5, 7, -2147483648], scan_parquet [5, 7, -2147483648], without statistics [5, 7, -2147483648]
[3, 8, 12] 10 - stock == 7: in memory [3], scan_parquet [], without statistics [3]
[3, 8, 9] 10 - stock == 7, none above 10: in memory [3], scan_parquet [3], without statistics [3]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# DuckDB: a filter or max() on a Parquet file of Arrow leaves out NaN, which DuckDB itself orders above all numbers.
#
# One expects: the same query gives the same answer from a table in memory and from a Parquet file with the same rows. The
#   Parquet format says that statistics leave NaN out, so a reader that orders NaN last must not trust the maximum.
# What happens: DuckDB takes the maximum as it stands. `x > 36`, `x >= 2.5`, `x = 'nan'` and `x in (1, 'nan')` lose the row,
#   max(x) is 2.0, and `count(*) filter (x > 36)` is 1 while `sum(case when x > 36 ...)` over the same file is 0. Files that DuckDB wrote itself are right, as it writes no statistics for such a column.
# Versions: duckdb 1.5.5, pyarrow 26.0.1.
# Why it matters: DuckDB is the usual second engine to check a lake with; here it reports a difference where there is none,
#   or hides one. Cast the column in the condition (`x + 0 > 36`) to keep statistics out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

rows = pa.table({"k": [1, 2, 3], "x": [1.0, 2.0, float("nan")]})
pq.write_table(rows, f"{sys.argv[1]}/arrow.parquet")
connection = duckdb.connect()
connection.sql("create table memory_table as select * from rows")
connection.sql(f"copy memory_table to '{sys.argv[1]}/duckdb.parquet'")
sources = {"memory": "memory_table", "of DuckDB": f"'{sys.argv[1]}/duckdb.parquet'", "of Arrow": f"'{sys.argv[1]}/arrow.parquet'"}
AGGREGATES = ("max(x)", "count(*) filter (x > 36)", "sum(case when x > 36 then 1 else 0 end)")
conditions = ("x > 36", "x >= 2.5", "x = 'nan'::double", "x in (1, 'nan'::double)", "x + 0 > 36", "isnan(x)")
for name, source in sources.items():
    keys = {
        condition: [key for (key,) in connection.sql(f"select k from {source} where {condition} order by k").fetchall()]
        for condition in conditions
    }
    aggregates = [connection.sql(f"select {aggregate} from {source}").fetchone()[0] for aggregate in AGGREGATES]
    print(f"{name}: {keys}; {aggregates}")
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder")
echo "$seen"
right="{'x > 36': [3], 'x >= 2.5': [3], \"x = 'nan'::double\": [3], \"x in (1, 'nan'::double)\": [1, 3], 'x + 0 > 36': [3], 'isnan(x)': [3]}"
wrong="{'x > 36': [], 'x >= 2.5': [], \"x = 'nan'::double\": [], \"x in (1, 'nan'::double)\": [1], 'x + 0 > 36': [3], 'isnan(x)': [3]}"
expected="memory: $right; [nan, 1, 1]
of DuckDB: $right; [nan, 1, 1]
of Arrow: $wrong; [2.0, 1, 0]"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

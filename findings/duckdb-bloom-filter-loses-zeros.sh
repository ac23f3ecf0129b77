#!/usr/bin/env bash
# DuckDB: `x = 0` finds no row in a Parquet file that DuckDB wrote itself, when the zeros of the column are -0.0.
#
# One expects: DuckDB takes 0.0 and -0.0 for equal, so a filter gives the rows that the same filter gives on a table.
# What happens: DuckDB writes a Bloom filter for each column that it stores with a dictionary, by default. The filter holds
#   the hash of the bits of -0.0, and the reader asks it for the hash of the constant. `x = 0`, `x = 0.0` and even `x = -0.0`
#   (a decimal constant, which has no negative zero) skip the row group; `x between 0 and 0` and `x + 0 = 0` find the rows.
#   The same happens with a file of pyarrow 26, which writes such filters when `bloom_filter_options` asks for them. Polars,
#   which reads the filter of neither, finds them.
# Versions: duckdb 1.5.5, pyarrow 26.0.1, polars 2.1.0.
# Why it matters: a product such as -1 * 0 is -0.0, so a column of balances or deltas has such rows. They vanish between
#   `copy` and the next query, and a check of a lake with DuckDB reports rows as missing that are there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 pyarrow==26.0.1 polars==2.1.0
cat >"$folder/program.py" <<'PY'
import sys
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

folder = sys.argv[1]
connection = duckdb.connect()
connection.sql("create table sales as select i, case i % 3 when 0 then -1 * 0::double else i % 3 end x from range(3000) r(i)")
connection.sql(f"copy sales to '{folder}/duckdb.parquet'")
rows = connection.sql("select * from sales").to_arrow_table()
pq.write_table(rows, f"{folder}/arrow.parquet")
pq.write_table(rows, f"{folder}/arrow-bloom.parquet", bloom_filter_options={"x": True})
sources = {"table": "sales", **{name: f"'{folder}/{name}.parquet'" for name in ("duckdb", "arrow", "arrow-bloom")}}
conditions = ("x = 0", "x = 0.0", "x = -0.0", "x in (0.0)", "x = -0.0::double", "x between 0 and 0", "x + 0 = 0")
for name, source in sources.items():
    counts = {test: connection.sql(f"select count(*) from {source} where {test}").fetchone()[0] for test in conditions}
    print(f"{name}: {counts}")
for name in ("duckdb", "arrow-bloom"):
    print(f"Polars, {name}:", polars.scan_parquet(f"{folder}/{name}.parquet").filter(polars.col("x") == 0.0).collect().height)
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder")
echo "$seen"
expected=$(cat <<'SEEN'
table: {'x = 0': 1000, 'x = 0.0': 1000, 'x = -0.0': 1000, 'x in (0.0)': 1000, 'x = -0.0::double': 1000, 'x between 0 and 0': 1000, 'x + 0 = 0': 1000}
duckdb: {'x = 0': 0, 'x = 0.0': 0, 'x = -0.0': 0, 'x in (0.0)': 0, 'x = -0.0::double': 1000, 'x between 0 and 0': 1000, 'x + 0 = 0': 1000}
arrow: {'x = 0': 1000, 'x = 0.0': 1000, 'x = -0.0': 1000, 'x in (0.0)': 1000, 'x = -0.0::double': 1000, 'x between 0 and 0': 1000, 'x + 0 = 0': 1000}
arrow-bloom: {'x = 0': 0, 'x = 0.0': 0, 'x = -0.0': 0, 'x in (0.0)': 0, 'x = -0.0::double': 1000, 'x between 0 and 0': 1000, 'x + 0 = 0': 1000}
Polars, duckdb: 1000
Polars, arrow-bloom: 1000
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# DuckDB reads the partition `name=Null`, which it wrote for a person of that name, as a null.
#
# One expects: the value of a partition column is the text in the name of the folder; a null has a name of its own,
#   `__HIVE_DEFAULT_PARTITION__`, which DuckDB writes. A type that is given (`hive_types`) leaves nothing to guess.
# What happens: DuckDB takes NULL in upper, lower or mixed case for a null, for VARCHAR and with the type given, too. `name =
#   'NULL'` finds no row. Arrow and Polars read the text.
# Versions: duckdb 1.5.5, polars 2.1.0, pyarrow 26.0.1.
# Why it matters: Null is a family name, NULL is a code and an enum value in many sources, and "null" is the text that other
#   tools write. After a round trip through DuckDB these rows count as rows without a value, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 polars==2.1.0 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import os
import sys

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds

folder = f"{sys.argv[1]}/people"
names = pa.table({"id": [1, 2, 3, 4], "name": ["Ada", "Null", "NULL", "null"]})
duckdb.sql(f"COPY names TO '{folder}' (FORMAT parquet, PARTITION_BY (name))")
print("folders:", sorted(os.listdir(folder)))
for text, options in (("", ""), (", type given", ", hive_types = {'name': VARCHAR}")):
    source = f"read_parquet('{folder}/**/*.parquet', hive_partitioning = true{options})"
    print(f"DuckDB{text}:", duckdb.sql(f"SELECT id, name FROM {source} ORDER BY id").fetchall())
    print(f"DuckDB{text}, name = 'NULL':", duckdb.sql(f"SELECT id FROM {source} WHERE name = 'NULL'").fetchall())
partitioning = ds.partitioning(pa.schema([("name", pa.string())]), flavor="hive")
read = ds.dataset(folder, partitioning=partitioning).to_table().sort_by("id")
print("Arrow:", list(zip(read["id"].to_pylist(), read["name"].to_pylist())))
frame = polars.scan_parquet(folder, hive_schema={"name": polars.String}).collect().sort("id")
print("Polars:", frame.rows())
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='folders: ['\''name=Ada'\'', '\''name=NULL'\'', '\''name=Null'\'', '\''name=null'\'']
DuckDB: [(1, '\''Ada'\''), (2, None), (3, None), (4, None)]
DuckDB, name = '\''NULL'\'': []
DuckDB, type given: [(1, '\''Ada'\''), (2, None), (3, None), (4, None)]
DuckDB, type given, name = '\''NULL'\'': []
Arrow: [(1, '\''Ada'\''), (2, '\''Null'\''), (3, '\''NULL'\''), (4, '\''null'\'')]
Polars: [(1, '\''Ada'\''), (2, '\''Null'\''), (3, '\''NULL'\''), (4, '\''null'\'')]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# PyIceberg: a filter on a column that was widened from float to double loses rows of the files written before.
#
# One expects: Iceberg allows float to become double without a rewrite, so `f > 0.1` gives each row whose value, as a double,
#   is above 0.1. The float nearest to 0.1 is 0.100000001490116 as a double, which is above.
# What happens: the scan binds the filter to the schema of each file, where the constant becomes a float too. `f > 0.1` and
#   `f != 0.1` lose the row, and `f = 0.1` gives it. `delete("f > 0.1")` compares doubles: it removes a row that a scan with
#   the same filter does not show.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: types widen in every lake that lives, and who looks with a scan at what a delete will remove sees other rows.
#   Filter the Arrow table of an unfiltered scan.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("sales")
table = catalog.create_table("sales.rates", Schema(NestedField(1, "k", LongType()), NestedField(2, "f", FloatType())))
table.append(pa.table({"k": [1, 2], "f": pa.array([0.1, -2.5], pa.float32())}))
with table.update_schema() as update:
    update.update_column("f", DoubleType())
table.append(pa.table({"k": [3, 4], "f": [0.1, 2.5]}))
rows = table.scan().to_arrow().sort_by("k")
print("rows:", rows.to_pydict())
for condition, expression in {"f > 0.1": pc.field("f") > 0.1, "f != 0.1": pc.field("f") != 0.1, "f = 0.1": pc.field("f") == 0.1}.items():
    kept = sorted(table.scan(row_filter=condition).to_arrow()["k"].to_pylist())
    print(f"{condition}: scan {kept}, Arrow {rows.filter(expression)['k'].to_pylist()}")
table.delete("f > 0.1")
print("after delete of f > 0.1:", table.scan().to_arrow().sort_by("k").to_pydict())
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder" 2>/dev/null)
echo "$seen"
expected=$(cat <<'SEEN'
rows: {'k': [1, 2, 3, 4], 'f': [0.10000000149011612, -2.5, 0.1, 2.5]}
f > 0.1: scan [4], Arrow [1, 4]
f != 0.1: scan [2, 4], Arrow [1, 2, 4]
f = 0.1: scan [1, 3], Arrow [3]
after delete of f > 0.1: {'k': [2, 3], 'f': [-2.5, 0.1]}
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

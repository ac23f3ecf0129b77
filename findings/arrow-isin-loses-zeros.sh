#!/usr/bin/env bash
# Arrow: `isin([0.0, 1.0])` finds no row in a Parquet file in which every value is 0.0; `== 0.0` finds them all.
#
# One expects: a filter of a dataset selects the rows of a Parquet file that it selects of the same table in memory. All
#   values and both constants are plain 0.0 and 1.0; no -0.0 and no NaN is anywhere.
# What happens: the Parquet format asks writers to record a least zero as -0.0 and a greatest zero as 0.0. Arrow's dataset
#   takes equal bounds for a guarantee that each value is -0.0, and looks this value up in the list, where -0.0 is another
#   value than 0.0: the filter is simplified to false before a row is read. With another value beside the zeros the rows are
#   found. `pandas.read_parquet(filters=...)` and scans of PyIceberg take this path. A delete of PyIceberg judges the file by
#   its bounds in the manifest, and removes the rows that a scan with the same filter does not find.
# Versions: pyarrow 26.0.1, pandas 3.1.1, pyiceberg 0.12.0.
# Why it matters: columns that are all zero are common (discounts, deltas, errors of one day or of one partition). Their rows
#   are missing from results, without an error, and only in the files where nothing else happened.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.1.1 \
    "pyiceberg[sql-sqlite,pyarrow]==0.12.0"
cat >"$folder/program.py" <<'PY'
import sys

import pandas
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

discount = pc.field("discount")
for values in ([0.0, 0.0], [0.0, 0.0, 0.5]):
    rows = pa.table({"discount": values})
    path = f"{sys.argv[1]}/rows.parquet"
    pq.write_table(rows, path)
    for text, expression in (("== 0", discount == 0.0), ("isin([0, 1])", discount.isin([0.0, 1.0]))):
        stored = ds.dataset(path).to_table(filter=expression).num_rows
        print(f"{values} {text}: {rows.filter(expression).num_rows} rows in memory, {stored} in Parquet")
    of_pandas = pandas.read_parquet(path, filters=[("discount", "in", [0.0, 1.0])])
    print(f"{values} in pandas: {len(of_pandas)} rows")
catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
for name, values in (("zeros", [0.0, 0.0]), ("others", [0.0, 0.0, 0.5])):
    rows = pa.table({"discount": values})
    table = catalog.create_table(f"n.{name}", rows.schema)
    table.append(rows)
    scanned = table.scan(In("discount", [0.0, 1.0])).to_arrow().num_rows
    table.delete(In("discount", [0.0, 1.0]))
    print(f"{values} in PyIceberg: a scan finds {scanned} rows, a delete leaves {table.scan().to_arrow().num_rows}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='[0.0, 0.0] == 0: 2 rows in memory, 2 in Parquet
[0.0, 0.0] isin([0, 1]): 2 rows in memory, 0 in Parquet
[0.0, 0.0] in pandas: 0 rows
[0.0, 0.0, 0.5] == 0: 2 rows in memory, 2 in Parquet
[0.0, 0.0, 0.5] isin([0, 1]): 2 rows in memory, 2 in Parquet
[0.0, 0.0, 0.5] in pandas: 2 rows
[0.0, 0.0] in PyIceberg: a scan finds 0 rows, a delete leaves 0
[0.0, 0.0, 0.5] in PyIceberg: a scan finds 2 rows, a delete leaves 1'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

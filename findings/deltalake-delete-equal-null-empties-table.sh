#!/usr/bin/env bash
# deltalake: `delete("x = NULL")` removes every row of the table, although `select ... where x = NULL` finds none.
#
# One expects: a comparison with NULL is unknown in SQL, so that such a filter matches no row, and a delete removes what a
#   query with the same filter finds.
# What happens: `x = NULL`, `x > NULL` and `NOT (x = NULL)` match nothing in a query, and everything in a delete. In a table
#   that is partitioned by x, a part of the filter is enough: `x = 1 OR x = NULL` removes all rows, and a query with `x IN
#   (1, NULL)` returns all rows, while a delete with it removes the row with 1. `delete("false")` and `delete("NULL")` remove
#   nothing.
# Versions: deltalake 1.6.6, pyarrow 26.0.1.
# Why it matters: a program that puts a missing value into the text of a filter (`f"customer = {value or 'NULL'}"`) empties
#   the table in one commit without an error. Only the older version of the table has the rows then, until they are vacuumed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import os
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

FILTERS = ("x = NULL", "x > NULL", "NOT (x = NULL)", "x = 1 AND x = NULL", "x = 1 OR x = NULL", "x IN (1, NULL)")
for number, layout in enumerate(([], ["x"])):
    for at, text in enumerate(FILTERS):
        path = f"{sys.argv[1]}/{number}-{at}"
        write_deltalake(path, pa.table({"x": [1, 2, None], "v": ["a", "b", "c"]}), partition_by=layout)
        table = DeltaTable(path)
        found = QueryBuilder().register("t", table).execute(f"select v from t where {text} order by v").read_all()
        table.delete(text)
        left = sorted(DeltaTable(path).to_pyarrow_table()["v"].to_pylist())
        kind = "partitioned by x" if layout else "not partitioned"
        print(f"{kind}, {text}: select finds {pa.table(found)['v'].to_pylist()}, delete leaves {left}")
sys.stdout.flush()
os._exit(0)  # the threads of the package sometimes abort the end of the interpreter
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='not partitioned, x = NULL: select finds [], delete leaves []
not partitioned, x > NULL: select finds [], delete leaves []
not partitioned, NOT (x = NULL): select finds [], delete leaves []
not partitioned, x = 1 AND x = NULL: select finds ['\''a'\''], delete leaves ['\''a'\'', '\''b'\'', '\''c'\'']
not partitioned, x = 1 OR x = NULL: select finds ['\''a'\''], delete leaves ['\''b'\'', '\''c'\'']
not partitioned, x IN (1, NULL): select finds ['\''a'\''], delete leaves ['\''b'\'', '\''c'\'']
partitioned by x, x = NULL: select finds [], delete leaves []
partitioned by x, x > NULL: select finds [], delete leaves []
partitioned by x, NOT (x = NULL): select finds [], delete leaves []
partitioned by x, x = 1 AND x = NULL: select finds ['\''a'\''], delete leaves ['\''b'\'', '\''c'\'']
partitioned by x, x = 1 OR x = NULL: select finds ['\''a'\'', '\''b'\'', '\''c'\''], delete leaves []
partitioned by x, x IN (1, NULL): select finds ['\''a'\'', '\''b'\'', '\''c'\''], delete leaves ['\''b'\'', '\''c'\'']'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

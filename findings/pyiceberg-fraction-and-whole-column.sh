#!/usr/bin/env bash
# PyIceberg: `amount > 1.5` does not find 2 in a column of whole numbers, and `amount = 1.5` does.
#
# One expects: a comparison of a whole number with 1.5 is one of numbers, as in SQL, or an error; a constant is not changed.
#   GreaterThan with a Python float raises "Cannot convert DoubleLiteral into long".
# What happens: the parser of filters makes a decimal of 1.5, and PyIceberg rounds it to the column's type, half to even:
#   `amount > 1.5` is evaluated as `amount > 2`, `amount < 2.5` as `amount < 2`, and `amount = 1.5` as `amount = 2`. A text
#   is cut off instead: '2.5' is 2. delete() removes these rows.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: a threshold that is computed (an average, a percentile) has a fraction. The scan then leaves out rows at
#   the boundary, and a delete of values that do not exist removes rows that do.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
rows = pa.table({"amount": [1, 2, 3]})
FILTERS = ("amount > 1.5", "amount < 2.5", "amount = 1.5", "amount = 2.5", "amount != 1.5", "amount between 0.5 and 2.4",
           "amount >= 2.5", "amount > '2.5'", "amount = '2.5'")
for number, text in enumerate(FILTERS):
    table = catalog.create_table(f"n.t{number}", rows.schema)
    table.append(rows)
    found = table.scan(text).to_arrow()["amount"].to_pylist()
    table.delete(text)
    print(f"{text}: a scan finds {found}, a delete leaves {table.scan().to_arrow()['amount'].to_pylist()}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='amount > 1.5: a scan finds [3], a delete leaves [1, 2]
amount < 2.5: a scan finds [1], a delete leaves [2, 3]
amount = 1.5: a scan finds [2], a delete leaves [1, 3]
amount = 2.5: a scan finds [2], a delete leaves [1, 3]
amount != 1.5: a scan finds [1, 3], a delete leaves [2]
amount between 0.5 and 2.4: a scan finds [1, 2], a delete leaves [3]
amount >= 2.5: a scan finds [2, 3], a delete leaves [1]
amount > '\''2.5'\'': a scan finds [3], a delete leaves [1, 2]
amount = '\''2.5'\'': a scan finds [2], a delete leaves [1, 3]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

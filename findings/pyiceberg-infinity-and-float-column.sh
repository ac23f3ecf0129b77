#!/usr/bin/env bash
# PyIceberg: infinity is not found in a float column, and `v < inf` matches infinity, NaN and null.
#
# One expects: a float column holds infinity, as IEEE 754 defines, and a filter compares with it as in a double column.
# What happens: a Python float becomes a double constant, and PyIceberg takes infinity, like every number above the greatest
#   finite float, for one that no float can reach. So `= inf`, `>= inf` and `> 1e39` are false for all rows, infinity
#   included, and `< inf` and `> -inf` are true for all rows, those with infinity, NaN and null included. delete() with the
#   latter empties the table. A double column is compared right. (`i < 3000000000` for an int column matches nulls in the
#   same way.)
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: infinity is what a division by zero leaves in measurements and features, for which float is the usual type.
#   A check for it finds nothing, and a clean-up that keeps "all finite values" keeps or removes everything.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from math import inf, nan

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
values = [1.0, inf, -inf, None, nan]
FILTERS = {"= inf": EqualTo("v", inf), ">= inf": GreaterThanOrEqual("v", inf), "> 1e39": GreaterThan("v", 1e39),
           "<= -inf": LessThanOrEqual("v", -inf), "< inf": LessThan("v", inf), "> -inf": GreaterThan("v", -inf)}
for kind in (pa.float32(), pa.float64()):
    for number, (text, condition) in enumerate(FILTERS.items()):
        rows = pa.table({"v": pa.array(values, kind)})
        table = catalog.create_table(f"n.{kind}{number}", rows.schema)
        table.append(rows)
        found = table.scan(condition).to_arrow()["v"].to_pylist()
        table.delete(condition)
        print(f"{kind} v {text}: a scan finds {found}, a delete leaves {table.scan().to_arrow()['v'].to_pylist()}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='float v = inf: a scan finds [], a delete leaves [1.0, inf, -inf, None, nan]
float v >= inf: a scan finds [], a delete leaves [1.0, inf, -inf, None, nan]
float v > 1e39: a scan finds [], a delete leaves [1.0, inf, -inf, None, nan]
float v <= -inf: a scan finds [], a delete leaves [1.0, inf, -inf, None, nan]
float v < inf: a scan finds [1.0, inf, -inf, None, nan], a delete leaves []
float v > -inf: a scan finds [1.0, inf, -inf, None, nan], a delete leaves []
double v = inf: a scan finds [inf], a delete leaves [1.0, -inf, None, nan]
double v >= inf: a scan finds [inf], a delete leaves [1.0, -inf, None, nan]
double v > 1e39: a scan finds [inf], a delete leaves [1.0, -inf, None, nan]
double v <= -inf: a scan finds [-inf], a delete leaves [1.0, inf, None, nan]
double v < inf: a scan finds [1.0, -inf], a delete leaves [inf, None, nan]
double v > -inf: a scan finds [1.0, inf], a delete leaves [-inf, None, nan]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

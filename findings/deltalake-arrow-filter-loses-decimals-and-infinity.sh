#!/usr/bin/env bash
# Filters of deltalake's Arrow reader lose decimals of more than 16 digits, and infinity: the log knows them as rounded numbers.
#
# One expects: to_pyarrow_table(filters=...) finds the rows that a filter of the whole table finds, as the package's own SQL does.
# What happens: the log keeps the bounds of a file as JSON numbers. Bounds of a decimal are written through a double, so that
#   the least and greatest value of a file are none of its values; and JSON has no infinity, so the bound of a file with one is
#   left out. With what is left the Arrow reader takes the file for one that cannot match: an equal decimal and a number
#   above 1e9 are not found. QueryBuilder and delete() of the same package find them.
# Versions: deltalake 1.6.6, pyarrow 26.0.1.
# Why it matters: rows are left out in silence, in the reader that pandas, Arrow and their users take.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import math
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

LONG = Decimal("123456789012345678.91")
CASES = (
    ("a decimal of 5 digits", pa.decimal128(20, 2), [Decimal("123.91")], ("=", Decimal("123.91"))),
    ("a decimal of 20 digits", pa.decimal128(20, 2), [LONG], ("=", LONG)),
    ("a double", pa.float64(), [2e9, 2.0], (">", 1e9)),
    ("infinity", pa.float64(), [math.inf, 2.0], (">", 1e9)),
)
for number, (name, kind, values, (operator, value)) in enumerate(CASES):
    path = f"{sys.argv[1]}/table{number}"
    write_deltalake(path, pa.table({"v": pa.array(values, kind)}))
    table = DeltaTable(path)
    literal = f"cast('{value}' as decimal(20, 2))" if isinstance(value, Decimal) else value
    sql = QueryBuilder().register("t", table).execute(f"SELECT v FROM t WHERE v {operator} {literal}").read_all()
    arrow = table.to_pyarrow_table(filters=[("v", operator.replace("=", "=="), value)])
    column = table.to_pyarrow_table()["v"]
    compare = pc.equal if operator == "=" else pc.greater
    afterwards = pc.sum(compare(column, pa.scalar(value, kind))).as_py()
    print(f"{name}: {afterwards} row when all are read and filtered, {len(sql)} by SQL, {arrow.num_rows} by filters")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='a decimal of 5 digits: 1 row when all are read and filtered, 1 by SQL, 1 by filters
a decimal of 20 digits: 1 row when all are read and filtered, 1 by SQL, 0 by filters
a double: 1 row when all are read and filtered, 1 by SQL, 1 by filters
infinity: 1 row when all are read and filtered, 1 by SQL, 0 by filters'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

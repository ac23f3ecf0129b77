#!/usr/bin/env bash
# PyIceberg: `i IN (3000000000, 5)` on an int column returns the rows where i is 2147483647.
#
# One expects: no int equals 3000000000, so that the list finds the rows where i is 5, as i = 3000000000 finds none.
# What happens: a literal beyond the type becomes IntAboveMax, whose value is the greatest int. Comparisons look out for it;
#   lists take its value: 2147483647 is in the list, and NOT IN leaves out the rows that hold it. Below the
#   least int it is the same.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: scans return rows that do not match, and delete(...) removes them; 2147483647 is a usual placeholder.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, In, NotIn

catalog = SqlCatalog("lake", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
rows = pa.table({"i": pa.array([5, 6, 2147483647, -2147483648], pa.int32())})
table = catalog.create_table("n.t", schema=rows.schema)
table.append(rows)
for test in (EqualTo("i", 3000000000), In("i", [3000000000, 5]), In("i", [-3000000000, 5]), NotIn("i", [3000000000, 5])):
    print(f"scan: {test}: {table.scan(row_filter=test).to_arrow()['i'].to_pylist()}")
table.delete(In("i", [3000000000, 5]))
print(f"scan: after delete(i in (3000000000, 5)): {table.scan().to_arrow()['i'].to_pylist()}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^scan' <<<"$seen")
echo "$seen"
expected="scan: EqualTo(term=Reference(name='i'), literal=LongLiteral(3000000000)): []
scan: In(Reference(name='i'), {3000000000, 5}): [5, 2147483647]
scan: In(Reference(name='i'), {-3000000000, 5}): [5, -2147483648]
scan: NotIn(Reference(name='i'), {3000000000, 5}): [6, -2147483648]
scan: after delete(i in (3000000000, 5)): [6, -2147483648]"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# One negative decimal in a partition column of the deltalake package makes the whole table unreadable.
#
# One expects: a table can be partitioned by a decimal column, as Delta's protocol says, and -1.05 is a value like 1.05.
# What happens: the package writes the value into the log as two signed halves, "-1.-5", and lands that commit. It cannot read
#   its own text back. From then on each read, append and delete of the table raises "Failed to parse value '-1.-5' as
#   'decimal(5,2)'", also for the rows that were there before. Negative values without a fraction, such as -2.00, are right.
# Versions: deltalake 1.6.6, pyarrow 26.0.1.
# Why it matters: amounts and balances are decimals, and the first refund closes the table; only an edit of the log opens it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import json
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

for number, value in enumerate(("1.05", "-2.00", "-1.05", "-0.50")):
    table = f"{sys.argv[1]}/table{number}"
    for balance in ("3.00", value):
        rows = pa.table({"account": [1], "balance": pa.array([Decimal(balance)], pa.decimal128(5, 2))})
        try:
            write_deltalake(table, rows, mode="append", partition_by=["balance"])
        except Exception:  # the commit stands in the log all the same, as the lines below show
            pass
    last = sorted(Path(table, "_delta_log").glob("*.json"))[-1]
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    written = [action["add"]["partitionValues"]["balance"] for action in actions if "add" in action]
    try:
        seen = f"{DeltaTable(table).to_pyarrow_table().num_rows} of 2 rows are read"
    except Exception as error:
        seen = str(error).splitlines()[0]
    print(f"{value} is {written[0]!r} in commit {int(last.stem)}: {seen}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected="1.05 is '1.05' in commit 1: 2 of 2 rows are read
-2.00 is '-2.00' in commit 1: 2 of 2 rows are read
-1.05 is '-1.-5' in commit 1: Kernel error: Failed to parse value '-1.-5' as 'decimal(5,2)'
-0.50 is '0.-50' in commit 1: Kernel error: Failed to parse value '0.-50' as 'decimal(5,2)'"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

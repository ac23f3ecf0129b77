#!/usr/bin/env bash
# PyIceberg: a write to a branch that does not exist begins an empty branch; Iceberg's Java library begins it at main.
#
# One expects: table.append(rows, branch="audit") gives the branch the rows of main and the new ones, as a write of Spark with
#   spark.wap.branch does, or an error because there is no such branch.
# What happens: the new snapshot has no parent and none of the rows of main. A typo in the name is enough.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: write-audit-publish. The audit counts the new rows only; main cannot be fast-forwarded to the branch, because
#   it is not an ancestor; and whoever sets main to the branch instead has dropped all rows of the table. Create the branch
#   first: table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "pyiceberg[sql-sqlite,pyarrow,pyiceberg-core]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("lake", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
for name in ("made before", "made by the write"):
    table = catalog.create_table(f"n.t{len(name)}", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))
    if name == "made before":
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    table.append(pa.table({"id": [4]}), branch="audit")
    head = table.metadata.snapshot_by_name("audit")
    rows = table.scan().use_ref("audit").to_arrow().num_rows
    print(f"branch {name}: {rows} rows, main is its parent: {head.parent_snapshot_id == table.current_snapshot().snapshot_id}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep '^branch' <<<"$seen")
echo "$seen"
expected='branch made before: 4 rows, main is its parent: True
branch made by the write: 1 rows, main is its parent: False'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

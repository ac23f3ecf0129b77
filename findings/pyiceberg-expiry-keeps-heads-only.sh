#!/usr/bin/env bash
# PyIceberg: expire_snapshots().older_than() keeps the heads of branches and tags only, whatever the retention settings say.
#
# One expects: "history.expire.min-snapshots-to-keep" of the table and "min-snapshots-to-keep" of a branch, which the format
#   defines for the expiry of snapshots, keep the newest snapshots of a branch, as Iceberg's Java library does with the same call.
# What happens: every snapshot before the time expires that is not itself the head of a branch or a tag. Neither the settings of
#   the table nor those of main or of another branch count.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: readers of increments and of changes, and rollbacks, need the snapshots between two heads: a table of which 10
#   snapshots were to be kept has one after a nightly expiry with PyIceberg. Choose the snapshots yourself, by by_ids().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "pyiceberg[sql-sqlite,pyarrow,pyiceberg-core]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from datetime import datetime, timedelta
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("lake", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
table = catalog.create_table(
    "n.t", pa.schema([("id", pa.int64())]), properties={"history.expire.min-snapshots-to-keep": "10"}
)
rows = pa.table({"id": [1]})
for _ in range(3):
    table.append(rows)
head = table.current_snapshot().snapshot_id
table.manage_snapshots().create_branch(head, "audit").commit()
for name in ("main", "audit"):
    for _ in range(3):
        table.append(rows, branch=name)
    newest = table.metadata.refs[name].snapshot_id
    # writes of this version remove the setting, so it is set after them
    table.manage_snapshots().create_branch(newest, name, min_snapshots_to_keep=5).commit()


def line(name):
    """How many snapshots of a branch are retained."""
    known = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    at, count = table.metadata.refs[name].snapshot_id, 0
    while at in known:
        at, count = known[at].parent_snapshot_id, count + 1
    return count


print("settings:", table.properties["history.expire.min-snapshots-to-keep"],
      [table.metadata.refs[name].min_snapshots_to_keep for name in ("main", "audit")])
print("before:", line("main"), line("audit"))
table.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(minutes=1)).commit()
table = catalog.load_table("n.t")
print("after:", line("main"), line("audit"))
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='settings: 10 [5, 5]
before: 6 6
after: 1 1'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

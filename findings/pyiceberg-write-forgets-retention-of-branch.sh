#!/usr/bin/env bash
# PyIceberg: a write to a branch removes the branch's retention settings, those of main too.
#
# One expects: a branch that was created with "retain 30 days" keeps this however often it is written: Iceberg's Java library
#   carries the settings from head to head.
# What happens: every append, overwrite and delete of PyIceberg sets the branch to the new snapshot without them.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: the next expire_snapshots follows the table's defaults (5 days, 1 snapshot): history that was to be kept for an
#   audit is deleted, and a branch that was to go after a day stays for ever. Set the properties history.expire.* of the table, or
#   the settings again after each write.
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
table = catalog.create_table("n.t", pa.schema([("id", pa.int64())]))
table.append(pa.table({"id": [1]}))
head, days = table.current_snapshot().snapshot_id, 86_400_000
for name in ("main", "audit"):
    kept = {"max_ref_age_ms": 30 * days} if name == "audit" else {}
    table.manage_snapshots().create_branch(head, name, max_snapshot_age_ms=90 * days, min_snapshots_to_keep=9, **kept).commit()
for when in ("before", "after a write"):
    for name in ("main", "audit"):
        ref = table.metadata.refs[name]
        ages = [age and age // days for age in (ref.max_ref_age_ms, ref.max_snapshot_age_ms)]
        print(f"{name} {when}: days of branch and snapshots {ages}, snapshots {ref.min_snapshots_to_keep}")
        table.append(pa.table({"id": [2]}), branch=name)
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
seen=$(grep -E '^(main|audit)' <<<"$seen")
echo "$seen"
expected='main before: days of branch and snapshots [None, 90], snapshots 9
audit before: days of branch and snapshots [30, 90], snapshots 9
main after a write: days of branch and snapshots [None, None], snapshots None
audit after a write: days of branch and snapshots [None, None], snapshots None'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

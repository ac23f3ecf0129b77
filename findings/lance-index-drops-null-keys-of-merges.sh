#!/usr/bin/env bash
# Lance: rows of a merge whose key is null are inserted, until the key column has an index; then they vanish.
#
# One expects: an index makes a merge faster, and does not change its result. A null key equals no key, so that
#   when_not_matched_insert_all inserts the row, as MERGE does in SQL.
# What happens: with a scalar index on the key, merge_insert looks the keys of the source up in the index. Rows with a null
#   key do not come out of that join, neither as matched nor as not matched. The statistics count them nowhere.
# Versions: pylance 14.0.2.
# Why it matters: the rows of a feed whose key is null are lost without an error from the day on which somebody adds an index.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pylance==14.0.2
cat >"$folder/program.py" <<'PY'
import sys

import lance
import pyarrow as pa


def rows(keys, values):
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.string())})


for name in ("no index", "index"):
    dataset = lance.write_dataset(rows([1, 2], ["old", "old"]), f"{sys.argv[1]}/{name.replace(' ', '-')}")
    if name == "index":
        dataset.create_scalar_index("k", "BTREE")
    merge = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    counts = merge.execute(rows([2, 3, None], ["new", "new", "new"]))
    found = sorted(dataset.to_table().to_pylist(), key=lambda row: (row["k"] is None, row["k"]))
    shown = ", ".join(f"{row['k']} {row['v']}" for row in found)
    print(f"{name}: {counts['num_updated_rows']} updated, {counts['num_inserted_rows']} inserted: {shown}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='no index: 1 updated, 2 inserted: 1 old, 2 new, 3 new, None new
index: 1 updated, 1 inserted: 1 old, 2 new, 3 new'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

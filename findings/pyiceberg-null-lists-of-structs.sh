#!/usr/bin/env bash
# PyIceberg: a null list or map whose values are structs is written, and read, as an empty one.
#
# One expects: a null comes back as null, and an empty list as an empty list, as for lists of numbers and texts.
# What happens: PyIceberg builds such lists again from their offsets when it fits Arrow data to a schema, and leaves out
#   which of them are null. The data file that `append` writes has empty lists, and a scan makes empty lists of the nulls
#   that other engines wrote. Lists of plain values keep their nulls.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: values change without an error, and `is null` finds other rows than before. Where nulls must stay, write
#   and read such columns with another engine.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
struct = pa.struct([("a", pa.int64())])
for name, kind, value in (
    ("numbers", pa.list_(pa.int64()), [1]),
    ("structs", pa.list_(struct), [{"a": 1}]),
    ("map", pa.map_(pa.string(), struct), [("k", {"a": 1})]),
):
    rows = pa.table({"v": pa.array([None, [], value], kind)})
    table = catalog.create_table(f"n.{name}", schema=rows.schema)
    table.append(rows)
    (task,) = table.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    print(f"{name}: file {pq.read_table(path)['v'].to_pylist()[:2]}, scan {table.scan().to_arrow()['v'].to_pylist()[:2]}")
    with_null = rows.cast(pq.read_schema(path))
    pq.write_table(with_null, path)
    assert pq.read_table(path)["v"].to_pylist()[0] is None
    print(f"{name}: scan of a file with null {table.scan().to_arrow()['v'].to_pylist()[:2]}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder")
echo "$seen"
expected='numbers: file [None, []], scan [None, []]
numbers: scan of a file with null [None, []]
structs: file [[], []], scan [[], []]
structs: scan of a file with null [[], []]
map: file [[], []], scan [[], []]
map: scan of a file with null [[], []]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# deltalake reads other bytes from a binary partition column than it wrote.
#
# One expects: a table that is partitioned by a binary column returns the bytes that were written. Delta's protocol defines
#   the text of such a value in the log, with an escape for each byte (`\u0061\u0062` for `ab`), and the package writes it
#   so.
# What happens: the package does not undo the escapes when it reads: each byte comes back as six characters, in
#   to_pyarrow_table() and in SQL. A filter for the written bytes finds nothing, and a merge by the key inserts each row once
#   more. A copy of the rows into another table stores the escapes as values, in partitions named by escapes of escapes.
# Versions: deltalake 1.6.6, pyarrow 26.0.1.
# Why it matters: keys of 16 bytes, hashes and identifiers of tenants are binary. Rows are found under no key that anybody
#   has, and a migration or a rewrite makes the wrong bytes permanent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

rows = pa.table({"id": [1, 2, 3], "tenant": pa.array([b"ab", b"\xff\x00", b"c"])})
write_deltalake(sys.argv[1] + "/t", rows, partition_by=["tenant"])
log = (Path(sys.argv[1]) / "t/_delta_log/00000000000000000000.json").read_text().splitlines()
adds = [json.loads(line)["add"] for line in log if "add" in json.loads(line)]
print("log:", sorted(add["partitionValues"]["tenant"] for add in adds))
table = DeltaTable(sys.argv[1] + "/t")
read = table.to_pyarrow_table()
print("to_pyarrow_table:", sorted(zip(read["id"].to_pylist(), read["tenant"].to_pylist())))
for condition in ("tenant = X'6162'", "length(tenant) > 2"):
    found = QueryBuilder().register("t", table).execute(f"select id from t where {condition} order by id").read_all()
    print(f"select where {condition}:", pa.table(found)["id"].to_pylist())
write_deltalake(sys.argv[1] + "/copy", read, partition_by=["tenant"])
copy = DeltaTable(sys.argv[1] + "/copy").to_pyarrow_table()
print("a copy of the copy:", sorted(zip(copy["id"].to_pylist(), copy["tenant"].to_pylist())))
table.merge(rows, "t.tenant = s.tenant", source_alias="s", target_alias="t").when_not_matched_insert_all().execute()
print("rows after a merge of the same rows:", DeltaTable(sys.argv[1] + "/t").to_pyarrow_table().num_rows)
sys.stdout.flush()
os._exit(0)  # the threads of the package sometimes abort the end of the interpreter
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='log: ['\''\\u0061\\u0062'\'', '\''\\u0063'\'', '\''\\u00FF\\u0000'\'']
to_pyarrow_table: [(1, b'\''\\u0061\\u0062'\''), (2, b'\''\\u00FF\\u0000'\''), (3, b'\''\\u0063'\'')]
select where tenant = X'\''6162'\'': []
select where length(tenant) > 2: [1, 2, 3]
a copy of the copy: [(1, b'\''\\u005C\\u0075\\u0030\\u0030\\u0036\\u0031\\u005C\\u0075\\u0030\\u0030\\u0036\\u0032'\''), (2, b'\''\\u005C\\u0075\\u0030\\u0030\\u0046\\u0046\\u005C\\u0075\\u0030\\u0030\\u0030\\u0030'\''), (3, b'\''\\u005C\\u0075\\u0030\\u0030\\u0036\\u0033'\'')]
rows after a merge of the same rows: 6'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# DuckLake: the sum of a bigint column, kept in a table, has other digits than the sum.
#
# One expects: `create table … as select sum(x)` keeps the number. DuckDB's sum of bigints is a hugeint, and DuckLake's
#   specification has hugeint as the type int128.
# What happens: DuckLake writes hugeint to Parquet as a double, and reads it back as a hugeint: integers beyond 2^53 are
#   rounded, without an error. Few rows lie in the catalog at first (inlined), and are right until they are flushed, so the
#   value changes when maintenance runs. The catalog still says int128. A filter finds
#   the row by the number that it had and by the one that it has.
# Versions: duckdb 1.5.5 with its DuckLake extension (duckdb-extension-ducklake 1.5.5).
# Why it matters: sums of money in cents or of ids are rounded silently; a table with the greatest hugeint cannot be read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 duckdb-extension-ducklake==1.5.5
cat >"$folder/program.py" <<'PY'
import importlib.util
import sys
from pathlib import Path

import duckdb

base = duckdb.connect(config={"allow_unsigned_extensions": "true"})
package = importlib.util.find_spec("duckdb_extension_ducklake").submodule_search_locations[0]
(extension,) = Path(package).rglob("*.duckdb_extension")
base.execute(f"load '{extension}'")
base.execute(f"attach 'ducklake:{sys.argv[1]}.ducklake' as lake (data_path '{sys.argv[1]}')")


def show(name):
    total, kind = base.execute("select total, typeof(total) from lake.sums").fetchone()
    found = [base.execute(f"select count(*) from lake.sums where total = {2**53 + digit}").fetchone()[0] for digit in (0, 1)]
    print(f"{name}: {total} ({kind}); rows with the sum: {found[1]}, with one less: {found[0]}")


base.execute(f"create table payments as select unnest([{2**53}, 1])::bigint as cents")
print(f"sum: {base.execute('select sum(cents) from payments').fetchone()[0]}")
base.execute("create table lake.sums as select sum(cents) as total from payments")
show("inlined")
base.execute("call ducklake_flush_inlined_data('lake')")
show("flushed")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder/lake" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='sum: 9007199254740993
inlined: 9007199254740993 (HUGEINT); rows with the sum: 1, with one less: 0
flushed: 9007199254740992 (HUGEINT); rows with the sum: 1, with one less: 1'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

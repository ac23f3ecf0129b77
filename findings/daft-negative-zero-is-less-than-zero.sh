#!/usr/bin/env bash
# Daft takes -0.0 for another number than 0.0, and for a smaller one, in filters, joins and groups.
#
# One expects: -0.0 = 0.0, as IEEE 754 and SQL say, and as PyIceberg, DuckDB, Polars, DataFusion and Spark judge.
# What happens: of an Iceberg table with 0.0, -0.0 and 1.5, "balance = 0" finds one row of two, "balance >= 0" loses a
#   row, a join by 0.0 misses one, and a group by balance makes two groups of zeros. "balance < 0" finds -0.0 among rows in
#   memory, and nothing in the Iceberg table, whose bounds leave the file out. DuckDB and PyIceberg answer as one expects.
# Versions: daft 0.7.26, pyiceberg 0.12.0, duckdb 1.5.5, pyarrow 25.0.1.
# Why it matters: -0.0 comes out of ordinary arithmetic, such as -1 * 0.0 or rounding -0.001, and a pipeline that filters in
#   Daft leaves such rows out in silence, or takes them for debts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check daft==0.7.26 duckdb==1.5.5 \
    "pyiceberg[pyarrow,sql-sqlite]==0.12.0" pyarrow==25.0.1
cat >"$folder/program.py" <<'PY'
import sys

import daft
import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
rows = pa.table({"id": [1, 2, 3], "balance": [0.0, -0.0, 1.5]})
table = catalog.create_table("n.t", rows.schema)
table.append(rows)
everything = table.scan().to_arrow()
balance = daft.col("balance")
for text, expression, filter_ in (
    ("= 0", balance == 0.0, EqualTo("balance", 0.0)),
    ("< 0", balance < 0.0, LessThan("balance", 0.0)),
    (">= 0", balance >= 0.0, GreaterThanOrEqual("balance", 0.0)),
):
    of_daft = sorted(daft.read_iceberg(table).where(expression).to_pydict()["id"])
    of_pyiceberg = sorted(table.scan(filter_).to_arrow()["id"].to_pylist())
    of_duckdb = sorted(id for (id,) in duckdb.sql(f"SELECT id FROM everything WHERE balance {text}").fetchall())
    print(f"balance {text}: Daft {of_daft}, PyIceberg {of_pyiceberg}, DuckDB {of_duckdb}")
in_memory = daft.from_arrow(everything).where(balance < 0.0).to_pydict()["id"]
print(f"balance < 0 of rows in memory: Daft {in_memory}")
zeros = daft.from_pydict({"balance": [0.0]})
joined = sorted(daft.read_iceberg(table).join(zeros, on="balance").to_pydict()["id"])
in_duckdb = duckdb.sql("SELECT id FROM everything JOIN (SELECT 0.0::DOUBLE balance) USING (balance) ORDER BY id").fetchall()
print(f"join by 0.0: Daft {joined}, DuckDB {[id for (id,) in in_duckdb]}")
groups = daft.read_iceberg(table).groupby("balance").agg(daft.col("id").count()).to_pydict()["id"]
in_duckdb = duckdb.sql("SELECT count(*) FROM everything GROUP BY balance").fetchall()
print(f"rows of groups: Daft {sorted(groups)}, DuckDB {sorted(count for (count,) in in_duckdb)}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='balance = 0: Daft [1], PyIceberg [1, 2], DuckDB [1, 2]
balance < 0: Daft [], PyIceberg [], DuckDB []
balance >= 0: Daft [1, 3], PyIceberg [1, 2, 3], DuckDB [1, 2, 3]
balance < 0 of rows in memory: Daft [2]
join by 0.0: Daft [1], DuckDB [1, 2]
rows of groups: Daft [1, 1, 1], DuckDB [1, 2]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

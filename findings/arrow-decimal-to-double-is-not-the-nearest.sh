#!/usr/bin/env bash
# Arrow: a cast from decimal to double misses the nearest double for one value in seven.
#
# One expects: 84700.54 as a decimal cast to double is the double 84700.54, as Python, DuckDB, Polars and SQL make it.
# What happens: Arrow divides the digits in steps that each round, so 14 of 100 amounts with two decimals come out one bit
#   off (84700.54000000001). It is the same for decimal64, decimal128 and decimal256, and worse with more decimals.
# Versions: pyarrow 26.0.1; for comparison duckdb 1.5.5, polars 2.1.0.
# Why it matters: a decimal column that is compared, joined or looked up against a double column after such a cast does not
#   find rows that are equal, and nothing fails.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 duckdb==1.5.5 polars==2.1.0
cat >"$folder/program.py" <<'PY'
from decimal import Decimal
import duckdb
import polars
import pyarrow as pa

amounts = [Decimal(cents * 997) / 100 for cents in range(100_000)]


def wrong(doubles):
    return sum(double != float(amount) for amount, double in zip(amounts, doubles))


table = pa.table({"amount": pa.array(amounts, pa.decimal128(12, 2))})
by_duckdb = [double for (double,) in duckdb.from_arrow(table).project("amount::double").fetchall()]
by_polars = polars.from_arrow(table)["amount"].cast(polars.Float64)
print("of 100000 amounts, wrong by DuckDB", wrong(by_duckdb), "by Polars", wrong(by_polars))
for kind in (pa.decimal64(12, 2), pa.decimal128(12, 2), pa.decimal256(12, 2)):
    print(f"Arrow {kind}:", wrong(table["amount"].cast(kind).cast(pa.float64()).to_pylist()))
print("84700.54 becomes", pa.scalar(Decimal("84700.54")).cast(pa.float64()).as_py())
PY
seen=$("$folder/venv/bin/python" "$folder/program.py")
echo "$seen"
expected='of 100000 amounts, wrong by DuckDB 0 by Polars 0
Arrow decimal64(12, 2): 13814
Arrow decimal128(12, 2): 13814
Arrow decimal256(12, 2): 13814
84700.54 becomes 84700.54000000001'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

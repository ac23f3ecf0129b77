#!/usr/bin/env bash
# DuckDB's Avro reader: a decimal is a number when it is stored in `fixed` and a BLOB when it is stored in `bytes`.
#
# One expects: `logicalType: decimal` is read as DECIMAL for both types that the Avro specification allows, and a
#   timestamp-micros, which is an instant, as TIMESTAMPTZ.
# What happens: the one in `bytes` becomes a BLOB without a word, so that sums fail and comparisons are those of bytes: the
#   greatest of -1.50, 1.50 and 300.00 is -1.50. A timestamp-micros becomes TIMESTAMP, and its cast to TIMESTAMPTZ takes
#   the session's time zone, which moves the instant. Polars reads both as the specification says.
# Versions: duckdb 1.5.5 with duckdb-extension-avro 1.5.5, fastavro 1.13.1, polars 2.1.0.
# Why it matters: `bytes` is what Java writers, Kafka Connect's AvroConverter and Debezium use for decimals. Iceberg's own
#   Avro files use `fixed`, so tables are read right and feeds are not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    duckdb==1.5.5 duckdb-extension-avro==1.5.5 fastavro==1.13.1 polars==2.1.0 pytz==2025.2
cat >"$folder/program.py" <<'PY'
import importlib.util
import sys
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import fastavro
import polars

path = f"{sys.argv[1]}/prices.avro"
number = {"logicalType": "decimal", "precision": 10, "scale": 2}
types = {
    "in_bytes": {"type": "bytes", **number},
    "in_fixed": {"type": "fixed", "size": 5, "name": "price", **number},
    "t": {"type": "long", "logicalType": "timestamp-micros"},
}
schema = {"type": "record", "name": "row", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}
noon = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
prices = [Decimal("-1.50"), Decimal("1.50"), Decimal("300.00")]
with open(path, "wb") as file:
    fastavro.writer(file, schema, [{"in_bytes": price, "in_fixed": price, "t": noon} for price in prices])

connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
(place,) = importlib.util.find_spec("duckdb_extension_avro").submodule_search_locations
connection.load_extension(str(next(Path(place).rglob("*.duckdb_extension"))))
connection.sql("set TimeZone = 'America/New_York'")
for name in types:
    print(f"DuckDB, {name}:", connection.sql(f"select typeof({name}), max({name})::varchar from read_avro('{path}') group by 1").fetchone())
print("DuckDB, t as an instant:", connection.sql(f"select max(epoch(t::timestamptz)) from read_avro('{path}')").fetchone()[0])
try:
    print("DuckDB, sum:", connection.sql(f"select sum(in_bytes) from read_avro('{path}')").fetchone())
except duckdb.BinderException as error:
    print("DuckDB, sum:", str(error).splitlines()[0][:80])
rows = polars.read_avro(path)
print("Polars:", dict(rows.schema), rows["in_bytes"].max(), rows["t"].max().timestamp())
print("written:", max(prices), noon.timestamp())
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder")
echo "$seen"
expected=$(cat <<'SEEN'
DuckDB, in_bytes: ('BLOB', '\\xFFj')
DuckDB, in_fixed: ('DECIMAL(10,2)', '300.00')
DuckDB, t: ('TIMESTAMP', '2026-07-01 12:00:00')
DuckDB, t as an instant: 1782921600.0
DuckDB, sum: Binder Error: No function matches the given name and argument types 'sum(BLOB)'.
Polars: {'in_bytes': Decimal(precision=10, scale=2), 'in_fixed': Decimal(precision=10, scale=2), 't': Datetime(time_unit='us', time_zone='UTC')} 300.00 1782907200.0
written: 300.00 1782907200.0
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

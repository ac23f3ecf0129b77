#!/usr/bin/env bash
# DuckDB: where a column has a narrower type in some files, a filter rounds its constant to the type of each file.
#
# One expects: `where v = 1.5` over files with integers and files with decimals, read with union_by_name, gives the rows whose
#   value is 1.5. A float column of an Iceberg table that became a double gives `f > 0.1` for old rows as for new ones.
# What happens: the filter goes to each file and its constant is cast to the type there: 1.5 becomes 2 where the file holds
#   integers, 2.205 becomes 2.2 in a decimal(7, 1), a time of day is cut off where the file holds dates, 0.1 becomes the float
#   0.1. `v = 1.5` gives rows with 2.0, `v > 1.5` loses them. The expression as a column (`select v = 1.5`) is right, so a query
#   contradicts itself. Through the Iceberg extension the rows of old files are lost by `f > 0.1` and `f <> 0.1`.
# Versions: duckdb 1.5.5, duckdb-extension-iceberg 1.5.5, pyiceberg 0.12.0, pyarrow 26.0.1.
# Why it matters: types widen in every lake that lives, and DuckDB is what one checks it with. `v + 0 > 1.5` keeps the
#   filter out of the files.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 duckdb-extension-iceberg==1.5.5 \
    duckdb-extension-avro==1.5.5 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import datetime
import importlib.util
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField

folder = sys.argv[1]
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for extension in ("avro", "iceberg"):
    (place,) = importlib.util.find_spec(f"duckdb_extension_{extension}").submodule_search_locations
    (library,) = Path(place).rglob("*.duckdb_extension")
    connection.load_extension(str(library))


def compare(name, source, conditions):
    """Print the keys that each condition keeps as a filter, and those for which it is true as a column."""
    for condition in conditions:
        kept = [key for (key,) in connection.sql(f"select k from {source} where {condition} order by k").fetchall()]
        rows = connection.sql(f"select k, {condition} from {source} order by k").fetchall()
        print(f"{name}, {condition}: filter {kept}, column {[key for key, is_true in rows if is_true]}")


def write_files(name, narrow, wide):
    """Write one file with each array; the source that reads both."""
    pq.write_table(pa.table({"k": [1, 2], "v": narrow}), f"{folder}/{name}-narrow.parquet")
    pq.write_table(pa.table({"k": [3, 4], "v": wide}), f"{folder}/{name}-wide.parquet")
    return f"read_parquet('{folder}/{name}-*.parquet', union_by_name = true)"


day, noon = datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 12)
cents = pa.array([Decimal("1.5"), Decimal("2.0")], pa.decimal128(10, 1))
mixed = write_files("int and decimal", pa.array([1, 2], pa.int32()), cents)
compare("int and decimal", mixed, ["v = 1.5", "v > 1.5"])
mills = pa.array([Decimal("2.205"), Decimal("2.200")], pa.decimal128(25, 3))
mixed = write_files("decimals", pa.array([Decimal("2.2"), Decimal("2.3")], pa.decimal128(7, 1)), mills)
compare("decimals", mixed, ["v = 2.205", "v < 2.205"])
mixed = write_files("date and timestamp", pa.array([day, day]), pa.array([noon, noon], pa.timestamp("us")))
compare("date and timestamp", mixed, ["v = timestamp '2026-01-01 12:00'", "v < timestamp '2026-01-01 12:00'"])

catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("sales")
table = catalog.create_table("sales.rates", Schema(NestedField(1, "k", LongType()), NestedField(2, "f", FloatType())))
table.append(pa.table({"k": [1, 2], "f": pa.array([0.1, 2.5], pa.float32())}))
with table.update_schema() as update:
    update.update_column("f", DoubleType())
table.append(pa.table({"k": [3, 4], "f": [0.1, 2.5]}))
place = table.metadata_location.removeprefix("file://")
compare("Iceberg", f"iceberg_scan('{place}')", ["f > 0.1::double", "f <> 0.1::double"])
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder")
echo "$seen"
expected=$(cat <<'SEEN'
int and decimal, v = 1.5: filter [2, 3], column [3]
int and decimal, v > 1.5: filter [4], column [2, 4]
decimals, v = 2.205: filter [1, 3], column [3]
decimals, v < 2.205: filter [4], column [1, 4]
date and timestamp, v = timestamp '2026-01-01 12:00': filter [1, 2, 3, 4], column [3, 4]
date and timestamp, v < timestamp '2026-01-01 12:00': filter [], column [1, 2]
Iceberg, f > 0.1::double: filter [2, 4], column [1, 2, 4]
Iceberg, f <> 0.1::double: filter [2, 4], column [1, 2, 4]
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

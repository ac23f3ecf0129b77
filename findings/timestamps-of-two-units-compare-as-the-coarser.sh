#!/usr/bin/env bash
# DataFusion, Polars, Daft: timestamps of two units are compared in the coarser unit, so rows vanish at every boundary.
#
# One expects: 12:00:00 is before 12:00:00.000500 and not equal to it, whatever unit a column is stored in. All three do that
#   for numbers: an integer column against 1.5 is compared as a floating-point number. Arrow and DuckDB compare in the finer unit.
# What happens: a column of milliseconds against a constant (or a column) of microseconds: the constant loses its digits. `=` is
#   true of a row that differs, `<` and `<>` lose it. In DataFusion the optimizer does so, in Polars and Daft the common type is
#   the coarser one; Daft even takes a date for the common type of a date and a timestamp. A cast of the
#   column does not help in DataFusion, which takes it off again. `pl.concat(how="vertical_relaxed")` cuts the values themselves.
# Versions: datafusion 55.0.0, polars 2.1.0, daft 0.7.26, pyarrow 25.0.1, duckdb 1.5.5.
# Why it matters: milliseconds are what Kafka, JavaScript and older Parquet writers store, microseconds are what Iceberg and
#   Python have. `t < 23:59:59.999999` as the end of a day leaves out all rows of its last millisecond, and a watermark taken from
#   one table and asked of the other loses the rows between. Cut the constant yourself, and write `<=` if that changed it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    datafusion==55.0.0 polars==2.1.0 daft==0.7.26 duckdb==1.5.5 pyarrow==25.0.1
cat >"$folder/program.py" <<'PY'
import operator
from datetime import date, datetime

import daft
import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc

FINE = datetime(2026, 1, 1, 12, 0, 0, 500)
TEXT = f"timestamp '{FINE}'"
TESTS = {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<>": operator.ne}
TIMES = pa.array([datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, 0, 1)], pa.timestamp("ms"))
EVENTS = pa.table({"k": [1, 2], "t": TIMES, "d": [date(2026, 1, 1), date(2026, 1, 2)]})


def duckdb_keys(column, test):
    connection = duckdb.connect()
    connection.register("events", EVENTS)
    return [key for (key,) in connection.sql(f"select k from events where {column} {test} {TEXT} order by k").fetchall()]


def datafusion_keys(column, test):
    context = datafusion.SessionContext()
    context.from_arrow(EVENTS, name="events")
    return [row["k"] for row in context.sql(f"select k from events where {column} {test} {TEXT} order by k").to_pylist()]


def arrow_keys(column, test):
    return EVENTS.filter(TESTS[test](pc.field(column), pa.scalar(FINE)))["k"].to_pylist()


def polars_keys(column, test):
    return polars.from_arrow(EVENTS).filter(TESTS[test](polars.col(column), FINE))["k"].to_list()


def daft_keys(column, test):
    return daft.from_arrow(EVENTS).where(TESTS[test](daft.col(column), FINE)).to_pydict()["k"]


ENGINES = {"DuckDB": duckdb_keys, "Arrow": arrow_keys, "DataFusion": datafusion_keys, "Polars": polars_keys, "Daft": daft_keys}
for column in ("t", "d"):
    for test in TESTS:
        print(f"{column} {test} {TEXT}:", {name: keys(column, test) for name, keys in ENGINES.items()})
parts = [polars.DataFrame({"t": [FINE]}), polars.from_arrow(EVENTS.select(["t"]).slice(0, 1))]
print("Polars, concat:", [str(time) for time in polars.concat(parts, how="vertical_relaxed")["t"].to_list()])
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" 2>"$folder/errors") || { cat "$folder/errors" >&2; exit 1; }
echo "$seen"
expected=$(cat <<'SEEN'
t = timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [], 'Arrow': [], 'DataFusion': [1], 'Polars': [1], 'Daft': [1]}
t < timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [1], 'Arrow': [1], 'DataFusion': [], 'Polars': [], 'Daft': []}
t > timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [2], 'Arrow': [2], 'DataFusion': [2], 'Polars': [2], 'Daft': [2]}
t <> timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [1, 2], 'Arrow': [1, 2], 'DataFusion': [2], 'Polars': [2], 'Daft': [2]}
d = timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [], 'Arrow': [], 'DataFusion': [], 'Polars': [], 'Daft': [1]}
d < timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [1], 'Arrow': [1], 'DataFusion': [1], 'Polars': [1], 'Daft': []}
d > timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [2], 'Arrow': [2], 'DataFusion': [2], 'Polars': [2], 'Daft': [2]}
d <> timestamp '2026-01-01 12:00:00.000500': {'DuckDB': [1, 2], 'Arrow': [1, 2], 'DataFusion': [1, 2], 'Polars': [1, 2], 'Daft': [2]}
Polars, concat: ['2026-01-01 12:00:00', '2026-01-01 12:00:00']
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

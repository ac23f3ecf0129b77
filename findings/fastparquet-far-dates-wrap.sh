#!/usr/bin/env bash
# fastparquet reads the date 9999-12-31 as 1816-03-29.
#
# One expects: a date comes back as it was written, or as an error if the reader's type cannot hold it. pandas has types for
#   all dates, and fastparquet itself reads timestamps in microseconds of the years 1600 and 9999.
# What happens: fastparquet turns dates into nanoseconds of 64 bits without a check, so that a date before 1677 or after 2262
#   wraps around to another century. Besides, values of a fixed length lose the zero bytes at their ends, so that four zero
#   bytes become an empty value.
# Versions: fastparquet 2026.9.0, pandas 3.1.1, pyarrow 26.0.1.
# Why it matters: 9999-12-31 is the usual end of what is still valid. Every row that is valid today is read as one that ended
#   200 years ago, without an error. Binary keys and UUIDs that end with a zero byte (one in 256) match nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1
cat >"$folder/program.py" <<'PY'
import sys
from datetime import date, datetime

import fastparquet
import pyarrow as pa
import pyarrow.parquet as pq

rows = pa.table({
    "valid_to": pa.array([date(2024, 1, 1), date(9999, 12, 31), date(1600, 1, 1)]),
    "at": pa.array([datetime(2024, 1, 1), datetime(9999, 12, 31), datetime(1600, 1, 1)], pa.timestamp("us")),
    "code": pa.array([b"ab\x00\x00", b"\x00\x00\x00\x00", b"abcd"], pa.binary(4)),
})
pq.write_table(rows, f"{sys.argv[1]}/rows.parquet")
file = fastparquet.ParquetFile(f"{sys.argv[1]}/rows.parquet")
read = file.to_pandas()
for name in rows.column_names:
    print(f"{name}: written {[str(value) for value in rows[name].to_pylist()]}")
    print(f"{name}: read    {[str(value) for value in read[name].tolist()]}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='valid_to: written ['\''2024-01-01'\'', '\''9999-12-31'\'', '\''1600-01-01'\'']
valid_to: read    ['\''2024-01-01 00:00:00'\'', '\''1816-03-29 05:56:08.066277376'\'', '\''2184-07-20 23:34:33.709551616'\'']
at: written ['\''2024-01-01 00:00:00'\'', '\''9999-12-31 00:00:00'\'', '\''1600-01-01 00:00:00'\'']
at: read    ['\''2024-01-01 00:00:00'\'', '\''9999-12-31 00:00:00'\'', '\''1600-01-01 00:00:00'\'']
code: written ["b'\''ab\\x00\\x00'\''", "b'\''\\x00\\x00\\x00\\x00'\''", "b'\''abcd'\''"]
code: read    ["b'\''ab'\''", "b'\'''\''", "b'\''abcd'\''"]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

#!/usr/bin/env bash
# Avro's Python library writes the decimal 1.5 as 0.15 if the schema has two digits after the point.
#
# One expects: a decimal of scale 2 holds 1.5 as 1.50, as fastavro and Java's library write it, or the writer refuses a value
#   whose scale is not that of the schema, as Avro's Python library does for 1.505.
# What happens: the library writes the digits of the value without regard to its own scale: 1.5 becomes 0.15, 2 becomes 0.02,
#   and 1E+2 becomes 0.01. Every reader returns these numbers. It holds for decimals in bytes and in fixed.
# Versions: avro 1.12.2, fastavro 1.13.1.
# Why it matters: Python's Decimal keeps the digits that were written: Decimal("2"), a sum without cents or a normalized
#   amount have another scale than the column. Such amounts are stored as a tenth or a hundredth, without an error, beside
#   right ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check avro==1.12.2 fastavro==1.13.1
cat >"$folder/program.py" <<'PY'
import json
import sys
from decimal import Decimal

import avro.schema
import fastavro
from avro.datafile import DataFileReader, DataFileWriter
from avro.io import DatumReader, DatumWriter

BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
for kind in (BYTES, FIXED):
    schema = {"type": "record", "name": "R", "fields": [{"name": "price", "type": kind}]}
    path = f"{sys.argv[1]}/rows.avro"
    for text in ("1.50", "1.5", "2", "-0.5", "1E+2", "1.505"):
        try:
            with DataFileWriter(open(path, "wb"), DatumWriter(), avro.schema.parse(json.dumps(schema))) as writer:
                writer.append({"price": Decimal(text)})
        except avro.errors.AvroException as error:
            print(f"{kind['type']}: {text} is refused ({type(error).__name__})")
            continue
        with DataFileReader(open(path, "rb"), DatumReader()) as reader:
            (own,) = reader
        with open(path, "rb") as file:
            (other,) = fastavro.reader(file)
        with open(path, "wb") as file:
            fastavro.writer(file, schema, [{"price": Decimal(text)}])
        with open(path, "rb") as file:
            (right,) = fastavro.reader(file)
        print(f"{kind['type']}: {text} is read as {own['price']}, by fastavro as {other['price']}; "
              f"written by fastavro as {right['price']}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='bytes: 1.50 is read as 1.50, by fastavro as 1.50; written by fastavro as 1.50
bytes: 1.5 is read as 0.15, by fastavro as 0.15; written by fastavro as 1.50
bytes: 2 is read as 0.02, by fastavro as 0.02; written by fastavro as 2.00
bytes: -0.5 is read as -0.05, by fastavro as -0.05; written by fastavro as -0.50
bytes: 1E+2 is read as 0.01, by fastavro as 0.01; written by fastavro as 100.00
bytes: 1.505 is refused (AvroOutOfScaleException)
fixed: 1.50 is read as 1.50, by fastavro as 1.50; written by fastavro as 1.50
fixed: 1.5 is read as 0.15, by fastavro as 0.15; written by fastavro as 1.50
fixed: 2 is read as 0.02, by fastavro as 0.02; written by fastavro as 2.00
fixed: -0.5 is read as -0.05, by fastavro as -0.05; written by fastavro as -0.50
fixed: 1E+2 is read as 0.01, by fastavro as 0.01; written by fastavro as 100.00
fixed: 1.505 is refused (AvroOutOfScaleException)'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

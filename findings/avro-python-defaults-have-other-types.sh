#!/usr/bin/env bash
# Avro in Python: the default of a field that is missing in a file comes as text, or as other bytes, instead of a decimal or
#   bytes.
#
# One expects: a reader's schema with a new field and a default shows this default in older records, in the type of the
#   field. The specification writes defaults of bytes as JSON text whose characters U+0000 to U+00FF stand for the bytes 0 to
#   255, so that "\u0096" is the decimal 1.50 in a field of scale 2.
# What happens: fastavro returns the default as it is in the schema: a text for bytes and decimals, a number of days for a
#   date. Avro's own library encodes the text in UTF-8, so that the byte ff becomes two bytes, and does not make a decimal of
#   it. In records that have the field, both return decimals, bytes and dates.
# Versions: fastavro 1.13.1, avro 1.12.2.
# Why it matters: schemas of feeds grow by fields with defaults, as registries demand. Rows from before the change have
#   values of other types than rows after it: sums fail, or bytes are stored that nobody wrote.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check fastavro==1.13.1 avro==1.12.2
cat >"$folder/program.py" <<'PY'
import io
import json

import avro.datafile
import avro.io
import avro.schema
import fastavro

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
DEFAULTS = {
    "decimal 1.50": (DECIMAL, "\u0096"),
    "bytes ff": ("bytes", "\u00ff"),
    "date 1970-01-02": ({"type": "int", "logicalType": "date"}, 1),
    "float 1.0": ("float", 1.0),
}
old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
for name, (kind, default) in DEFAULTS.items():
    new = {**old, "fields": [*old["fields"], {"name": "x", "type": kind, "default": default}]}
    file = io.BytesIO()
    fastavro.writer(file, old, [{"id": 1}])
    (of_fastavro,) = fastavro.reader(io.BytesIO(file.getvalue()), reader_schema=new)
    reader = avro.io.DatumReader(readers_schema=avro.schema.parse(json.dumps(new)))
    (of_avro,) = avro.datafile.DataFileReader(io.BytesIO(file.getvalue()), reader)
    print(f"default {name}: fastavro reads {of_fastavro['x']!r}, avro reads {of_avro['x']!r}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected='default decimal 1.50: fastavro reads '\''\x96'\'', avro reads b'\''\xc2\x96'\''
default bytes ff: fastavro reads '\''ÿ'\'', avro reads b'\''\xc3\xbf'\''
default date 1970-01-02: fastavro reads 1, avro reads 1
default float 1.0: fastavro reads 1.0, avro reads 1.0'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }

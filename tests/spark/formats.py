"""Rows of plain values as files of every source format.

Used by the tests of sources only.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from skipstone_core.contract.requests import SourceFormat

Rows = Sequence[Mapping[str, Any]]


def _csv(rows: Rows) -> bytes:
    lines = [",".join(rows[0]), *(",".join("" if v is None else str(v) for v in row.values()) for row in rows)]
    return "\n".join(lines).encode()


def _table(rows: Rows) -> pa.Table:
    found = pa.Table.from_pylist([dict(row) for row in rows])
    kinds = [pa.string() if pa.types.is_null(one.type) else one.type for one in found.schema]
    return found.cast(pa.schema(list(zip(found.column_names, kinds, strict=True))))


def _parquet(rows: Rows) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(_table(rows), out)
    return bytes(out.getvalue())


def _orc(rows: Rows) -> bytes:
    out = pa.BufferOutputStream()
    orc.write_table(_table(rows), out)
    return bytes(out.getvalue())


def _json(rows: Rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def _avro(rows: Rows) -> bytes:
    kinds = {int: "long", str: "string"}
    fields = []
    for name in rows[0]:
        kind = next((kinds[type(row[name])] for row in rows if row[name] is not None), "string")
        fields.append({"name": name, "type": ["null", kind]})
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), list(rows))
    return out.getvalue()


#: Names of Avro hold neither blanks nor dots.
WRITERS: Mapping[SourceFormat, Callable[[Rows], bytes]] = {
    SourceFormat.CSV: _csv,
    SourceFormat.JSON: _json,
    SourceFormat.PARQUET: _parquet,
    SourceFormat.ORC: _orc,
    SourceFormat.AVRO: _avro,
}

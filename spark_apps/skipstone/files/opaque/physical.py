"""Columns of opaque types as Arrow reads them from a data file, and whether a file holds whole values of them.

Used by projections. Must not open files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.opaque import Opaque, opaque_fields
from skipstone.tables.arrow import field_id

#: Where Iceberg's JSON has the id of a type, and the type.
_TYPED = (("id", "type"), ("element-id", "element"), ("key-id", "key"), ("value-id", "value"))


def require_whole(path: str, physical: Iterable[pa.Field], columns: Iterable[NestedField]) -> None:
    """Raise BadData (COLUMN_TYPE_UNSUPPORTED) when the file ``path`` has values of ``columns`` in parts."""
    kinds = {number: (column, kind) for column in columns for number, kind in opaque_fields(Schema(column))}
    if not kinds:
        return
    for field in _fields(physical):
        column, kind = kinds.get(field_id(field) or 0, (None, None))
        if column is not None and kind is not None and not kind.holds(field.type):
            raise BadData(
                Reason.COLUMN_TYPE_UNSUPPORTED,
                f"{path} holds the {kind} column {column.name!r} shredded, which Skipstone copies and does not put "
                "together: set write.parquet.shred-variants and read.parquet.vectorization.enabled of the table to "
                "false and write its files again, in Spark by rewrite_data_files with the option rewrite-all",
            )


def whole_values(values: pa.Array, kind: Opaque) -> pa.Array:
    """Return a column of ``kind`` as kernels have it. ``values``: as a file has them, whole."""
    wanted = kind.arrow
    if values.type == wanted or not pa.types.is_struct(wanted):
        return values.cast(wanted)
    parts = [values.field(part.name).cast(part.type) for part in wanted]
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=pc.is_null(values))


def known_types(physical: pa.Schema, schema: Schema) -> tuple[pa.Schema, Mapping[int, Opaque]]:
    """``physical`` with bytes in the place of values of opaque types of ``schema``; and these types, by field id."""
    kinds = dict(opaque_fields(schema))
    return pa.schema([_as_bytes(field, kinds) for field in physical]) if kinds else physical, kinds


def with_opaque(schema: Schema, kinds: Mapping[int, Opaque]) -> Schema:
    """``schema`` with the types ``kinds`` in the place of others, by field id."""
    if not kinds:
        return schema
    return Schema.model_validate(_with_types(json.loads(schema.model_dump_json()), kinds))


def _with_types(node: Any, kinds: Mapping[int, Opaque]) -> Any:
    if isinstance(node, list):
        return [_with_types(part, kinds) for part in node]
    if not isinstance(node, dict):
        return node
    made = {name: _with_types(part, kinds) for name, part in node.items()}
    return made | {name: str(kinds[node[number]]) for number, name in _TYPED if node.get(number) in kinds}


def _as_bytes(field: pa.Field, kinds: Mapping[int, Opaque]) -> pa.Field:
    if field_id(field) in kinds:
        return field.with_type(pa.binary())
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_as_bytes(part, kinds) for part in kind]))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return field.with_type(made(_as_bytes(kind.value_field, kinds)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_as_bytes(kind.key_field, kinds), _as_bytes(kind.item_field, kinds)))
    return field


def _fields(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """The fields with those below them."""
    for field in fields:
        yield field
        kind = field.type
        if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
            yield from _fields(kind.field(at) for at in range(kind.num_fields))

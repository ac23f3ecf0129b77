"""Fields within struct columns of target rows: read, and given other values.

Called by the clauses. Must not know predicates or expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.language.paths import split_path
from skipstone_core.reasons import Reason

from skipstone.kernels.canonical import Int64s


def column_at(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """A column, or the field within one that ``name`` is a path to; null where a struct around it is null."""
    if name in rows.schema.names:
        return rows.column(name)
    first, *rest = split_path(name)
    return pc.struct_field(rows.column(first), rest)


def field_at(schema: pa.Schema, name: str) -> pa.Field:
    """The Arrow field of a column, or of a field within one."""
    if name in schema.names:
        return schema.field(name)
    first, *rest = split_path(name)
    field = schema.field(first)
    for part in rest:
        field = field.type.field(part)
    return field


def with_field(column: pa.StructArray, path: Sequence[str], rows: Int64s, values: pa.Array) -> pa.StructArray:
    """``column`` with ``values`` at ``path`` in ``rows``, where it is no longer null. Other fields stay as they are.

    Raises BadData where a field would be null that is required.
    """
    mask = np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    created = rows[mask[rows]]
    mask[rows] = False
    fields = list(column.type)
    children = list(column.flatten())
    for place, field in enumerate(fields):
        if field.name == path[0]:
            changed = with_field(children[place], path[1:], rows, values) if path[1:] else None
            children[place] = put(children[place], rows, values) if changed is None else changed
        if not field.nullable and children[place].is_null().take(pa.array(rows)).true_count:
            of = f"required field {field.name!r} of a struct would become null"
            way_out = "assign the whole struct" if len(created) else "give it a value"
            raise BadData(Reason.BAD_RECORDS, f"a {of} in some row: {way_out}", field="spec.source")
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(mask))


def put(column: pa.Array, rows: Int64s, values: pa.Array) -> pa.Array:
    """The column with ``values`` in ``rows``."""
    if pa.types.is_nested(column.type) or isinstance(column, pa.ExtensionArray):
        take = np.arange(len(column))
        take[rows] = np.arange(len(column), len(column) + len(rows))
        return pa.concat_arrays([column, values]).take(pa.array(take))
    mask = np.zeros(len(column), dtype=bool)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), values)

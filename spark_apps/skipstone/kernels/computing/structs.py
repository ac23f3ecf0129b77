"""Fields within struct columns of target rows: read, and given other values.

Called by the clauses. Must not know predicates or expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.language.paths import split_path
from skipstone_core.reasons import Reason

from skipstone.kernels.canonical import Int64s

#: The type of decimals of 128 bits, and bytes of the largest word.
_DECIMAL, _WORD = pa.decimal128(1).id, 8


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


def with_kept(values: pa.StructArray, before: pa.StructArray, paths: Sequence[Sequence[str]]) -> pa.StructArray:
    """``values`` with the fields at ``paths`` as they are in ``before``, in structs that are not null there.

    Other fields of such a struct are null if its new value is. Both arrays run in parallel and are of one type.
    Raises BadData where a field would be null that is required.
    """
    fields, children = list(values.type), list(values.flatten())
    held = np.flatnonzero(before.is_valid().to_numpy(zero_copy_only=False))
    for place, field in enumerate(fields):
        below = [path[1:] for path in paths if path[0] == field.name]
        if () in map(tuple, below):
            children[place] = put(children[place], held, before.field(place).take(pa.array(held)))
        elif below:
            children[place] = with_kept(children[place], before.flatten()[place], below)
        if not field.nullable and pc.and_(values.is_null(), children[place].is_null()).take(pa.array(held)).true_count:
            message = f"a required field {field.name!r} of a struct would become null in some row: give it a value"
            raise BadData(Reason.BAD_RECORDS, message, field="spec.source")
    return pa.StructArray.from_arrays(children, fields=fields, mask=pc.and_(values.is_null(), before.is_null()))


def put(column: pa.Array, rows: Int64s, values: pa.Array) -> pa.Array:
    """The column with ``values`` in ``rows``. One in a dictionary gets texts, and stays in one."""
    if pa.types.is_dictionary(column.type):
        return _put_texts(column, rows, values)
    if _is_plain(column) and _is_plain(values):
        return _overwritten(column, rows, values)
    take = np.arange(len(column))
    take[rows] = np.arange(len(column), len(column) + len(rows))
    return pa.concat_arrays([column, values]).take(pa.array(take))


def _put_texts(column: pa.DictionaryArray, rows: Int64s, values: pa.Array) -> pa.DictionaryArray:
    given, known = values.dictionary_encode(), column.dictionary
    numbers = pc.index_in(given.dictionary, value_set=known)
    is_new = pc.is_null(numbers).to_numpy(zero_copy_only=False)
    places = pc.fill_null(numbers, 0).to_numpy().copy()
    places[is_new] = len(known) + np.arange(np.count_nonzero(is_new))
    codes = pa.array(places, column.type.index_type).take(given.indices)
    texts = pa.concat_arrays([known, given.dictionary.filter(pa.array(is_new))])
    return pa.DictionaryArray.from_arrays(put(column.indices, rows, codes), texts)


def _is_plain(column: pa.Array) -> bool:
    """Return whether the values are numbers, or dates and times as numbers, none of them null."""
    kind = column.type
    numbers = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    return column.null_count == 0 and (bool(numbers) or kind.id == _DECIMAL)


def _overwritten(column: pa.Array, rows: Int64s, values: pa.Array) -> pa.Array:
    """``put`` for plain values: one copy of them, which costs a tenth of Arrow's own function."""
    made = _words(column).copy()
    made[rows] = _words(values)
    return pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(made)], null_count=0)


def _words(column: pa.Array) -> npt.NDArray[Any]:
    """The memory of plain values; 16 bytes of one are two words."""
    width = column.type.bit_width // 8
    content = np.frombuffer(column.buffers()[1], dtype=f"u{min(width, _WORD)}")
    words = content.reshape(-1, width // _WORD) if width > _WORD else content
    return words[column.offset : column.offset + len(column)]

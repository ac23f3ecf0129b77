"""From the Arrow batches that Spark hands to tasks to batches in a table's Arrow types.

Called inside tasks by the load run and by merges. Must not need Spark.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.tables.arrow import batch_of

UUID_BYTES = 16


def table_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``batch`` that ``schema`` has, in its order and types: uuid from text, time from microseconds.

    Raises pa.ArrowInvalid when a value would not survive, which the checks on reading rule out.
    """
    fields = [field for field in schema if field.name in batch.schema.names]
    arrays = [_cast(batch.column(field.name), field.type) for field in fields]
    return batch_of(arrays, pa.schema([(field.name, field.type) for field in fields]), batch.num_rows)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_nested(kind):
        return _cast_nested(array, kind)
    if pa.types.is_string(array.type) and kind in (pa.uuid(), pa.binary(UUID_BYTES)):
        return _uuid_array(array).cast(kind)
    return array.cast(kind)


def _cast_nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A list, map or struct with what is within it cast; fields are in the order of ``kind``."""
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        held = {array.type.field(at).name: array.field(at) for at in range(array.type.num_fields)}
        arrays = [_cast(held[field.name], field.type) for field in fields]
        arrays = [_filled(array, child, kind, at) for at, child in enumerate(arrays)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null())
    first, last = (array.offsets[at].as_py() for at in (0, -1))
    offsets, nulls = pc.subtract(array.offsets, first), array.is_null()
    if pa.types.is_map(kind):
        keys, items = (part.slice(first, last - first) for part in (array.keys, array.items))
        keys, items = _cast(keys, kind.key_type), _cast(items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)
    values = _cast(array.values.slice(first, last - first), kind.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=nulls)


def _filled(array: pa.Array, values: pa.Array, kind: pa.StructType, at: int) -> pa.Array:
    """``values`` of the field ``at``; one that is required is not null below a null: Parquet's writer refuses that."""
    if kind.field(at).nullable or not values.null_count:
        return values
    filler = pa.array([None], kind).field(at)
    places = pc.if_else(array.is_null(), len(values), pa.array(range(len(values)), pa.int64()))
    return pa.concat_arrays([values, filler]).take(places)


def _uuid_array(texts: pa.Array) -> pa.Array:
    """UUIDs as text to 16 bytes each, in one decoding; nulls stay null."""
    digits = pc.fill_null(pc.replace_substring(texts, "-", ""), "0" * 2 * UUID_BYTES)
    content = bytes.fromhex("".join(digits.to_pylist()))
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(UUID_BYTES), len(texts), [None, pa.py_buffer(content)])
    return pc.if_else(texts.is_valid(), array, pa.scalar(None, pa.binary(UUID_BYTES)))

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
    if pa.types.is_string(array.type) and kind in (pa.uuid(), pa.binary(UUID_BYTES)):
        return _uuid_array(array).cast(kind)
    return array.cast(kind)


def _uuid_array(texts: pa.Array) -> pa.Array:
    """UUIDs as text to 16 bytes each, in one decoding; nulls stay null."""
    digits = pc.fill_null(pc.replace_substring(texts, "-", ""), "0" * 2 * UUID_BYTES)
    content = bytes.fromhex("".join(digits.to_pylist()))
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(UUID_BYTES), len(texts), [None, pa.py_buffer(content)])
    return pc.if_else(texts.is_valid(), array, pa.scalar(None, pa.binary(UUID_BYTES)))

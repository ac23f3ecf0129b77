"""Source rows that lack some of their columns: a bit for each column of each row, and what they mean to a merge.

Called by the clauses and by the insert step; feeds make the bits. Must not know why a column is absent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.errors import BadData
from skipstone_core.merging.merges import PartialRows
from skipstone_core.reasons import Reason

Bits = npt.NDArray[np.bool_]


def pack_bits(bits: Bits) -> pa.Array:
    """``bits`` (rows by columns) as one binary value a row, the first column in the highest bit of the first byte."""
    packed = np.packbits(bits, axis=1)
    content = pa.py_buffer(np.ascontiguousarray(packed).tobytes())
    width = packed.shape[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(bits), [None, content]).cast(pa.binary())


def unpack_bits(values: pa.Array | pa.ChunkedArray, columns: int) -> Bits:
    """Return the bits that ``pack_bits`` took: rows by ``columns``."""
    array = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values
    array = array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array
    if not len(array):
        return np.zeros((0, columns), dtype=bool)
    width = -(-columns // 8)
    fixed = array.cast(pa.binary(width))
    start = fixed.offset * width
    content = np.frombuffer(fixed.buffers()[1], dtype=np.uint8)[start : start + len(fixed) * width]
    return np.unpackbits(content.reshape(len(fixed), width), axis=1, count=columns).astype(bool)


def kept_columns(source: pa.Table, partial: PartialRows) -> dict[str, Bits]:
    """Which rows of ``source`` lack a column, by its name in the source; columns that every row has are left out."""
    bits = unpack_bits(source.column(partial.kept), len(partial.columns))
    return {name: bits[:, at] for at, name in enumerate(partial.columns) if bits[:, at].any()}


def lacking_rows(source: pa.Table, partial: PartialRows) -> Bits:
    """Return which rows of ``source`` cannot be inserted, because a value exists that they do not have."""
    if partial.missing is None:
        return np.zeros(source.num_rows, dtype=bool)
    return np.asarray(unpack_bits(source.column(partial.missing), len(partial.columns)).any(axis=1), dtype=bool)


def require_whole(source: pa.Table, partial: PartialRows) -> None:
    """Raise BadData (BAD_RECORDS) naming the first column of which a row to insert lacks the value."""
    if partial.missing is None:
        return
    lacking = unpack_bits(source.column(partial.missing), len(partial.columns)).any(axis=0)
    if lacking.any():
        name = partial.columns[int(np.argmax(lacking))]
        raise BadData(
            Reason.BAD_RECORDS,
            f"column {name!r}: a change leaves its value out as unchanged, and the table has no row with its key that "
            "holds the value: merge a snapshot of the row first, or run ALTER TABLE ... REPLICA IDENTITY FULL on the "
            "table in the source database before the row changes; drop the column from the table if the source does "
            "not have it any more",
            field="spec.source",
        )

"""Rows with texts in the place of dictionaries of them, cut into pieces that are few enough bytes.

Used by ``parquetfiles`` and by what reads pages of its own accord. Must not read files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def unpacked(batch: pa.RecordBatch, nbytes: int, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
    """``batch`` with texts in the place of dictionaries of them, in pieces of at most ``nbytes`` or one row.

    ``columns``: those that are looked at; None: all.
    """
    names = [name for name in batch.schema.names if columns is None or name in columns]
    texts = {name: batch[name] for name in names if is_of_texts(batch[name].type)}
    if not texts or not batch.num_rows:
        yield batch
        return
    others = sum(batch[name].nbytes for name in batch.schema.names if name not in texts)
    sizes = sum((_lengths(column) for column in texts.values()), np.full(batch.num_rows, others / batch.num_rows))
    for start, stop in cuts(sizes, nbytes):
        yield _as_texts(batch.slice(start, stop - start), texts)


def cuts(sizes: npt.NDArray[np.float64], nbytes: int) -> Iterator[tuple[int, int]]:
    """Where to cut rows of these ``sizes`` into pieces of at most ``nbytes``, or one row: the start and end of each."""
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + nbytes, side="right")))
        yield start, stop
        start = stop


def _lengths(column: pa.DictionaryArray) -> npt.NDArray[np.float64]:
    """Bytes of each text of a dictionary."""
    lengths = pc.binary_length(column.dictionary).cast(pa.float64()).take(column.indices)
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), np.float64)


def _as_texts(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    for name in names:
        at = batch.schema.get_field_index(name)
        field = batch.schema.field(at)
        batch = batch.set_column(at, field.with_type(field.type.value_type), batch.column(at).dictionary_decode())
    return batch


def is_of_texts(kind: pa.DataType) -> bool:
    """Return whether values are in a dictionary of texts or bytes."""
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return pa.types.is_dictionary(kind) and any(is_one(kind.value_type) for is_one in texts)

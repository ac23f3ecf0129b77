"""Rows of the source whose long texts are in dictionaries: a file may repeat each of them many times.

Used where rows are collected. Must not know what becomes of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from skipstone_core.merging.merges import BoundKey

#: Texts of a column that are longer on the average are kept in a dictionary.
LONG_BYTES = 256
#: Bytes of rows from which on all share one dictionary.
_SHARED_BYTES = 64 * 1024 * 1024


class PackedRows:
    """Collects rows of the source; columns of long texts become dictionaries, but those of keys."""

    def __init__(self, schema: pa.Schema, keys: Sequence[BoundKey], columns: Collection[str] | None = None) -> None:
        """Hold nothing yet; all rows have ``schema``. ``columns``: those that may become dictionaries; None: all."""
        names = set(schema.names if columns is None else columns) - {key.source for key in keys}
        self._schema = schema
        self._texts = [field.name for field in schema if field.name in names and _is_of_texts(field.type)]
        self._packed: set[str] = set()
        self._batches: list[pa.RecordBatch] = []
        #: Bytes in memory of the rows.
        self.nbytes = 0
        self._bearable = _SHARED_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        long = LONG_BYTES * batch.num_rows
        names = {name for name in self._texts if batch.num_rows and batch[name].nbytes > long} - self._packed
        if names:
            self._packed |= names
            self._batches = [_packed(held, names) for held in self._batches]
            self.nbytes = sum(held.nbytes for held in self._batches)
        self._batches.append(_packed(batch, self._packed))
        self.nbytes += self._batches[-1].nbytes
        if self._packed and self.nbytes > self._bearable:
            self._share()

    def _share(self) -> None:
        """Let all rows share their dictionaries: each batch came with its own."""
        whole = pa.Table.from_batches(self._batches).unify_dictionaries().combine_chunks()
        self._batches = whole.to_batches()
        self.nbytes = sum(batch.nbytes for batch in self._batches)
        self._bearable = max(_SHARED_BYTES, 2 * self.nbytes)

    def table(self) -> pa.Table:
        """All rows; no others follow."""
        batches, self._batches = self._batches, []
        fields = [
            field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in self._packed else field
            for field in self._schema
        ]
        return pa.Table.from_batches(batches, schema=pa.schema(fields)).unify_dictionaries()


def _packed(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """``batch`` with ``names`` as dictionaries; its other columns are copied, as one buffer may hold them all."""
    if not any(not pa.types.is_dictionary(batch.schema.field(name).type) for name in names):
        return batch
    columns, fields = [], []
    for kept, column in zip(batch.schema, batch.columns, strict=True):
        is_new = kept.name in names and not pa.types.is_dictionary(kept.type)
        columns.append(column.dictionary_encode() if is_new else _copied(column))
        fields.append(kept.with_type(columns[-1].type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))


def _copied(array: pa.Array) -> pa.Array:
    """``array`` in memory of its own: a batch of Spark is one buffer, which lives as long as any of its columns."""
    return pa.concat_arrays([array, array.slice(0, 0)])


def packed_rows(changes: pa.Table, keys: Sequence[BoundKey]) -> pa.Table:
    """``changes`` as ``PackedRows`` holds them."""
    rows = PackedRows(changes.schema, keys)
    for batch in changes.to_batches():
        rows.add(batch)
    return rows.table()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several slices, each column in one chunk: in a dictionary if that is so in one of them."""
    names = tables[0].column_names
    packed = [name for name in names if any(pa.types.is_dictionary(table.schema.field(name).type) for table in tables)]
    for name in packed:
        at = names.index(name)
        tables = [
            table
            if pa.types.is_dictionary(table.schema.field(at).type)
            else table.set_column(at, name, table.column(at).dictionary_encode())
            for table in tables
        ]
    return pa.concat_tables(tables).combine_chunks()


def _is_of_texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def is_packed(kind: pa.DataType) -> bool:
    """Return whether values are in a dictionary of texts."""
    return bool(pa.types.is_dictionary(kind) and _is_of_texts(kind.value_type))


def compacted(rows: pa.Table) -> pa.Table:
    """``rows`` with those texts only in dictionaries that they use."""
    for at, field in enumerate(rows.schema):
        if is_packed(field.type):
            rows = rows.set_column(at, field, _compacted(rows.column(at)))
    return rows


def _compacted(column: pa.ChunkedArray) -> pa.Array:
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    valid = array.indices.is_valid().to_numpy(zero_copy_only=False)
    used, codes = np.unique(array.indices.drop_null().to_numpy(), return_inverse=True)
    if len(used) == len(array.dictionary):
        return array
    indices = np.zeros(len(array), np.int32)
    indices[valid] = codes
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~valid), array.dictionary.take(pa.array(used)))

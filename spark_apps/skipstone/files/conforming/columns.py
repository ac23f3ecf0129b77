"""The columns of rows in the types that files are written in; texts of few distinct values may be in dictionaries.

Used by the writer. A dictionary that comes from a file and goes into one is neither decoded nor hashed again. Must not
know partitions, sort orders or files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.tables.arrow import nulls
from skipstone.tables.parquet.unpacking import is_of_texts

#: Bytes of the offset of a text.
_OFFSET_BYTES = 4


def as_column(
    table: pa.Table, wanted: pa.Field, default: pa.Scalar | None = None, packed: Collection[str] = ()
) -> pa.ChunkedArray:
    """The column ``wanted`` of ``table``, or ``default`` (None: null) in each row. ``packed``: may be in dictionaries.

    Raises BadData (BAD_RECORDS) when it is required, and missing or null.
    """
    position, count = table.schema.get_field_index(wanted.name), table.num_rows
    if position < 0:
        column = pa.chunked_array([nulls(count, wanted.type) if default is None else pa.repeat(default, count)])
    else:
        column = table.column(position)
    if not wanted.nullable and column.null_count:
        fault = "is missing" if position < 0 else f"is null in {column.null_count} rows"
        raise BadData(Reason.BAD_RECORDS, f"column {wanted.name!r} is required and {fault}.")
    if column.type == wanted.type or (
        wanted.name in packed and is_of_texts(column.type) and column.type.value_type == wanted.type
    ):
        return column
    return column.cast(wanted.type)


def as_table(columns: Sequence[pa.ChunkedArray], fields: Sequence[pa.Field]) -> pa.Table:
    """A table of ``columns``, of which some are in dictionaries."""
    schema = pa.schema([field.with_type(column.type) for field, column in zip(fields, columns, strict=True)])
    return pa.Table.from_arrays(list(columns), schema=schema)


def is_packed(rows: pa.Table) -> bool:
    """Return whether some column is in a dictionary."""
    return any(map(is_of_texts, rows.schema.types))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows. A column in dictionaries has one, of the texts that it uses: Arrow counts the others in statistics."""
    rows = pa.concat_tables(tables)
    if not is_packed(rows):
        return rows
    rows = rows.unify_dictionaries()
    for at, field in enumerate(rows.schema):
        if is_of_texts(field.type):
            rows = rows.set_column(at, field, _used(rows.column(at)))
    return rows


def _used(column: pa.ChunkedArray) -> pa.Array:
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    codes = array.indices.drop_null() if array.null_count else array.indices
    used = np.bincount(codes.to_numpy(), minlength=len(array.dictionary)) > 0
    if used.all():
        return array
    places = pa.array((np.cumsum(used) - 1).astype(np.int32))
    return pa.DictionaryArray.from_arrays(places.take(array.indices), array.dictionary.filter(pa.array(used)))


def unpacked_bytes(rows: pa.Table) -> int:
    """Bytes of rows with each text in the place of its number in a dictionary."""
    return sum(_column_bytes(column) for column in rows.columns)


def _column_bytes(column: pa.ChunkedArray) -> int:
    if not is_of_texts(column.type):
        return int(column.nbytes)
    lengths = (pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0 for chunk in column.chunks)
    return sum(lengths) + _OFFSET_BYTES * len(column)


def in_slices(rows: pa.Table, nbytes: int) -> Iterator[pa.Table]:
    """``rows`` in slices of about ``nbytes``."""
    step = max(1, rows.num_rows * nbytes // max(unpacked_bytes(rows), 1))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)

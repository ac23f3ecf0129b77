"""Which columns of a row group have pages that are too large to be unpacked as a whole, and their rows beside others.

Used by ``parquetfiles``, which reads the other columns with Arrow. Must not unpack pages: see ``longpages``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from skipstone.tables.parquet.longpages import CODECS, MALFORMED, LongChunk, is_long, long_values

#: Values that are shorter on the average do not make pages that are too large.
_SHORT_BYTES = 1024


def long_chunks(source: Any, file: Any, group: int, columns: Collection[str], nbytes: int) -> Mapping[str, LongChunk]:
    """Return the chunks of ``columns`` that have a page of more than ``nbytes`` unpacked and can be read by values.

    ``source``: the open file that ``file``, Arrow's reader, reads. Raises OSError.
    """
    chunks = {}
    metadata = file.metadata.row_group(group)
    paths = Counter(file.schema.column(number).path for number in range(len(file.schema)))
    for number in range(metadata.num_columns):
        chunk, leaf = metadata.column(number), file.schema.column(number)
        name = chunk.path_in_schema
        size, codec = chunk.total_uncompressed_size, chunk.compression.lower()
        if name not in columns or size <= max(nbytes, _SHORT_BYTES * chunk.num_values) or codec not in CODECS:
            continue
        if paths[name] > 1 or not _is_flat(leaf) or _texts(file.schema_arrow.field(name).type) is None:
            continue
        begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        described = LongChunk(
            start=begin,
            end=begin + chunk.total_compressed_size,
            codec=codec,
            values=chunk.num_values,
            is_nullable=bool(leaf.max_definition_level),
        )
        if is_long(source, described, nbytes):
            chunks[name] = described
    return chunks


def _is_flat(leaf: Any) -> bool:
    """Return whether a column of values of any length is neither in a struct nor in a list."""
    return leaf.physical_type == "BYTE_ARRAY" and not leaf.max_repetition_level and leaf.max_definition_level <= 1


def _texts(kind: pa.DataType) -> pa.DataType | None:
    """The type of texts or bytes that Arrow makes of a column; None for any other."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    known = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return kind if any(is_one(kind) for is_one in known) else None


def joined(
    source: Any,
    chunks: Mapping[str, LongChunk],
    others: Iterator[pa.RecordBatch] | None,
    schema: pa.Schema,
    nbytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group: the columns of ``chunks`` beside those of ``others``, if there are any.

    ``schema``: of the file. ``nbytes``: of a batch's long values, about. Raises pa.ArrowInvalid for a malformed page.
    """
    fields = [schema.field(name) for name in chunks]
    fields = [field.with_type(_texts(field.type)) for field in fields]
    first = _following(others) if others is not None else None  # Arrow has read what it needs of the file by then
    pieces = [_Pieces(_values(source, chunk, nbytes // len(chunks))) for chunk in chunks.values()]
    left = next(iter(chunks.values())).values
    while left:
        if first is None and others is not None:
            first = _following(others)
        rows = min([left, *(piece.rows for piece in pieces), *([first.num_rows] if first is not None else [])])
        columns = [_typed(piece.take(rows), field.type) for piece, field in zip(pieces, fields, strict=True)]
        taken = first.slice(0, rows) if first is not None else None
        yield _beside(taken, fields, columns)
        if first is not None:
            first = first.slice(rows) if rows < first.num_rows else None
        left -= rows
    for piece in pieces:
        piece.end()
    if first is not None or (others is not None and any(batch.num_rows for batch in others)):
        raise pa.ArrowInvalid("a column has fewer values than the others")


def _following(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """The next of ``batches``. Raises pa.ArrowInvalid when there is none."""
    if (batch := next(batches, None)) is None:
        raise pa.ArrowInvalid("a column has more values than the others")
    return batch


def _values(source: Any, chunk: LongChunk, nbytes: int) -> Iterator[pa.BinaryArray]:
    try:
        yield from long_values(source, chunk, nbytes)
    except MALFORMED as error:
        raise pa.ArrowInvalid(str(error)) from error


class _Pieces:
    """The values of a column, of which some are taken at a time."""

    def __init__(self, values: Iterator[pa.BinaryArray]) -> None:
        self._values = values
        self._held: pa.BinaryArray | None = None

    @property
    def rows(self) -> int:
        """How many rows are at hand, at least one. Raises pa.ArrowInvalid when the column has no more."""
        if self._held is None:
            self._held = next(self._values, None)
        if self._held is None:
            raise pa.ArrowInvalid("a column has fewer values than the others")
        return len(self._held)

    def take(self, rows: int) -> pa.BinaryArray:
        """The next ``rows``, which are at hand."""
        if self._held is None:
            raise ValueError("no rows are at hand")
        values = self._held.slice(0, rows)
        self._held = self._held.slice(rows) if rows < len(self._held) else None
        return values

    def end(self) -> None:
        """Raise pa.ArrowInvalid unless all values are taken: the last page is verified when it is read to its end."""
        if self._held is not None or next(self._values, None) is not None:
            raise pa.ArrowInvalid("a column has more values than the others")


def _typed(values: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    """``values`` as texts, unchecked as Arrow reads them, or as bytes."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        values = values.cast(pa.large_binary())
    return values.view(kind)


def _beside(others: pa.RecordBatch | None, fields: Sequence[pa.Field], columns: Sequence[pa.Array]) -> pa.RecordBatch:
    if others is None:
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    schema = pa.schema([*others.schema, *fields], others.schema.metadata)
    return pa.RecordBatch.from_arrays([*others.columns, *columns], schema=schema)

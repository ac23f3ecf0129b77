"""Reads Avro data files of other writers, whole.

Used by the reader. Must not ignore a delete.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.files.avro.containers import BlockReader, Damaged
from skipstone.files.avro.fields import AvroFields, Convert, UnfitField, avro_fields
from skipstone.files.avro.records import AvroRecord, avro_records
from skipstone.files.projections import (
    WAY_OUT,
    DataFileDescription,
    PhysicalFile,
    Positions,
    Projection,
    live_rows,
    schemas_of,
)
from skipstone.tables.arrow import arrow_schema

#: Rows and bytes of records that become one batch.
_BATCH_ROWS, _BATCH_BYTES = 4096, 4 << 20
_READ_AHEAD = 1 << 20


def read_avro_file(
    file: DataFileDescription, columns: Sequence[str], positions: Positions | None = None
) -> Iterator[pa.RecordBatch]:
    """The live rows of ``file`` in file order, as ``read_data_file`` gives them; the file stands for a row group.

    Raises BadData (SOURCE_UNREADABLE) for a file that lacks rows, and for one with fields that do not fit the columns.
    """
    with file.access.open(file.path).new_input(file.path).open() as source:
        try:
            ahead = io.BufferedReader(cast(io.RawIOBase, source), _READ_AHEAD)
            yield from _rows(BlockReader(ahead), file, tuple(columns), positions)
        except Damaged as error:
            message = f"{file.path} is damaged: {error}. Restore it from a copy, or roll the table back."
            raise BadData(Reason.SOURCE_UNREADABLE, message) from error
        except UnfitField as error:
            message = f"{file.path} cannot be read without Spark: {error}. {WAY_OUT}."
            raise BadData(Reason.SOURCE_UNREADABLE, message) from error


def _rows(
    container: BlockReader, file: DataFileDescription, columns: tuple[str, ...], positions: Positions | None
) -> Iterator[pa.RecordBatch]:
    reading = _reading(container, file, columns)
    start = 0
    for batch in reading.batches(container):
        end = start + batch.num_rows
        if positions is None:
            yield from live_rows(reading.projection, batch, np.arange(start, end), 0)
        elif len(mine := positions[slice(*np.searchsorted(positions, [start, end]))]):
            yield from live_rows(reading.projection, batch.take(pa.array(mine - start)), mine, 0)
        start = end
    if start != file.records:
        raise Damaged(f"{start} of {file.records} rows can be read")


@dataclass(frozen=True)
class _Reading:
    """How one file is read: the columns of ``schema``, of each its field in the file and what makes its values."""

    projection: Projection
    layout: Any
    schema: pa.Schema
    converts: Sequence[tuple[str, Convert]]

    def batches(self, container: BlockReader) -> Iterator[pa.RecordBatch]:
        """All rows; without any column they are batches of so many rows."""
        rows: list[AvroRecord] = []
        size = 0
        for row, length in avro_records(self.layout, container.blocks()):
            rows.append(row)
            size += length
            if len(rows) == _BATCH_ROWS or size > _BATCH_BYTES:
                yield self._batch(rows)
                rows, size = [], 0
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: Sequence[AvroRecord]) -> pa.RecordBatch:
        if not self.converts:
            return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], ["none"])
        arrays = [
            _array(field, (convert(row[name]) for row in rows))
            for field, (name, convert) in zip(self.schema, self.converts, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _array(field: pa.Field, values: Iterator[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise Damaged(f"column '{field.name}' holds what its type does not allow ({error})") from error


def _reading(container: BlockReader, file: DataFileDescription, columns: tuple[str, ...]) -> _Reading:
    mapping = NameMapping.model_validate_json(file.name_mapping_json) if file.name_mapping_json else None
    fields = avro_fields(container.schema, mapping)
    schema, _ = schemas_of(file.schema_json)
    held = [field for field in schema.fields if field.field_id in fields.top]
    physical = arrow_schema(Schema(*held))
    projection = Projection(PhysicalFile.of(file, physical), columns)
    wanted = [field for field in held if field.name in projection.physical_names]
    converts = [_convert(fields, field.field_id, schema) for field in wanted]
    return _Reading(projection, fields.layout, pa.schema([physical.field(field.name) for field in wanted]), converts)


def _convert(fields: AvroFields, number: int, schema: Schema) -> tuple[str, Convert]:
    column = schema.find_field(number)
    try:
        return fields.top[number].name, fields.convert(number, column.field_type)
    except UnfitField as error:
        raise UnfitField(f"column '{column.name}': {error}") from error

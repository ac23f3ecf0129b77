"""Columns of a data file as those of the schema to read in: by field id, in its Arrow types, without deleted rows.

Used by the readers of each file format. Must not open files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField, PrimitiveType
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.opaque import Opaque, holds_opaque
from skipstone.compat.pyiceberg import to_requested_schema
from skipstone.files.deletions import POSITION_CONTENT, DeleteDescription, Deletions
from skipstone.files.opaque.physical import known_types, require_whole, whole_values, with_opaque
from skipstone.tables.arrow import (
    LAST_UPDATED,
    ROW_ID,
    arrow_schema,
    batch_of,
    default_scalar,
    field_id,
    is_widened,
    nulls,
)
from skipstone.tables.parquet.unpacking import is_of_texts
from skipstone.tables.parquetfiles import BATCH_BYTES
from skipstone.tables.storage import ON_VOLUMES, FileAccess

#: Extra column a reader can add: the row's ordinal in the file, before deletes (int64). A column of a table may be
#: called _pos; no engine makes one with a null character in its name.
POSITION_COLUMN = "\0pos"
#: Extra column: the Parquet row group that holds the row (int32).
ROW_GROUP_COLUMN = "\0row_group"
#: Ends the sentence on a file that only other engines read.
WAY_OUT = "Query the table with skipstone.sql, or write its files again as Parquet with the engine that wrote it"
Positions = npt.NDArray[np.int64]
_EXTRA_FIELDS = {
    POSITION_COLUMN: pa.field(POSITION_COLUMN, pa.int64(), nullable=False),
    ROW_GROUP_COLUMN: pa.field(ROW_GROUP_COLUMN, pa.int32(), nullable=False),
}


@dataclass(frozen=True)
class DataFileDescription:
    """A data file as tasks take it: picklable. ``file_id`` is the ordinal in the FileSet it came from.

    ``schema_json``: Iceberg JSON of the schema to read in. ``constants``: values of identity partition fields by
    source field id, for columns that the file does not hold. ``name_mapping_json``: for files without field ids.
    ``partition``: Iceberg's internal values, of the partition spec ``spec_id``. ``access``: how the file is reached.
    ``first_row_id``: of rows that do not hold an id of their own; None where rows have none. ``data_sequence``: of the
    commit that last changed rows which do not name one.
    """

    file_id: int
    path: str
    size: int
    records: int
    schema_json: str
    file_format: str = "PARQUET"
    deletes: tuple[DeleteDescription, ...] = ()
    constants: tuple[tuple[int, object], ...] = ()
    name_mapping_json: str | None = None
    spec_id: int = 0
    partition: tuple[Any, ...] = ()
    access: FileAccess = ON_VOLUMES
    first_row_id: int | None = None
    data_sequence: int = 0


@dataclass(frozen=True)
class PhysicalFile:
    """A data file as its own footer tells it: ``schema`` is that of its columns. ``deletions``: of its rows."""

    file: DataFileDescription
    schema: pa.Schema
    deletions: Deletions | None

    @classmethod
    def of(cls, file: DataFileDescription, schema: pa.Schema) -> PhysicalFile:
        """With its deletes read."""
        return cls(file, schema, deletions_of(file))


def deletions_of(file: DataFileDescription) -> Deletions | None:
    """The deletes of a file; None when it has none."""
    if not file.deletes:
        return None
    fields = schemas_of(file.schema_json)[1]
    types = {number: fields[number].type for delete in file.deletes for number in delete.equality_ids}
    return Deletions(file.path, file.deletes, types)


def deleted_positions(file: DataFileDescription, *, own: bool = False) -> Positions:
    """Rows of ``file`` that position deletes and deletion vectors name, ascending; ``own``: only those of its own."""
    deletes = [delete for delete in file.deletes if delete.content == POSITION_CONTENT and (delete.is_own or not own)]
    return Deletions(file.path, deletes, {}).positions


@lru_cache(maxsize=16)
def schemas_of(schema_json: str) -> tuple[Schema, dict[int | None, pa.Field]]:
    """A schema, and its Arrow fields by field id: the same for all files of a task."""
    schema = Schema.model_validate_json(schema_json)
    return schema, {field_id(field): field for field in arrow_schema(schema)}


@lru_cache(maxsize=16)
def _opaque_columns(schema_json: str) -> tuple[NestedField, ...]:
    """The columns that are of opaque types, or hold values of them."""
    return tuple(field for field in schemas_of(schema_json)[0].fields if holds_opaque(field.field_type))


class Projection:
    """How the columns of one data file become the columns asked for."""

    def __init__(self, physical: PhysicalFile, columns: tuple[str, ...]) -> None:
        file = self.file = physical.file
        self.schema, self._arrow = schemas_of(file.schema_json)
        fields = {field.name: field for field in self.schema.fields}
        self.columns = [_EXTRA_FIELDS.get(name) or fields[name] for name in columns]
        self._physical = physical.schema
        self._names = self._names_by_id()
        require_whole(
            file.path,
            self._physical,
            [column for column in _opaque_columns(file.schema_json) if column.name in columns],
        )
        self.equality_ids = sorted({field for delete in file.deletes for field in delete.equality_ids})
        self.deletions = physical.deletions

    @property
    def physical_names(self) -> list[str]:
        """Columns of the file to read."""
        wanted = {column.field_id for column in self.columns if isinstance(column, NestedField)}
        return [self._names[number] for number in sorted(wanted | set(self.equality_ids)) if number in self._names]

    def physical(self, column: str) -> pa.Field | None:
        """The field of the file that ``column`` is read from."""
        name = self._names.get(self.schema.find_field(column).field_id)
        return None if name is None else self._physical.field(name)

    @property
    def output(self) -> pa.Schema:
        """The schema of the batches."""
        return pa.schema(
            [self._arrow[column.field_id] if isinstance(column, NestedField) else column for column in self.columns]
        )

    def physical_texts(self, columns: Collection[str]) -> list[str]:
        """Columns of the file that ``columns`` of strings or bytes are read from."""
        numbers = [column.field_id for column in self.columns if column.name in columns]
        return [self._names[number] for number in numbers if number in self._names]

    def column(self, batch: pa.RecordBatch | None, number: int, count: int, *, packed: bool = False) -> pa.Array:
        """Column ``number`` of the schema for ``count`` rows, in its kernel type; ``packed``: maybe in a dictionary."""
        target = self._arrow[number].type
        if batch is None or number not in self._names:
            constant = self._constant(number, target)
            return pa.repeat(constant, count) if constant.is_valid else nulls(count, target)
        values = batch.column(batch.schema.get_field_index(self._names[number]))
        if values.type == target or (packed and is_of_texts(values.type) and values.type.value_type == target):
            return values
        field = self.schema.find_field(number)
        if isinstance(field.field_type, Opaque):
            return whole_values(values, field.field_type)
        if not isinstance(field.field_type, PrimitiveType):
            return self._nested(batch, field, target)
        if not is_widened(values.type, target):
            raise BadData(
                Reason.SOURCE_UNREADABLE,
                f"{self.file.path} cannot be read: its column {self._names[number]!r} is {values.type}, and "
                f"{field.name!r} of the table is {field.field_type}: write the file again with that type, or take the "
                "name out of schema.name-mapping.default of the table if it is that of another column",
            )
        return values.cast(target)

    @cached_property
    def repeated_bytes(self) -> int:
        """Bytes in each row of values that the file does not hold."""
        numbers = {column.field_id for column in self.columns if isinstance(column, NestedField)}
        lacking = (numbers | set(self.equality_ids)) - self._names.keys()
        return sum(_size(self._constant(number, self._arrow[number].type)) for number in lacking)

    def _constant(self, number: int, target: pa.DataType) -> pa.Scalar:
        """Return the value of a column that the file does not hold: the partition value, else the default."""
        default = self.schema.find_field(number).initial_default
        value = dict(self.file.constants).get(number, default)
        return default_scalar(value, target)

    def _nested(self, batch: pa.RecordBatch, field: NestedField, target: pa.DataType) -> pa.Array:
        selected = batch.select([self._names[field.field_id]])
        projected = to_requested_schema(Schema(field), self._file_schema, selected)
        return projected.column(0).cast(target)

    @cached_property
    def _mapping(self) -> NameMapping | None:
        text = self.file.name_mapping_json
        return NameMapping.model_validate_json(text) if text else None

    @cached_property
    def _file_schema(self) -> Schema:
        """The columns of the file that a reader knows; others may have names, or types, that mean nothing here."""
        known = set(self._names.values())
        fields = pa.schema([field for field in self._physical if field.name in known])
        plain, opaque = known_types(fields, self.schema)
        return with_opaque(pyarrow_to_schema(plain, self._mapping, downcast_ns_timestamp_to_us=True), opaque)

    def _names_by_id(self) -> dict[int, str]:
        """Physical column names by field id; files without ids go by the table's name mapping."""
        names = {number: field.name for field in self._physical if (number := field_id(field)) is not None}
        if names:
            return names
        if self._mapping is None:
            raise BadData(
                Reason.SOURCE_UNREADABLE, f"{self.file.path} has no field ids and the table has no name mapping."
            )
        numbers = {
            name: mapped.field_id for mapped in self._mapping for name in mapped.names if mapped.field_id is not None
        }
        return {numbers[name]: name for name in self._physical.names if name in numbers}


def _size(value: pa.Scalar) -> int:
    """Bytes of a value."""
    return int(pa.repeat(value, 1).nbytes) if value.is_valid else 0


def _nothing(_: int) -> None:
    """Spend nothing."""


@dataclass(frozen=True)
class Decoding:
    """How a file is decoded: about ``batch_bytes`` at once, however long its values are, after which ``spend`` is told
    of the bytes, those of deleted rows and of columns that deletes need too. What it raises ends the reading.

    ``packed``: columns of strings or bytes that come in dictionaries where the file has few distinct values of them.
    """

    batch_bytes: int = BATCH_BYTES
    spend: Callable[[int], None] = _nothing
    packed: frozenset[str] = frozenset()


_USUAL = Decoding()


def live_rows(
    projection: Projection,
    batch: pa.RecordBatch | None,
    positions: Positions,
    group: int,
    decoding: Decoding = _USUAL,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``batch`` that are not deleted, as the columns asked for; ``batch`` None: columns the file lacks.

    In pieces where a value that the file does not hold is long: it would be repeated for all rows at once.
    """
    step = max(1, min(len(positions), decoding.batch_bytes // max(projection.repeated_bytes, 1)))
    for start in range(0, len(positions), step):
        piece = None if batch is None else batch.slice(start, step)
        yield from _live_rows(projection, piece, positions[start : start + step], group, decoding)


def _live_rows(
    projection: Projection,
    batch: pa.RecordBatch | None,
    positions: Positions,
    group: int,
    decoding: Decoding,
) -> Iterator[pa.RecordBatch]:
    count = len(positions)
    extra = {
        POSITION_COLUMN: lambda: pa.array(positions, pa.int64()),
        ROW_GROUP_COLUMN: lambda: pa.array(np.full(count, group, dtype=np.int32)),
    }
    arrays = [
        _inherited(
            projection.file,
            column.field_id,
            projection.column(batch, column.field_id, count, packed=column.name in decoding.packed),
            positions,
        )
        if isinstance(column, NestedField)
        else extra[column.name]()
        for column in projection.columns
    ]
    schema = projection.output
    if decoding.packed:
        schema = pa.schema([field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)])
    rows = batch_of(arrays, schema, count)
    decoding.spend(rows.nbytes)
    if projection.deletions is not None:
        keys = {number: projection.column(batch, number, count) for number in projection.equality_ids}
        decoding.spend(sum(key.nbytes for key in keys.values()))
        live = projection.deletions.live_rows(positions, keys)
        rows = rows if live is None else rows.filter(live)
    if rows.num_rows:
        yield rows


def _inherited(file: DataFileDescription, number: int, stored: pa.Array, positions: Positions) -> pa.Array:
    """Values of a column; of one with the lineage of rows also those that rows have of their file.

    Source: "Row lineage assignment" of the table specification of Apache Iceberg.
    """
    if number not in (ROW_ID, LAST_UPDATED):
        return stored
    if number == LAST_UPDATED:
        return pc.coalesce(stored, pa.repeat(pa.scalar(file.data_sequence, pa.int64()), len(positions)))
    if file.first_row_id is None:
        return pa.nulls(len(positions), pa.int64())
    return pc.coalesce(stored, pa.array(file.first_row_id + positions, pa.int64()))

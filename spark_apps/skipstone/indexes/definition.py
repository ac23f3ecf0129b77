"""From the columns a user names to the definition of an index and the shape of its Iceberg table.

Called by reindex, coverage and lookup. Definitions hold field ids and storage types, so that a renamed or widened
column keeps its index. Must not open catalogs or read data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from skipstone_core.errors import BadSpec
from skipstone_core.ids import INDEX_DEFINITION_PROPERTY, INDEX_TABLE_UUID_PROPERTY, INDEX_UID_PROPERTY
from skipstone_core.indexing.indexes import MAX_INDEX_COLUMNS, IndexColumn, IndexDefinition
from skipstone_core.reasons import Reason

from skipstone.indexes.keys import arrow_type, column_type, storage_type

ENTRY = "entry"
COVER = "cover"
#: The definition in full, from which readers rebuild it: JSON list of {"fieldId", "type", "name"}.
COLUMNS_PROPERTY = "skipstone.index.columns"
#: Segments that could not be indexed: JSON object of segment id to sentence.
FAILED_PROPERTY = "skipstone.index.failed"

#: Field id of ``file_id`` in every index table.
FILE_ID_FIELD = 3
_KIND_FIELD, _LEVEL_FIELD, _FIRST_KEY_FIELD = 1, 2, 100


@dataclass(frozen=True)
class StoredDefinition:
    """A definition as an index table's properties hold it, with the column names at build time."""

    definition: IndexDefinition
    names: tuple[str, ...]
    table_uuid: str
    owner_uid: str


def key_name(position: int) -> str:
    """Name of a key column in the index table."""
    return f"k{position}"


def define_index(schema: Schema, columns: Sequence[str]) -> IndexDefinition:
    """The definition of an index on ``columns`` of ``schema``.

    Raises BadSpec naming spec.columns when a column is missing, given twice, too many, or of a type without keys.
    """
    if not 1 <= len(columns) <= MAX_INDEX_COLUMNS:
        raise _bad_columns(Reason.INVALID_SPEC, f"{len(columns)} columns given, name 1 to {MAX_INDEX_COLUMNS}")
    if repeated := sorted({name for name in columns if columns.count(name) > 1}):
        raise _bad_columns(Reason.INVALID_SPEC, f"column {repeated[0]!r} is named twice, name it once")
    return IndexDefinition(tuple(_index_column(schema, name) for name in columns))


def _index_column(schema: Schema, name: str) -> IndexColumn:
    field = next((field for field in schema.fields if field.name == name), None)
    if field is None:
        raise _bad_columns(Reason.COLUMN_NOT_FOUND, _missing_column(schema, name))
    storage = storage_type(field.field_type)
    if storage is None:
        message = f"column {name!r} is a {field.field_type}, which has no keys; name columns of simple types"
        raise _bad_columns(Reason.COLUMN_TYPE_UNSUPPORTED, message)
    return IndexColumn(field.field_id, storage)


def _missing_column(schema: Schema, name: str) -> str:
    try:
        schema.find_field(name)
    except (ValueError, ValidationError):
        known = ", ".join(field.name for field in schema.fields[:20])
        return f"column {name!r} is not in the table, which has {known}"
    return f"column {name!r} is inside another column, only top-level columns can be indexed"


def _bad_columns(reason: Reason, message: str) -> BadSpec:
    return BadSpec(reason, message, field="spec.columns")


def index_schema(definition: IndexDefinition) -> Schema:
    """Schema of the index table: partition columns, position, coverage columns, then one column per key."""
    fixed = [
        NestedField(_KIND_FIELD, "kind", StringType(), required=True, doc="entry or cover"),
        NestedField(_LEVEL_FIELD, "level", IntegerType(), required=True, doc="0: as built; n: merged n times"),
        NestedField(FILE_ID_FIELD, "file_id", IntegerType(), doc="number of the data file, given by its cover row"),
        NestedField(4, "row_group", IntegerType(), doc="row group of the row in its Parquet file"),
        NestedField(5, "pos", LongType(), doc="position of the row in its file"),
        NestedField(6, "path", StringType(), doc="cover: location of the data file"),
        NestedField(7, "size", LongType(), doc="cover: size of the data file in bytes"),
        NestedField(8, "records", LongType(), doc="cover: rows of the data file"),
        NestedField(9, "segment", LongType(), doc="cover: file sequence number of the data file"),
        NestedField(10, "table_uuid", StringType(), doc="cover: UUID of the indexed table"),
        NestedField(11, "definition", StringType(), doc="cover: digest of the definition of the index"),
    ]
    keys = [
        NestedField(_FIRST_KEY_FIELD + i, key_name(i), column_type(column.storage_type), doc=f"key {i}")
        for i, column in enumerate(definition.columns)
    ]
    return Schema(*fixed, *keys)


def entry_schema(storages: Sequence[str]) -> pa.Schema:
    """Arrow schema of entries before kind and level are added: k0 …, file_id, row_group, pos."""
    keys = [pa.field(key_name(i), arrow_type(storage)) for i, storage in enumerate(storages)]
    return pa.schema(
        [*keys, pa.field("file_id", pa.int32()), pa.field("row_group", pa.int32()), pa.field("pos", pa.int64())]
    )


def index_partition_spec() -> PartitionSpec:
    """Entries and cover rows, and each merge level, live in partitions of their own."""
    return PartitionSpec(
        PartitionField(_KIND_FIELD, 1000, IdentityTransform(), "kind"),
        PartitionField(_LEVEL_FIELD, 1001, IdentityTransform(), "level"),
    )


def index_properties(
    definition: IndexDefinition, names: Sequence[str], *, table_uuid: str, owner_uid: str
) -> dict[str, str]:
    """Properties of a new index table: whose it is, of which table, of what."""
    columns = [
        {"fieldId": column.field_id, "type": column.storage_type, "name": name}
        for column, name in zip(definition.columns, names, strict=True)
    ]
    return {
        "format-version": "2",
        INDEX_UID_PROPERTY: owner_uid,
        INDEX_TABLE_UUID_PROPERTY: table_uuid,
        INDEX_DEFINITION_PROPERTY: definition.digest,
        COLUMNS_PROPERTY: json.dumps(columns, separators=(",", ":")),
    }


def stored_definition(properties: Mapping[str, str]) -> StoredDefinition | None:
    """Read a definition back; None when the properties are not those of an index of this layout."""
    try:
        columns = json.loads(properties[COLUMNS_PROPERTY])
        definition = IndexDefinition(tuple(IndexColumn(int(one["fieldId"]), str(one["type"])) for one in columns))
        names = tuple(str(one["name"]) for one in columns)
    except (KeyError, ValueError, TypeError):
        return None
    if not columns or definition.digest != properties.get(INDEX_DEFINITION_PROPERTY):
        return None
    return StoredDefinition(
        definition,
        names,
        table_uuid=properties.get(INDEX_TABLE_UUID_PROPERTY, ""),
        owner_uid=properties.get(INDEX_UID_PROPERTY, ""),
    )


@dataclass(frozen=True)
class Misfit:
    """Why an index serves its table badly or not at all."""

    reason: Reason
    message: str


def definition_problem(schema: Schema, stored: StoredDefinition) -> Misfit | None:
    """Why a stored definition no longer fits the table's schema; None when it does. Renamed columns fit."""
    by_id = {field.field_id: field for field in schema.fields}
    by_name = {field.name: field for field in schema.fields}
    for column, name in zip(stored.definition.columns, stored.names, strict=True):
        namesake = by_name.get(name)
        if namesake is not None and namesake.field_id != column.field_id:
            return Misfit(
                Reason.COLUMN_REPLACED,
                f"column {name!r} was replaced by a new column; delete the index and create it again",
            )
        field = by_id.get(column.field_id)
        if field is None:
            return Misfit(Reason.COLUMN_NOT_FOUND, f"column {name!r} was dropped from the table; delete the index")
        if storage_type(field.field_type) != column.storage_type:
            return Misfit(
                Reason.COLUMN_TYPE_UNSUPPORTED,
                f"column {name!r} changed its type to {field.field_type}; delete the index and create it again",
            )
    return None

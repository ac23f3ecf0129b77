"""From the columns a user names to the definition of an index and the shape of its Iceberg table.

Called by reindex, coverage and lookup. Definitions hold field ids and storage types, so that a renamed or widened
column keeps its index. Must not open catalogs or read data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from skipstone_core.codec import decode, encode
from skipstone_core.contract.indextypes import NO_PARAMETERS, IndexParameters, IndexType, find_type
from skipstone_core.contract.stores import HBaseRef
from skipstone_core.errors import BadSpec, ContractViolation
from skipstone_core.ids import INDEX_DEFINITION_PROPERTY, INDEX_TABLE_UUID_PROPERTY, INDEX_UID_PROPERTY
from skipstone_core.indexing.indexes import (
    MAX_INCLUDED_COLUMNS,
    MAX_INDEX_COLUMNS,
    IndexColumn,
    IndexDefinition,
)
from skipstone_core.reasons import Reason

from skipstone.indexes.keys import arrow_type, column_type, compared_storage, storage_type
from skipstone.indexes.kinds import kind_of
from skipstone.indexes.values import value_arrow_type, value_column_type, value_storage_type

ENTRY = "entry"
COVER = "cover"
#: The definition in full, from which readers rebuild it: JSON lists of {"fieldId", "type", "name"}, of the keys and of
#: the included columns. A definition has no property for what it is without.
COLUMNS_PROPERTY = "skipstone.index.columns"
INCLUDED_PROPERTY = "skipstone.index.include"
#: The store outside the index table that holds its entries, as a JSON object without credentials.
STORE_PROPERTY = "skipstone.index.store"
#: Segments that could not be indexed: JSON object of segment id to sentence.
FAILED_PROPERTY = "skipstone.index.failed"
#: Readers leave the index alone while it covers a smaller percentage of the rows.
UNUSED_BELOW_PROPERTY = "skipstone.index.unused-below-percent"

#: Field id of ``file_id`` in every index table.
FILE_ID_FIELD = 3
_GENERATION_FIELD = 13
_KIND_FIELD, _LEVEL_FIELD, _FIRST_KEY_FIELD, _FIRST_VALUE_FIELD = 1, 2, 100, 200
_COLUMNS, _INCLUDE = "spec.columns", "spec.include"
#: The properties of the parameters that the type of an index takes.
_PARAMETERS: Mapping[str, str] = {part.name: f"skipstone.index.{part.name}" for part in fields(IndexParameters)}


@dataclass(frozen=True)
class IndexNames:
    """The columns of an index by their names, as a user writes them."""

    columns: tuple[str, ...]
    included: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexShape:
    """What an index is besides its columns: the parameters of its type, and the store that holds its entries."""

    parameters: IndexParameters = NO_PARAMETERS
    store: HBaseRef | None = None


PLAIN = IndexShape()


@dataclass(frozen=True)
class StoredDefinition:
    """A definition as an index table's properties hold it, with the column names at build time.

    ``store``: what holds the entries, None: the index table.
    """

    definition: IndexDefinition
    names: IndexNames
    table_uuid: str
    owner_uid: str
    store: HBaseRef | None = None


def key_name(position: int) -> str:
    """Name of a key column in the index table."""
    return f"k{position}"


def value_name(position: int) -> str:
    """Name of the column of an included column in the index table."""
    return f"v{position}"


@dataclass(frozen=True)
class EntryColumn:
    """A column of entries: its name in the index table, the storage type in which it compares with literals, and
    whether it is a key.
    """

    name: str
    storage: str
    is_key: bool


def entry_columns(definition: IndexDefinition) -> dict[int, EntryColumn]:
    """Return the columns of entries by field id of the table: keys in index order, then included values."""
    keys = {
        column.field_id: EntryColumn(key_name(i), column.storage_type, True)  # noqa: FBT003
        for i, column in enumerate(definition.columns)
    }
    values = {
        column.field_id: EntryColumn(value_name(i), compared_storage(column.storage_type), False)  # noqa: FBT003
        for i, column in enumerate(definition.included)
    }
    return {**keys, **values}


def define_index(schema: Schema, names: IndexNames, shape: IndexShape = PLAIN) -> IndexDefinition:
    """The definition of an index on columns of ``schema``.

    Raises BadSpec naming spec.columns or spec.include when a column is missing, given twice, too many, or of a type
    that the index cannot hold, and the field of a parameter that is out of range.
    """
    parameters = shape.parameters
    for known in parameters.type.traits.parameters:
        if not known.minimum <= (number := parameters.given[known.name]) <= known.maximum:
            message = f"{number} {known.name} given, set {known.minimum} to {known.maximum}"
            raise _bad(f"spec.{known.name}", Reason.INVALID_SPEC, message)
    _require_names(names)
    if shape.store is not None and (names.included or parameters.given):
        field = _INCLUDE if names.included else "spec.type"
        message = f"an index with entries in {shape.store.type} is of type Lookup and has no included columns"
        raise _bad(field, Reason.INVALID_SPEC, f"{message}; create the index again without {field.split('.')[1]}")
    definition = IndexDefinition(
        tuple(_index_column(schema, name, _COLUMNS) for name in names.columns),
        tuple(_index_column(schema, name, _INCLUDE) for name in names.included),
        parameters,
        None if shape.store is None else shape.store.type,
    )
    _require_fit(schema, definition)
    return definition


def _require_names(names: IndexNames) -> None:
    if not 1 <= len(names.columns) <= MAX_INDEX_COLUMNS:
        count = len(names.columns)
        raise _bad(_COLUMNS, Reason.INVALID_SPEC, f"{count} columns given, name 1 to {MAX_INDEX_COLUMNS}")
    if len(names.included) > MAX_INCLUDED_COLUMNS:
        count = len(names.included)
        raise _bad(_INCLUDE, Reason.INVALID_SPEC, f"{count} columns given, name at most {MAX_INCLUDED_COLUMNS}")
    for field, given in ((_COLUMNS, names.columns), (_INCLUDE, names.included)):
        if repeated := sorted({name for name in given if given.count(name) > 1}):
            raise _bad(field, Reason.INVALID_SPEC, f"column {repeated[0]!r} is named twice, name it once")
    if both := sorted({*names.columns} & {*names.included}):
        held = f"column {both[0]!r} is among spec.columns already, whose values the index holds"
        message = f"{held}; create the index again without it"
        raise _bad(_INCLUDE, Reason.INVALID_SPEC, message)


def _require_fit(schema: Schema, definition: IndexDefinition) -> None:
    for number in definition.field_ids:
        field = schema.find_field(number)
        if unfit := kind_of(definition).find_unfit(field.field_type):
            message = f"column {field.name!r} is a {field.field_type}, {unfit}"
            raise _bad(_COLUMNS, Reason.COLUMN_TYPE_UNSUPPORTED, message)


def _index_column(schema: Schema, name: str, spec_field: str) -> IndexColumn:
    field = next((field for field in schema.fields if field.name == name), None)
    if field is None:
        raise _bad(spec_field, Reason.COLUMN_NOT_FOUND, _missing_column(schema, name))
    storage = (storage_type if spec_field == _COLUMNS else value_storage_type)(field.field_type)
    if storage is None:
        unfit = "has no keys" if spec_field == _COLUMNS else "cannot be included"
        problem = f"column {name!r} is a {field.field_type}, which {unfit}"
        message = f"{problem}; create the index again with columns of simple types"
        raise _bad(spec_field, Reason.COLUMN_TYPE_UNSUPPORTED, message)
    return IndexColumn(field.field_id, storage)


def _missing_column(schema: Schema, name: str) -> str:
    try:
        schema.find_field(name)
    except (ValueError, ValidationError):
        known = ", ".join(field.name for field in schema.fields[:20])
        return (
            f"column {name!r} is not in the table, which has {known}; add it to the table, or create the index again "
            "with another column"
        )
    return f"column {name!r} is inside another column; create the index again with columns at the top of the schema"


def _bad(field: str, reason: Reason, message: str) -> BadSpec:
    return BadSpec(reason, message, field=field)


def index_schema(definition: IndexDefinition) -> Schema:
    """Schema of the index table: partition columns, position, coverage columns, then the keys, then included values.

    Nothing is required: a file of entries holds the columns of entries only, and readers of Iceberg tables put
    partition values and nulls in the place of the others.
    """
    fixed = [
        NestedField(_KIND_FIELD, "kind", StringType(), doc="entry or cover; entry files leave it out"),
        NestedField(_LEVEL_FIELD, "level", IntegerType(), doc="0: as built; n: merged n times; likewise"),
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
    fixed.extend(kind_of(definition).partitions)
    if definition.store is not None:
        doc = "cover: which entries of the store are those of the data file"
        fixed.append(NestedField(_GENERATION_FIELD, "generation", StringType(), doc=doc))
    keys = [
        NestedField(_FIRST_KEY_FIELD + i, key_name(i), column_type(column.storage_type), doc=f"key {i}")
        for i, column in enumerate(definition.columns)
    ]
    values = [
        NestedField(_FIRST_VALUE_FIELD + i, value_name(i), value_column_type(column.storage_type), doc=f"included {i}")
        for i, column in enumerate(definition.included)
    ]
    return Schema(*fixed, *keys, *values)


def entry_schema(definition: IndexDefinition) -> pa.Schema:
    """Arrow schema of entries as stored, before kind and level are added: k0 …, file_id, row_group, pos, v0 …"""
    keys = [pa.field(key_name(i), arrow_type(storage)) for i, storage in enumerate(definition.key_storages)]
    values = [
        pa.field(value_name(i), value_arrow_type(column.storage_type)) for i, column in enumerate(definition.included)
    ]
    place = [pa.field("file_id", pa.int32()), pa.field("row_group", pa.int32()), pa.field("pos", pa.int64())]
    return pa.schema([*keys, *place, *values])


def compared_schema(definition: IndexDefinition) -> pa.Schema:
    """As ``entry_schema``, in the types in which values compare with literals."""
    compared = {column.name: column for column in entry_columns(definition).values() if not column.is_key}
    return pa.schema(
        field.with_type(value_arrow_type(compared[field.name].storage)) if field.name in compared else field
        for field in entry_schema(definition)
    )


def index_partition_spec(definition: IndexDefinition) -> PartitionSpec:
    """Entries and cover rows, each merge level and each bucket live in partitions of their own."""
    fields = [
        PartitionField(_KIND_FIELD, 1000, IdentityTransform(), "kind"),
        PartitionField(_LEVEL_FIELD, 1001, IdentityTransform(), "level"),
    ]
    fields += [
        PartitionField(own.field_id, 1002 + i, IdentityTransform(), own.name)
        for i, own in enumerate(kind_of(definition).partitions)
    ]
    return PartitionSpec(*fields)


def index_properties(
    definition: IndexDefinition, names: IndexNames, *, table_uuid: str, owner_uid: str
) -> dict[str, str]:
    """Properties of a new index table: whose it is, of which table, of what."""
    included = {INCLUDED_PROPERTY: _to_json(definition.included, names.included)} if definition.included else {}
    parameters = {_PARAMETERS[name]: str(number) for name, number in definition.parameters.given.items()}
    return {
        "format-version": "2",
        INDEX_UID_PROPERTY: owner_uid,
        INDEX_TABLE_UUID_PROPERTY: table_uuid,
        INDEX_DEFINITION_PROPERTY: definition.digest,
        COLUMNS_PROPERTY: _to_json(definition.columns, names.columns),
        **included,
        **parameters,
    }


def _to_json(columns: Sequence[IndexColumn], names: Sequence[str]) -> str:
    described = [
        {"fieldId": column.field_id, "type": column.storage_type, "name": name}
        for column, name in zip(columns, names, strict=True)
    ]
    return json.dumps(described, separators=(",", ":"))


def stored_type(properties: Mapping[str, str]) -> IndexType:
    """Return the type of the index whose table has ``properties``, whatever else they say."""
    return find_type([name for name, key in _PARAMETERS.items() if key in properties])


def unused_below_percent(properties: Mapping[str, str]) -> int:
    """The least percentage of rows that an index has to cover to be used; 0 for a value that is not one."""
    text = properties.get(UNUSED_BELOW_PROPERTY, "0")
    return min(100, int(text)) if text.isdecimal() else 0


def stored_definition(properties: Mapping[str, str]) -> StoredDefinition | None:
    """Read a definition back; None when the properties are not those of an index of this layout."""
    try:
        columns, names = _from_json(properties[COLUMNS_PROPERTY])
        included, included_names = _from_json(properties.get(INCLUDED_PROPERTY, "[]"))
        parameters = {name: int(properties[key]) for name, key in _PARAMETERS.items() if key in properties}
        store = stored_store(properties)
    except (KeyError, ValueError, TypeError, ContractViolation):
        return None
    kind = None if store is None else store.type
    definition = IndexDefinition(columns, included, IndexParameters(**parameters), kind)
    if not columns or definition.digest != properties.get(INDEX_DEFINITION_PROPERTY):
        return None
    return StoredDefinition(
        definition,
        IndexNames(names, included_names),
        table_uuid=properties.get(INDEX_TABLE_UUID_PROPERTY, ""),
        owner_uid=properties.get(INDEX_UID_PROPERTY, ""),
        store=store,
    )


def store_property(store: HBaseRef) -> str:
    """The value of STORE_PROPERTY."""
    return json.dumps(encode(store), sort_keys=True)


def stored_store(properties: Mapping[str, str]) -> HBaseRef | None:
    """The store that holds the entries. Raises ValueError or ContractViolation for what names none of this version."""
    text = properties.get(STORE_PROPERTY)
    return None if text is None else decode(HBaseRef, json.loads(text), path=STORE_PROPERTY)


def _from_json(text: str) -> tuple[tuple[IndexColumn, ...], tuple[str, ...]]:
    """The columns and their names."""
    described = json.loads(text)
    columns = tuple(IndexColumn(int(column["fieldId"]), str(column["type"])) for column in described)
    return columns, tuple(str(column["name"]) for column in described)


@dataclass(frozen=True)
class Misfit:
    """Why an index serves its table badly or not at all. ``field``: of the resource that names the column."""

    reason: Reason
    message: str
    field: str = _COLUMNS


def definition_problem(schema: Schema, stored: StoredDefinition) -> Misfit | None:
    """Why a stored definition no longer fits the table's schema; None when it does. Renamed columns fit."""
    definition, names = stored.definition, stored.names
    columns = [(_COLUMNS, *pair) for pair in zip(definition.columns, names.columns, strict=True)]
    columns += [(_INCLUDE, *pair) for pair in zip(definition.included, names.included, strict=True)]
    problems = (_column_problem(schema, column, name, field) for field, column, name in columns)
    return next((problem for problem in problems if problem), None) or _unfit_problem(schema, definition)


def _column_problem(schema: Schema, column: IndexColumn, name: str, spec_field: str) -> Misfit | None:
    namesake = next((field for field in schema.fields if field.name == name), None)
    if namesake is not None and namesake.field_id != column.field_id:
        message = f"column {name!r} was replaced by a new column; delete the index and create it again"
        return Misfit(Reason.COLUMN_REPLACED, message, spec_field)
    field = next((field for field in schema.fields if field.field_id == column.field_id), None)
    if field is None:
        message = f"column {name!r} was dropped from the table; delete the index"
        return Misfit(Reason.COLUMN_NOT_FOUND, message, spec_field)
    # an included decimal may be stored as a key is
    fitting = (storage_type,) if spec_field == _COLUMNS else (storage_type, value_storage_type)
    if column.storage_type not in {storage(field.field_type) for storage in fitting}:
        message = f"column {name!r} changed its type to {field.field_type}; delete the index and create it again"
        return Misfit(Reason.COLUMN_TYPE_UNSUPPORTED, message, spec_field)
    return None


def _unfit_problem(schema: Schema, definition: IndexDefinition) -> Misfit | None:
    try:
        _require_fit(schema, definition)
    except BadSpec as error:
        return Misfit(error.reason, f"{error}; delete the index", error.field)
    return None

"""The Arrow types of Iceberg schemas: the one place that says how a column looks in our kernels.

Used by readers, writers, bounds and Spark schemas. Must not read files.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

FIELD_ID_KEY = b"PARQUET:field_id"
_ORC_FIELD_ID_KEY = b"iceberg.id"


def arrow_schema(schema: Schema) -> pa.Schema:
    """The kernel types of ``schema`` with field ids in the fields' metadata.

    Strings, binaries and lists have 32-bit offsets (Spark's own), uuid is ``binary(16)``, timestamptz is UTC.
    """
    return pa.schema([_plain_field(field) for field in schema_to_pyarrow(schema)])


def arrow_type_of(kind: IcebergType) -> pa.DataType:
    """The kernel type of one Iceberg type."""
    return _plain_type(schema_to_pyarrow(kind))


def field_id(field: pa.Field) -> int | None:
    """The Iceberg field id that ``field`` carries, or None."""
    metadata = field.metadata or {}
    raw = metadata.get(FIELD_ID_KEY, metadata.get(_ORC_FIELD_ID_KEY))
    return int(raw) if raw is not None else None


def _plain_field(field: pa.Field) -> pa.Field:
    metadata = {FIELD_ID_KEY: field.metadata[FIELD_ID_KEY]} if field.metadata else None
    return pa.field(field.name, _plain_type(field.type), nullable=field.nullable, metadata=metadata)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(i)) for i in range(kind.num_fields)])
    if isinstance(kind, pa.UuidType):
        return pa.binary(16)
    return kind

"""The Arrow types of Iceberg schemas: the one place that says how a column looks in our kernels.

Used by readers, writers, bounds and Spark schemas. Must not read files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StructType

from skipstone.compat.lineage.opaque import Opaque, opaque_fields

#: Field ids and names that Iceberg reserves for the lineage of rows: the id of a row, and which commit last changed it.
ROW_ID, LAST_UPDATED = 2147483540, 2147483539
ROW_ID_NAME, LAST_UPDATED_NAME = "_row_id", "_last_updated_sequence_number"
LINEAGE_NAMES = (ROW_ID_NAME, LAST_UPDATED_NAME)
FIELD_ID_KEY = b"PARQUET:field_id"
_ORC_FIELD_ID_KEY = b"iceberg.id"
#: Tells what values of primitive types are: of two types of one kind, Arrow's casts keep the values.
_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("whole numbers", pa.types.is_integer),
    ("fractions", pa.types.is_floating),
    ("decimals", pa.types.is_decimal),
    ("truth", pa.types.is_boolean),
    ("days", pa.types.is_date),
    ("times", pa.types.is_time),
    ("moments", pa.types.is_timestamp),
    ("texts", pa.types.is_string),
    ("texts", pa.types.is_large_string),
    ("texts", pa.types.is_string_view),
    ("texts", pa.types.is_binary),
    ("texts", pa.types.is_large_binary),
    ("texts", pa.types.is_binary_view),
    ("texts", pa.types.is_fixed_size_binary),
)
#: Kinds whose values are also stored as other ones: days become moments in format version 3, and the numbers of a file
#: that does not say what they count are taken for what the column has.
_ALSO_STORED = {"moments": ("days", "whole numbers"), "days": ("whole numbers",), "times": ("whole numbers",)}
#: Of a decimal of 256 bits.
_MOST_DIGITS = 76


def arrow_schema(schema: Schema) -> pa.Schema:
    """The kernel types of ``schema`` with field ids in the fields' metadata.

    Strings, binaries and lists have 32-bit offsets (Spark's own), uuid is ``binary(16)``, timestamptz is UTC. A variant
    is a struct of its metadata and its value, a geometry or geography its WKB, an unknown column null.
    """
    return pa.schema([_plain_field(field) for field in schema_to_pyarrow(schema)])


def with_lineage(schema: Schema) -> Schema:
    """``schema`` with the columns that hold the lineage of rows, which a file with rows of other files has."""
    lineage = [
        NestedField(number, name, LongType(), required=False)
        for number, name in zip((ROW_ID, LAST_UPDATED), LINEAGE_NAMES, strict=True)
    ]
    return Schema(
        *schema.fields,
        *lineage,
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )


def stored_schema(schema: Schema) -> Schema:
    """The columns of ``schema`` that data files have: without those of an unknown type, which are null everywhere."""
    if all(kind.is_stored for _, kind in opaque_fields(schema)):
        return schema
    fields = (_stored(field) for field in schema.fields)
    kept = [field for field in fields if field is not None]
    return Schema(*kept, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _stored(field: NestedField) -> NestedField | None:
    kind = field.field_type
    if isinstance(kind, Opaque) and not kind.is_stored:
        return None
    if not isinstance(kind, StructType):
        return field
    return field.model_copy(update={"field_type": StructType(*filter(None, map(_stored, kind.fields)))})


def arrow_type_of(kind: IcebergType) -> pa.DataType:
    """The kernel type of one Iceberg type."""
    return _plain_type(schema_to_pyarrow(kind))


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Nulls that Parquet takes: below a struct that is null, its required fields are not null."""
    return pa.array([None] * count, kind) if pa.types.is_struct(kind) else pa.nulls(count, kind)


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """A batch of ``count`` rows with the columns ``arrays``, which may be none: Arrow would make it of no rows then."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_arrays([pa.nulls(count)], ["none"]).select([])


def default_scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """A default or a partition value, as PyIceberg gives it, in the kernel type of its column."""
    return pa.scalar(value.bytes if isinstance(value, UUID) else value, kind)


def is_widened(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values of the primitive type ``stored`` in a file are those of a column of ``kind``.

    So are those of a narrower type; those of another column, which a file without field ids has under the same name,
    may be of any type. Source: "Schema Evolution" of the table specification of Apache Iceberg.
    """
    if pa.types.is_dictionary(stored):
        return is_widened(stored.value_type, kind)
    if isinstance(stored, pa.BaseExtensionType):
        return is_widened(stored.storage_type, kind)
    if pa.types.is_decimal(stored) and pa.types.is_decimal(kind):
        return bool(stored.scale == kind.scale)  # a vectorized reader of Spark moves the point of others
    if pa.types.is_floating(stored) and pa.types.is_floating(kind):
        return bool(stored.bit_width <= kind.bit_width)
    held, wanted = _kind(stored), _kind(kind)
    return pa.types.is_null(stored) or held == wanted or held in _ALSO_STORED.get(wanted, ())


def _kind(kind: pa.DataType) -> str:
    return next((name for name, is_it in _KINDS if is_it(kind)), str(kind))


def cast_decimals(numbers: pa.Array | pa.ChunkedArray, kind: pa.Decimal128Type) -> pa.Array | pa.ChunkedArray:
    """Integers or decimals as decimals. Raises pa.ArrowInvalid for one that would be rounded or has too many digits.

    By way of 256 bits: Arrow judges integers by their type, and lets decimals of 128 bits wrap where the scale grows.
    """
    return pc.cast(pc.cast(numbers, pa.decimal256(_MOST_DIGITS, kind.scale)), kind)


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

"""The fields of a table that its keys are: columns, or fields within columns that are structs.

Called by the stages of the funnel. Must not read files.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType
from skipstone_core.language.paths import split_path
from skipstone_core.merging.merges import BoundKey


def key_field(schema: Schema, key: BoundKey) -> NestedField:
    """The field that ``key`` names in the table. Raises KeyError when there is none."""
    columns = {field.name: field for field in schema.fields}
    if key.target in columns:
        return columns[key.target]
    first, *rest = split_path(key.target)
    field = columns[first]
    for name in rest:
        kind = field.field_type
        field = {within.name: within for within in (kind.fields if isinstance(kind, StructType) else ())}[name]
    return field


def whole_columns(schema: Schema, keys: Sequence[BoundKey]) -> tuple[BoundKey, ...]:
    """Those of ``keys`` that are columns."""
    columns = {field.name for field in schema.fields}
    return tuple(key for key in keys if key.target in columns)

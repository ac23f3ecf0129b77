"""Whether the columns of two snapshots hold values that can be compared, which readers find by their field ids.

Used before the files of changes are chosen. Must not read files.
"""

from __future__ import annotations

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    TimestampType,
)
from skipstone_core.errors import BadData
from skipstone_core.history.tablereads import FIELD, FOLLOW_AGAIN
from skipstone_core.reasons import Reason


def require_comparable(name: str, before: Schema, after: Schema) -> None:
    """Raise BadData (SOURCE_CHANGED) for a column of which older rows have no value to compare with.

    Spark's CREATE OR REPLACE TABLE leaves the id of a column as it is, whatever type it gives to it.
    """
    for column in after.fields:
        here = next((known for known in before.fields if known.name == column.name), None)
        same = next((known for known in before.fields if known.field_id == column.field_id), None)
        is_replaced = here is not None and here.field_id != column.field_id
        if is_replaced or (same is not None and not _is_evolved(same.field_type, column.field_type)):
            raise BadData(
                Reason.SOURCE_CHANGED,
                f"column {column.name!r} of {name} is another one than before, or of another type, so which of its "
                f"values changed is not known; {FOLLOW_AGAIN}",
                field=FIELD,
            )


def _is_evolved(before: IcebergType, after: IcebergType) -> bool:
    """Return whether values of one type are read as those of the other. Of nested types, their fields are judged."""
    if isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType):
        return before == after or _is_promoted(before, after)
    if isinstance(before, StructType) and isinstance(after, StructType):
        known = {field.field_id: field.field_type for field in before.fields}
        return all(
            _is_evolved(known[field.field_id], field.field_type) for field in after.fields if field.field_id in known
        )
    if isinstance(before, ListType) and isinstance(after, ListType):
        return _is_evolved(before.element_type, after.element_type)
    if isinstance(before, MapType) and isinstance(after, MapType):
        pairs = (before.key_type, after.key_type), (before.value_type, after.value_type)
        return all(_is_evolved(*pair) for pair in pairs)
    return False


def _is_promoted(before: PrimitiveType, after: PrimitiveType) -> bool:
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    if isinstance(before, DateType):
        return isinstance(after, TimestampType)
    try:
        promote(before, after)
    except ResolveError:
        return False
    return True

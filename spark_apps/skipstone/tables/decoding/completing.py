"""Fills in what Iceberg requires of metadata and some writers leave out.

Called wherever metadata comes in, so that nobody else meets an order or an id that is not there. Must not read files.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, UNSORTED_SORT_ORDER_ID

#: What Iceberg's Java library requires of metadata from format version 2 on, and PyIceberg has a default for.
_REQUIRED: Final = ("last_sequence_number", "last_partition_id", "sort_orders", "default_sort_order_id")


def completed(metadata: TableMetadata) -> TableMetadata:
    """``metadata`` with the unsorted order if it names that and does not have it, and the last id of its partitioning.

    ``find_gaps`` still tells what was missing, until the metadata is written.
    """
    filled: dict[str, object] = {}
    orders = metadata.sort_orders
    if metadata.default_sort_order_id not in {order.order_id for order in orders}:
        filled |= {"sort_orders": [*orders, UNSORTED_SORT_ORDER], "default_sort_order_id": UNSORTED_SORT_ORDER_ID}
    used = [field.field_id for spec in metadata.partition_specs for field in spec.fields]
    last = max([PARTITION_FIELD_ID_START - 1, *used])
    if (metadata.last_partition_id or 0) < last:
        filled["last_partition_id"] = last
    if not filled:
        return metadata
    complete = metadata.model_copy(update=filled)
    complete.__pydantic_fields_set__ = metadata.model_fields_set - (filled.keys() & {"sort_orders"})
    return complete


def find_gaps(metadata: TableMetadata) -> tuple[str, ...]:
    """The fields, as JSON names them, that were missing or unusable in the file of ``metadata`` and are required."""
    if metadata.format_version < 2:
        return ()
    return tuple(name.replace("_", "-") for name in _REQUIRED if name not in metadata.model_fields_set)

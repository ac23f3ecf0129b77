"""Columns that a run adds to a table in the very commit that brings their first values.

A run plans on the table as it will be (``with_columns``); the commit adds the columns and the files in one swap, so
there is no state in between. Called by runs and commits. Must not commit.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import IcebergType, NestedField
from skipstone_core.ids import EVOLVED_PROPERTY

from skipstone.compat.pyiceberg import transaction_table


def plan_columns(table: Table, columns: Mapping[str, IcebergType]) -> tuple[NestedField, ...]:
    """The optional fields that adding ``columns`` (primitive types by name) to ``table`` would make."""
    ids = count(table.metadata.last_column_id + 1)
    return tuple(NestedField(next(ids), name, kind, required=False) for name, kind in columns.items())


def fits(table: Table, columns: Sequence[NestedField]) -> bool:
    """Return whether adding ``columns`` to ``table`` would give them the field ids that were planned."""
    planned = plan_columns(table, {column.name: column.field_type for column in columns})
    return [field.field_id for field in planned] == [column.field_id for column in columns]


def add_columns(transaction: Transaction, columns: Sequence[NestedField]) -> None:
    """Stage the addition of ``columns`` and remember whose they are."""
    if not columns:
        return
    with transaction.update_schema() as update:
        for column in columns:
            update.add_column((column.name,), column.field_type)
    known = evolved_columns(transaction_table(transaction))
    names = json.dumps([*known, *(column.name for column in columns)], ensure_ascii=False)
    transaction.set_properties({EVOLVED_PROPERTY: names})


def with_columns(table: Table, columns: Sequence[NestedField]) -> Table:
    """``table`` in memory as it is after ``columns`` were added; nothing is written."""
    if not columns:
        return table
    transaction = table.transaction()
    add_columns(transaction, columns)
    evolved = copy.copy(table)
    evolved.metadata = transaction.table_metadata
    return evolved


def with_fields(schema: Schema, columns: Sequence[NestedField]) -> Schema:
    """``schema`` with ``columns`` at its end, for planning only."""
    return Schema(*schema.fields, *columns, schema_id=schema.schema_id) if columns else schema


def evolved_columns(table: Table) -> tuple[str, ...]:
    """The columns that merges added and that therefore nobody needs to declare."""
    return tuple(json.loads(table.properties.get(EVOLVED_PROPERTY, "[]")))

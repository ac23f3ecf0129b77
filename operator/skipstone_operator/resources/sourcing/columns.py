"""Columns of a source: their types, and the table columns that they feed. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, name_text


@dataclass(frozen=True, kw_only=True)
class SourceColumn:
    """The type of one source column."""

    name: Annotated[str, name_text("Name of the column in the source, exactly as written there.")]
    type: Annotated[
        str,
        Doc(
            f"Iceberg type name: {limits.COLUMN_TYPE_HELP}.",
            max_length=32,
            pattern=limits.COLUMN_TYPE,
            help=f"source.columns[].type must be one of {limits.COLUMN_TYPE_HELP}",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ColumnSource:
    """Which source column feeds a table column."""

    column: Annotated[str, name_text("Column of the table.")]
    from_: Annotated[str, name_text("Column of the source.")]

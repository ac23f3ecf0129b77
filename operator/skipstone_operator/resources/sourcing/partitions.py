"""Folders of a source whose names hold values of columns, as Hive and Spark lay tables out. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from skipstone_core.contract.formats import SourceFormat

from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, Rule
from skipstone_operator.resources.sourcing.columns import SourceColumn

PARQUET_FOLDERS = Rule(
    holds=lambda source: source.hive_partitions is None or source.format is SourceFormat.PARQUET,
    rule="!has(self.hivePartitions) || (has(self.format) && self.format == 'Parquet')",
    message="source.hivePartitions is for the format Parquet only: remove it",
    field_path=".hivePartitions",
)
PLAIN_FOLDERS = Rule(
    holds=lambda source: source.hive_partitions is None or source.change_format is None,
    rule="!has(self.hivePartitions) || !has(self.changeFormat)",
    message="source.hivePartitions is for plain rows only: remove it beside source.changeFormat",
    field_path=".hivePartitions",
)


@dataclass(frozen=True, kw_only=True)
class ValueFolders:
    """How the folders of the files are read."""

    columns: Annotated[
        tuple[SourceColumn, ...],
        Doc(
            "Types of columns in the names of folders; others have the type of the table column that they feed, or are "
            "read as string.",
            max_items=limits.MAX_MAP,
            list_key="name",
            item=Doc("One column."),
        ),
    ] = ()
    where: Annotated[
        str | None,
        Doc(
            "Predicate over columns in names of folders, such as day >= date '2026-01-01': only files in folders on "
            "which it is true are read.",
            min_length=1,
            max_length=limits.MAX_PREDICATE,
        ),
    ] = None

"""A table as the source of a job: which snapshot, and which of its rows. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from skipstone_core.contract.requests import ConsumePolicy

from skipstone_operator.resources.common import object_name
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, Rule, name_text

_SNAPSHOT_ID = "^(0|[1-9][0-9]{0,18})$"
_SNAPSHOT_HELP = "must be the id of a snapshot in quotes, such as '5781947118336215154'"

FILES_ONLY = Rule(
    holds=lambda source: source.table is None or (source.location is None and source.settle_seconds == 0),
    rule="!has(self.table) || (!has(self.location) && (!has(self.settleSeconds) || self.settleSeconds == 0))",
    message="source.location and source.settleSeconds are for files only: remove them beside source.table",
    field_path=".table",
)
NEWEST_SNAPSHOT = Rule(
    holds=lambda source: source.table is None or source.table.snapshot is None or source.consume is ConsumePolicy.ALL,
    rule="!has(self.table) || !has(self.table.snapshot) || !has(self.consume) || self.consume == 'All'",
    message="source.consume New reads up to the newest snapshot: remove source.table.snapshot, or set consume to All",
    field_path=".consume",
)


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """A Table whose rows are read."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda table: table.snapshot is None or table.ref is None,
            rule="!has(self.snapshot) || !has(self.ref)",
            message="source.table takes one of snapshot and ref: remove the other",
            field_path=".ref",
        ),
    )

    name: Annotated[
        str,
        object_name(
            "Name of the Table, in the same namespace. It can be in another Warehouse than the table of the job.",
            "source.table.name",
        ),
    ]
    snapshot: Annotated[
        str | None,
        Doc(
            "Id of the snapshot whose rows are read, as status.snapshotId of the Table has it; when absent, the newest "
            "of main, or of ref. All attempts of a job read the same snapshot.",
            max_length=20,
            pattern=_SNAPSHOT_ID,
            help=f"source.table.snapshot {_SNAPSHOT_HELP}",
        ),
    ] = None
    ref: Annotated[
        str | None, name_text("Branch or tag whose newest snapshot is read, in place of the branch main.")
    ] = None
    from_snapshot: Annotated[
        str | None,
        Doc(
            "Id of a snapshot: only rows that later snapshots appended are read, and the job fails if one of them "
            "changed or removed rows. With consume: New, the first job with this value begins after that snapshot; 0 "
            "stands for the time before the first one.",
            max_length=20,
            pattern=_SNAPSHOT_ID,
            help=f"source.table.fromSnapshot {_SNAPSHOT_HELP}",
        ),
    ] = None
    where: Annotated[
        str | None,
        Doc(
            "Predicate over the columns of the source table, such as status = 'paid' and price > 10: only rows on "
            "which it is true are read. Partitions, min/max and indexes of the source table show which files can hold "
            "such rows.",
            min_length=1,
            max_length=limits.MAX_PREDICATE,
        ),
    ] = None
    changes: Annotated[
        bool | None,
        Doc(
            "Whether the source is what changed in the table since fromSnapshot, or with consume: New since the last "
            "job, for merges only: inserted and updated rows, and deletes of rows, by the source columns of keys."
        ),
    ] = None

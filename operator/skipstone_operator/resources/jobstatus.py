"""The status that LoadJob and MergeJob share.

Imported by the two job kinds and by their reconciler. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from skipstone_core.merging.unused import MAX_UNUSED

from skipstone_operator.resources.common import OBSERVED_GENERATION, Condition, ConfirmState, CurrentRun, LastRun
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, time_text


@dataclass(frozen=True, kw_only=True)
class UnusedSourceColumn:
    """A column of the source that the job did not use."""

    name: Annotated[str, Doc("Name of the column in the source.", max_length=limits.MAX_NAME)]
    rows: Annotated[int | None, Doc("Rows with a value in it; absent when they were not counted.", minimum=0)] = None


@dataclass(frozen=True, kw_only=True)
class DefaultedColumn:
    """A column in which a change feed may have a default in place of null."""

    name: Annotated[str, Doc("Name of the column.", max_length=limits.MAX_NAME)]
    rows: Annotated[int | None, Doc("Changes that have the default.", minimum=0)] = None


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """What is known of a job, whatever it does."""

    observed_generation: Annotated[int, OBSERVED_GENERATION] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Doc(
            "Complete, Failed and Progressing, and Reconciling or Stalled while they hold.",
            max_items=16,
            list_key="type",
            item=Doc("One condition."),
        ),
    ] = ()
    reason: Annotated[str, Doc("Reason of the most important condition.", max_length=128)] = ""
    table_uid: Annotated[str, Doc("Uid of the Table of the first attempt.", max_length=64)] = ""
    launched: Annotated[bool, Doc("Whether a driver pod was seen.")] = False
    start_time: Annotated[
        str | None, time_text("When the first driver pod was seen; waits before and while suspended do not count.")
    ] = None
    completion_time: Annotated[str | None, time_text("When the job became Complete or Failed.")] = None
    duration: Annotated[str, Doc("Time from the first attempt to the end, such as 1m12s.", max_length=32)] = ""
    snapshot_id: Annotated[str, Doc("Snapshot that the job committed; 0 when nothing changed.", max_length=32)] = ""
    unused_columns: Annotated[
        tuple[UnusedSourceColumn, ...],
        Doc(
            "The first columns of the source that were not used.",
            max_items=MAX_UNUSED,
            list_key="name",
            item=Doc("One column."),
        ),
    ] = ()
    unused_columns_total: Annotated[int, Doc("The number of columns of the source that were not used.", minimum=0)] = 0
    current_run: Annotated[CurrentRun | None, Doc("The attempt that is intended or running.")] = None
    last_run: Annotated[LastRun | None, Doc("The attempt that ended last.")] = None
    attempts: Annotated[int, Doc("Number of the newest attempt.", minimum=0)] = 0
    failed_attempts: Annotated[int, Doc("Attempts that failed and count against backoffLimit.", minimum=0)] = 0
    lost_attempts: Annotated[int, Doc("Attempts lost to the cluster, which do not count.", minimum=0)] = 0
    retry_time: Annotated[str | None, time_text("The earliest time of the next attempt.")] = None
    confirm: Annotated[ConfirmState | None, Doc("Confirm runs for an attempt with an unknown outcome.")] = None

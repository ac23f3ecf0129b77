"""``spec.maintenance`` of a Table: what is compacted, what expires, what is removed, and when.

Imported by the Table, by reconcilers and by the CRD generator. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from skipstone_core.maintenance.policies import MIN_EQUALITY_DELETES, MIN_INPUT_FILES

from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.amounts import (
    DAY_OR_LONGER,
    FILE_SIZE,
    FILE_SIZE_HELP,
    MINUTE_OR_LONGER,
    RATIO,
    RATIO_HELP,
    WINDOW,
)
from skipstone_operator.resources.rules.cron import SCHEDULE, SCHEDULE_HELP, TIME_ZONE, TIME_ZONE_HELP
from skipstone_operator.resources.rules.markers import Doc, distinct, name_text

MAX_INPUT_FILES = 1000
MAX_KEPT = 100_000
MAX_DELETE_FILES = 100_000


class CompactionMode(StrEnum):
    """Whether files are compacted."""

    AUTO = "Auto"
    OFF = "Off"


class OrphanFilesMode(StrEnum):
    """What happens to files below the table's location that no metadata names."""

    REPORT = "Report"
    DELETE = "Delete"
    OFF = "Off"


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """Which data files are written again."""

    policy: Annotated[
        CompactionMode,
        Doc(
            "Auto: small files, files with many deleted rows and manifests are rewritten when they are due. Off: they "
            "are not."
        ),
    ] = CompactionMode.AUTO
    target_file_size: Annotated[
        str,
        Doc(
            "Size of the files that are written, such as 256Mi. A file is small below three quarters of it.",
            max_length=32,
            pattern=FILE_SIZE,
            help=f"compaction.targetFileSize {FILE_SIZE_HELP}",
        ),
    ] = "256Mi"
    min_input_files: Annotated[
        int,
        Doc(
            "The minimum number of small files of one partition that are rewritten together.",
            minimum=2,
            maximum=MAX_INPUT_FILES,
        ),
    ] = MIN_INPUT_FILES
    delete_ratio: Annotated[
        str,
        Doc(
            "A file is rewritten when this fraction of its rows is deleted, as text such as 0.1; 0 disables this.",
            max_length=32,
            pattern=RATIO,
            help=f"compaction.deleteRatio {RATIO_HELP}",
        ),
    ] = "0.1"
    sort_by: Annotated[
        tuple[str, ...],
        Doc(
            "Columns by which rows are sorted within and across the files of a group, so that merges and queries on "
            "them read fewer files; the table's sort order when empty.",
            max_items=limits.MAX_KEYS,
            item=name_text("One column."),
            rules=(distinct("compaction.sortBy"),),
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ResolveEqualityDeletes:
    """When equality deletes become deletes by position."""

    min_files: Annotated[
        int,
        Doc(
            "The number of equality delete files from which on they are resolved.",
            minimum=1,
            maximum=MAX_DELETE_FILES,
        ),
    ] = MIN_EQUALITY_DELETES


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """Which snapshots expire."""

    max_age: Annotated[
        str,
        Doc(
            "Snapshots that were replaced longer ago than this expire, and files that only they name are deleted: "
            "readers of a snapshot have this much time. Such as 90m, 12h or 5d.",
            max_length=32,
            pattern=MINUTE_OR_LONGER,
            help="snapshots.maxAge must be a time from 1m to 9999d, since readers of a snapshot that expires lose its "
            "files: write for example 12h or 5d",
        ),
    ]
    min_to_keep: Annotated[
        int, Doc("The number of newest snapshots that are kept at any age.", minimum=1, maximum=MAX_KEPT)
    ] = 1


@dataclass(frozen=True, kw_only=True)
class OrphanFiles:
    """What happens to files below the table's location that no metadata names."""

    policy: Annotated[
        OrphanFilesMode,
        Doc(
            "Report: count them. Delete: delete those that an earlier run has already listed. Off: do not search for "
            "them."
        ),
    ] = OrphanFilesMode.REPORT
    older_than: Annotated[
        str,
        Doc(
            "Age from which a file counts as an orphan, such as 72h.",
            max_length=32,
            pattern=DAY_OR_LONGER,
            help="orphanFiles.olderThan must be a time from 24h to 9999d, since a younger file may belong to a writer "
            "that has not committed yet: write for example 72h",
        ),
    ] = "72h"


@dataclass(frozen=True, kw_only=True)
class Window:
    """When maintain runs may start and run."""

    schedule: Annotated[
        str,
        Doc(
            "When the window opens: five cron fields, or @hourly, @daily, @weekly, @monthly, @yearly.",
            min_length=1,
            max_length=128,
            pattern=SCHEDULE,
            help=f"window.schedule {SCHEDULE_HELP}",
        ),
    ]
    duration: Annotated[
        str,
        Doc(
            "How long it stays open, such as 90m or 4h. One that opens again before it closes stays open.",
            max_length=32,
            pattern=WINDOW,
            help="window.duration must be a time from 1m to 999h: write for example 90m or 4h",
        ),
    ]
    time_zone: Annotated[
        str,
        Doc(
            "Time zone of the schedule, such as Europe/Berlin.",
            min_length=1,
            max_length=64,
            pattern=TIME_ZONE,
            help=f"window.timeZone {TIME_ZONE_HELP}",
        ),
    ] = "UTC"


@dataclass(frozen=True, kw_only=True)
class MaintenanceSpec:
    """What is done so that the table stays as fast and as small as on its first day."""

    resolve_equality_deletes: Annotated[
        ResolveEqualityDeletes | None,
        Doc(
            "Equality deletes, as Flink and Kafka Connect write them, become deletion vectors or position deletes, and "
            "no data file is rewritten; they stay when absent."
        ),
    ] = None
    compaction: Annotated[Compaction | None, Doc("Which data files are rewritten; none when absent.")] = None
    snapshots: Annotated[Snapshots | None, Doc("Which snapshots expire; none when absent.")] = None
    orphan_files: Annotated[
        OrphanFiles | None, Doc("The search for files that no metadata names; none when absent.")
    ] = None
    window: Annotated[Window | None, Doc("When maintain runs may start and run; at any time when absent.")] = None

"""The LoadJob: appends a source's rows to a Table as one segment, at most once.

Imported by reconcilers, manifests and the CRD generator. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import LoadMode

from skipstone_operator.resources.common import BRANCH, Branch, LocalRef
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.resources.rules.markers import Doc, Rule, frozen_optional, frozen_required
from skipstone_operator.resources.source import TIME_ZONE, BadRecords, RunFields, Source

_FAIL = BadRecords()


@dataclass(frozen=True, kw_only=True)
class LoadJobSpec(RunFields):
    """What to load into which table."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        frozen_required("tableRef"),
        frozen_required("source"),
        frozen_optional("branch"),
        frozen_optional("mode"),
        frozen_optional("badRecords"),
        frozen_optional("timeZone"),
        Rule(
            holds=lambda spec: spec.mode is not LoadMode.REGISTER or spec.source.format is SourceFormat.PARQUET,
            rule="!has(self.mode) || self.mode != 'Register' || (has(self.source.format) && "
            "self.source.format == 'Parquet')",
            message="mode Register takes files of the format Parquet only: the files stay as they are. Use the mode "
            "Copy for other formats",
            field_path=".mode",
        ),
        Rule(
            holds=lambda spec: spec.source.table is None or not spec.source.table.changes,
            rule="!has(self.source.table) || !has(self.source.table.changes) || !self.source.table.changes",
            message="source.table.changes is for a MergeJob only, which can delete and update rows: remove it",
            field_path=".source",
        ),
        Rule(
            holds=lambda spec: spec.mode is not LoadMode.REGISTER or spec.bad_records.policy is BadRecordPolicy.FAIL,
            rule="!has(self.mode) || self.mode != 'Register' || !has(self.badRecords) || "
            "!has(self.badRecords.policy) || self.badRecords.policy == 'Fail'",
            message="badRecords is for the mode Copy only: with Register no row can be left out of a file",
            field_path=".badRecords",
        ),
        Rule(
            holds=lambda spec: spec.mode is not LoadMode.REGISTER or spec.source.unknown_columns is None,
            rule="!has(self.mode) || self.mode != 'Register' || !has(self.source.unknownColumns)",
            message="source.unknownColumns is for the mode Copy only: Register refuses files with columns that the "
            "table does not have. Remove it",
            field_path=".source",
        ),
        Rule(
            holds=lambda spec: spec.mode is not LoadMode.REGISTER or spec.source.hive_partitions is None,
            rule="!has(self.mode) || self.mode != 'Register' || !has(self.source.hivePartitions)",
            message="source.hivePartitions is for the mode Copy only: Register reads the folders of files by itself. "
            "Remove it",
            field_path=".source",
        ),
    )

    table_ref: Annotated[LocalRef, Doc("The Table that is loaded into. Never changes.")]
    source: Annotated[Source, Doc("What is loaded. Never changes.")]
    branch: Annotated[Branch | None, BRANCH] = None
    mode: Annotated[
        LoadMode,
        Doc(
            "Copy writes the rows to files of the table. Register adds the Parquet files of the source to the table "
            "in place. Never changes."
        ),
    ] = LoadMode.COPY
    bad_records: Annotated[BadRecords, Doc("What happens to rows that do not fit. Never changes.")] = _FAIL
    time_zone: Annotated[str, TIME_ZONE] = "UTC"


@dataclass(frozen=True, kw_only=True)
class LoadJobStatus(JobStatus):
    """What is known of a load."""

    segment: Annotated[int | None, Doc("Id of the segment that the load added.", minimum=0)] = None
    rows_read: Annotated[
        int | None, Doc("Rows of the source: those that were loaded and those that did not fit.", minimum=0)
    ] = None
    rows_loaded: Annotated[int | None, Doc("Rows that were loaded.", minimum=0)] = None
    files_registered: Annotated[
        int | None, Doc("Files of the source that became files of the table (mode Register).", minimum=0)
    ] = None
    files_skipped: Annotated[
        int | None,
        Doc("Files that were left out because the table already had them, or because they hold no row.", minimum=0),
    ] = None
    rows_rejected: Annotated[int | None, Doc("Rows that did not fit.", minimum=0)] = None
    rejected_path: Annotated[str, Doc("Folder of the rejected rows, relative to the Warehouse.", max_length=2048)] = ""

"""The LoadJob: appends a source's rows to a Table as one segment, at most once.

Imported by reconcilers, manifests and the CRD generator. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from skipstone_core.contract.requests import BadRecordPolicy

from skipstone_operator.resources.common import LocalRef
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.resources.rules.markers import Doc, Rule, frozen_optional, frozen_required
from skipstone_operator.resources.source import TIME_ZONE, RunFields, Source


@dataclass(frozen=True, kw_only=True)
class BadRecords:
    """What happens to rows that do not fit the table."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda bad: bad.max_count is None or bad.policy != BadRecordPolicy.FAIL,
            rule="!has(self.maxCount) || self.policy != 'Fail'",
            message="badRecords.maxCount is for the policies Redirect and Drop only: Fail accepts no bad record",
            field_path=".maxCount",
        ),
    )

    policy: Annotated[
        BadRecordPolicy,
        Doc("Fail: load nothing. Redirect: load the others and write these to a reject file. Drop: leave them out."),
    ] = BadRecordPolicy.FAIL
    max_count: Annotated[
        int | None, Doc("Fail the load when more rows than this are bad; no bound when absent.", minimum=0)
    ] = None


@dataclass(frozen=True, kw_only=True)
class LoadJobSpec(RunFields):
    """What to load into which table."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        frozen_required("tableRef"),
        frozen_required("source"),
        frozen_optional("badRecords"),
        frozen_optional("timeZone"),
    )

    table_ref: Annotated[LocalRef, Doc("The Table that is loaded into. Never changes.")]
    source: Annotated[Source, Doc("What is loaded. Never changes.")]
    bad_records: Annotated[BadRecords, Doc("What happens to rows that do not fit. Never changes.")] = BadRecords()
    time_zone: Annotated[str, TIME_ZONE] = "UTC"


@dataclass(frozen=True, kw_only=True)
class LoadJobStatus(JobStatus):
    """What is known of a load."""

    segment: Annotated[int | None, Doc("Id of the segment that the load made.", minimum=0)] = None
    rows_loaded: Annotated[int | None, Doc("Rows that were loaded.", minimum=0)] = None
    rows_rejected: Annotated[int | None, Doc("Rows that did not fit.", minimum=0)] = None
    rejected_path: Annotated[str, Doc("Where rejected rows are, relative to the Warehouse.", max_length=2048)] = ""

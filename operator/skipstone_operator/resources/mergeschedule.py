"""The MergeSchedule: creates MergeJobs at the times of a cron expression, as a CronJob creates Jobs.

Imported by reconcilers and the CRD generator. Data only: when times are is ``worlds.cron``'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

from skipstone_core.merging.unused import MAX_UNUSED

from skipstone_operator.resources.common import OBSERVED_GENERATION, Condition
from skipstone_operator.resources.mergejob import MergeJobSpec
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.cron import SCHEDULE, SCHEDULE_HELP, TIME_ZONE, TIME_ZONE_HELP
from skipstone_operator.resources.rules.markers import Doc, Rule, time_text

MAX_ACTIVE_JOBS = 20
MAX_HISTORY = 100


class ConcurrencyPolicy(StrEnum):
    """What happens when a time comes while a MergeJob of the schedule has not ended."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


@dataclass(frozen=True, kw_only=True)
class MergeTemplateSpec(MergeJobSpec):
    """The spec of the MergeJobs to come: what may not change in a MergeJob may change here."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *(rule for rule in MergeJobSpec.RULES if rule.holds is not None),
        Rule(
            rule="!has(self.ttlSecondsAfterFinished)",
            holds=lambda spec: spec.ttl_seconds_after_finished is None,
            message="ttlSecondsAfterFinished is not for schedules: set successfulJobsHistoryLimit and "
            "failedJobsHistoryLimit instead",
            field_path=".ttlSecondsAfterFinished",
        ),
        Rule(
            rule="!has(self.dryRun)",
            holds=lambda spec: spec.dry_run is None,
            message="dryRun is not for schedules: remove it, and run 'skipstone merge --dry-run' with the name of the "
            "schedule",
            field_path=".dryRun",
        ),
    )


def _texts(text: str, max_length: int) -> Doc:
    return Doc(text, max_properties=limits.MAX_MAP, item=Doc("One value.", max_length=max_length))


@dataclass(frozen=True, kw_only=True)
class TemplateMetadata:
    """What the MergeJobs bear beside their names."""

    labels: Annotated[Mapping[str, str], _texts("Labels of the MergeJobs.", 63)] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], _texts("Annotations of the MergeJobs.", limits.MAX_VALUE)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class MergeTemplate:
    """The MergeJobs to come."""

    metadata: Annotated[TemplateMetadata, Doc("Labels and annotations of the MergeJobs.")] = TemplateMetadata()
    spec: Annotated[
        MergeTemplateSpec,
        Doc(
            "Spec of the MergeJobs. A change applies to MergeJobs created after it, also a change of fields that "
            "never change in a MergeJob."
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class MergeScheduleSpec:
    """When to create which MergeJobs."""

    schedule: Annotated[
        str,
        Doc(
            "Five cron fields (minute, hour, day of month, month, day of week), or @hourly, @daily, @weekly, @monthly, "
            "@yearly.",
            min_length=1,
            max_length=128,
            pattern=SCHEDULE,
            help=f"schedule {SCHEDULE_HELP}",
        ),
    ]
    time_zone: Annotated[
        str,
        Doc(
            "Time zone of the schedule, such as Europe/Berlin.",
            min_length=1,
            max_length=64,
            pattern=TIME_ZONE,
            help=f"timeZone {TIME_ZONE_HELP}",
        ),
    ] = "UTC"
    concurrency_policy: Annotated[
        ConcurrencyPolicy,
        Doc(
            "What happens when a time of the schedule is due while a MergeJob has not ended. Forbid: wait for its "
            "end, then start once for all times that passed. Replace: delete it. Allow: create another one, which "
            "waits for the table."
        ),
    ] = ConcurrencyPolicy.FORBID
    starting_deadline_seconds: Annotated[
        int | None,
        Doc(
            "Seconds after its time at which a MergeJob that was not created counts as missed; no limit when absent.",
            minimum=1,
            maximum=31_536_000,
        ),
    ] = None
    suspend: Annotated[
        bool, Doc("Create no MergeJob while true; afterwards, one MergeJob is created for the latest time that passed.")
    ] = False
    successful_jobs_history_limit: Annotated[
        int, Doc("The number of complete MergeJobs that are kept.", minimum=0, maximum=MAX_HISTORY)
    ] = 3
    failed_jobs_history_limit: Annotated[
        int, Doc("The number of failed MergeJobs that are kept.", minimum=0, maximum=MAX_HISTORY)
    ] = 1
    merge_template: Annotated[MergeTemplate, Doc("The MergeJobs that are created.")]


@dataclass(frozen=True, kw_only=True)
class MergeScheduleStatus:
    """What is known of a schedule."""

    observed_generation: Annotated[int, OBSERVED_GENERATION] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Doc(
            "Ready, Progressing, Degraded, ColumnsIgnored, ColumnsGone and ChangesLeftOut, and Reconciling or Stalled "
            "while they hold.",
            max_items=16,
            list_key="type",
            item=Doc("One condition."),
        ),
    ] = ()
    active: Annotated[int, Doc("MergeJobs that have not ended.", minimum=0)] = 0
    active_jobs: Annotated[
        tuple[str, ...],
        Doc("The oldest active MergeJobs.", max_items=MAX_ACTIVE_JOBS, item=Doc("Name of a MergeJob.", max_length=63)),
    ] = ()
    last_schedule_time: Annotated[str | None, time_text("The time for which a MergeJob was created last.")] = None
    next_schedule_time: Annotated[str | None, time_text("The next time; absent while suspended.")] = None
    last_successful_time: Annotated[str | None, time_text("When a MergeJob became Complete last.")] = None
    last_read_time: Annotated[
        str | None,
        time_text("When the newest MergeJob that became Complete was created: what the source had then is merged."),
    ] = None
    gone_columns: Annotated[
        tuple[str, ...],
        Doc(
            "The first columns that earlier MergeJobs merged and that the change feed of the last one with changes no "
            "longer has.",
            max_items=MAX_UNUSED,
            item=Doc("Name of a column.", max_length=limits.MAX_NAME),
        ),
    ] = ()
    rows_unmatched_deletes: Annotated[
        int,
        Doc("Rows that the last MergeJob with changes should have deleted and did not find.", minimum=0),
    ] = 0
    rows_unmatched_updates: Annotated[
        int,
        Doc("Rows that the last MergeJob with changes should have updated and did not find.", minimum=0),
    ] = 0
    last_missed_time: Annotated[str | None, time_text("The latest time that passed without a MergeJob of its own.")] = (
        None
    )

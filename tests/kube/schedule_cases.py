"""Manifests of MergeSchedules that the API server takes or refuses, beside those of all other kinds.

What a MergeJob may not say, a template may not say either: each case of a MergeJob is one of a schedule too.
"""

from __future__ import annotations

from dataclasses import replace

from tests.kube import cases
from tests.kube.cases import ABSENT, MERGE, MUTABLE, Case, Edit, Manifest
from tests.kube.catalog_cases import CATALOGS_ACCEPTED, CATALOGS_REJECTED
from tests.kube.maintenance_cases import (
    MAINTENANCE_ACCEPTED,
    MAINTENANCE_EDITS,
    MAINTENANCE_REJECTED,
    MAINTENANCE_UNTYPED,
)
from tests.kube.planning_cases import PLANNING_ACCEPTED, PLANNING_EDITS, PLANNING_REJECTED, PLANNING_UNTYPED

SCHEDULE: Manifest = {"schedule": "*/15 * * * *", "mergeTemplate": {"spec": MERGE}}


def _ms(name: str, changes: Manifest, at: str = "", says: str = "", **more: bool) -> Case:
    return Case(name, "MergeSchedule", SCHEDULE, changes, at, says, **more)


def _in_template(case: Case) -> Case:
    changes = {
        ("mergeTemplate/spec/" if "/" in path else "mergeTemplate.spec.") + path: value
        for path, value in case.changes.items()
    }
    at = case.at.replace("spec.", "spec.mergeTemplate.spec.", 1)
    return replace(case, name=f"schedule-{case.name}", kind="MergeSchedule", spec=SCHEDULE, changes=changes, at=at)


def _of_merges(found: tuple[Case, ...]) -> list[Case]:
    return [_in_template(case) for case in found if case.kind == "MergeJob"]


SCHEDULES = ("@hourly", "0 0 1 1 *", "*/5 1-3,22 * JAN-mar mon-FRI", "5/15 0 1-31/2 12 0,7", "59  23 31 12 SUN")
FIVE = "schedule must have five cron fields"
ACCEPTED = (
    *cases.ACCEPTED,
    *CATALOGS_ACCEPTED,
    *MAINTENANCE_ACCEPTED,
    *PLANNING_ACCEPTED,
    _ms("schedule-smallest", {}),
    *(_ms(f"schedule-{text}", {"schedule": text}) for text in SCHEDULES),
    _ms(
        "schedule-every-field",
        {
            "timeZone": "America/Argentina/Buenos_Aires",
            "concurrencyPolicy": "Replace",
            "startingDeadlineSeconds": 60,
            "suspend": True,
            "successfulJobsHistoryLimit": 0,
            "failedJobsHistoryLimit": 100,
            "mergeTemplate.metadata": {"labels": {"team": "sales"}, "annotations": {"why": "x"}},
            "mergeTemplate.spec.source.consume": "New",
        },
    ),
    *_of_merges(cases.ACCEPTED),
)
REJECTED = (
    *cases.REJECTED,
    *(
        _ms(f"schedule-ill-formed-{text}", {"schedule": text}, "spec.schedule", FIVE)
        for text in ("* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
                     "@reboot", "TZ=UTC * * * * *", "*/0 * * * *", "a b c d e")
    ),
    _ms("schedule-time-zone-ill-formed", {"timeZone": "a b"}, "spec.timeZone", "timeZone must be the name of"),
    _ms("schedule-deadline-zero", {"startingDeadlineSeconds": 0}, "spec.startingDeadlineSeconds", "1", by_schema=True),
    _ms("schedule-history-below-zero", {"failedJobsHistoryLimit": -1}, "spec.failedJobsHistoryLimit", "0",
        by_schema=True),
    _ms("schedule-template-with-ttl", {"mergeTemplate.spec.ttlSecondsAfterFinished": 9},
        "spec.mergeTemplate.spec.ttlSecondsAfterFinished", "ttlSecondsAfterFinished is not for schedules"),
    _ms("schedule-template-with-dry-run", {"mergeTemplate.spec.dryRun": True}, "spec.mergeTemplate.spec.dryRun",
        "dryRun is not for schedules"),
    *_of_merges(cases.REJECTED),
    *CATALOGS_REJECTED,
    *MAINTENANCE_REJECTED,
    *PLANNING_REJECTED,
)  # fmt: skip
UNTYPED = (
    *cases.UNTYPED,
    *MAINTENANCE_UNTYPED,
    *PLANNING_UNTYPED,
    _ms("schedule-without-template", {"mergeTemplate": ABSENT}, "spec.mergeTemplate", "Required"),
    _ms("schedule-policy-unknown", {"concurrencyPolicy": "Queue"}, "spec.concurrencyPolicy", "Forbid"),
    _ms("schedule-source-consumed-twice", {"mergeTemplate.spec.source.consume": "Twice"},
        "spec.mergeTemplate.spec.source.consume", "New"),
)  # fmt: skip
EDITS = (
    *cases.EDITS,
    *MAINTENANCE_EDITS,
    *PLANNING_EDITS,
    Edit(
        "schedule-times", "MergeSchedule", SCHEDULE, {"schedule": "@daily", "timeZone": "Asia/Tokyo", "suspend": True}
    ),
    Edit(
        "schedule-template",
        "MergeSchedule",
        SCHEDULE,
        {f"mergeTemplate.spec.{name}": value for name, value in MUTABLE.items() if name != "ttlSecondsAfterFinished"}
        | {"mergeTemplate.spec.tableRef.name": "other", "mergeTemplate.spec.sequenceBy": "seq"},
    ),
)

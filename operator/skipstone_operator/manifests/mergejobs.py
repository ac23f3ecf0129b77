"""The MergeJob that a MergeSchedule creates.

Called by the decider of schedules. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from skipstone_core.ids import scheduled_name

from skipstone_operator.conditions import format_time
from skipstone_operator.labels import MANAGED_BY, MANAGED_BY_LABEL, SCHEDULE_LABEL, SCHEDULED_TIME_ANNOTATION
from skipstone_operator.resources.kinds import API_VERSION, MERGE_JOB, MERGE_SCHEDULE


def build_merge_job(schedule: Mapping[str, Any], due: datetime) -> dict[str, Any]:
    """The MergeJob of the API object ``schedule`` for the time ``due``: its template, word for word."""
    metadata, template = schedule["metadata"], schedule["spec"]["mergeTemplate"]
    given = template.get("metadata") or {}
    ours = {MANAGED_BY_LABEL: MANAGED_BY, SCHEDULE_LABEL: metadata["name"]}
    owner = {
        "apiVersion": API_VERSION,
        "kind": MERGE_SCHEDULE.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": MERGE_JOB.name,
        "metadata": {
            "name": scheduled_name(metadata["name"], int(due.timestamp()) // 60),
            "namespace": metadata["namespace"],
            "labels": {**(given.get("labels") or {}), **ours},
            "annotations": {**(given.get("annotations") or {}), SCHEDULED_TIME_ANNOTATION: format_time(due)},
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }

"""What ``kubectl get`` prints for each kind, as the API server's table and as kubectl's text."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import CustomObjectsApi
from skipstone_operator.resources.kinds import GROUP, KINDS, VERSION

from tests.cluster.controlplane import ControlPlane
from tests.kube.cases import INDEX, LOAD, MERGE, TABLE, WAREHOUSE, manifest
from tests.kube.schedule_cases import SCHEDULE

TIME = "2026-01-02T03:04:05Z"
YEARS_AGO = "1990-01-02T03:04:05Z"


def condition(kind: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "Because", "lastTransitionTime": TIME, **more}


COLUMNS: dict[str, tuple[str, str]] = {
    "wh": ("NAME CATALOG STORAGE READY TABLES AGE", "NAME CATALOG STORAGE READY TABLES PLANNING WARM REASON AGE"),
    "tbl": (
        "NAME READY ROWS FILES SEGMENTS INDEXES AGE",
        "NAME READY ROWS FILES SEGMENTS INDEXES SNAPSHOT HEALTHY SMALL DELETES SNAPSHOTS REASON STATUS AGE",
    ),
    "si": (
        "NAME TABLE COLUMNS SYNCED MISSING READY LASTSYNC AGE",
        "NAME TABLE COLUMNS SYNCED MISSING COVERED UNUSEDBELOW READY REASON LASTSYNC AGE",
    ),
    "lj": (
        "NAME TABLE COMPLETE SEGMENT ROWS REJECTED DURATION AGE",
        "NAME TABLE COMPLETE SEGMENT ROWS REJECTED REASON DURATION AGE",
    ),
    "mj": (
        "NAME TABLE COMPLETE PRUNED UPDATED DELETED INSERTED DURATION AGE",
        "NAME TABLE COMPLETE PRUNED UPDATED DELETED INSERTED REJECTED NOTFOUND REASON DURATION AGE",
    ),
    "ms": (
        "NAME SCHEDULE SUSPEND LAST NEXT ACTIVE READY AGE",
        "NAME SCHEDULE SUSPEND LAST NEXT ACTIVE READY REASON TIMEZONE LASTSUCCESS NOTFOUND AGE",
    ),
}
STATUS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "Warehouse": (
        WAREHOUSE,
        {
            "catalog": "Sql", "storage": "pvc/lake", "tables": 2,
            "conditions": [condition("Ready"), condition("PlanningReady")],
            "warmDrivers": {"wanted": 2, "ready": 1, "summary": "1/2"},
        },
        "one Sql pvc/lake True 2 True 1/2 Because",
    ),
    "Table": (
        TABLE,
        {
            "rows": 336776, "files": 12, "segments": {"total": 12}, "indexesInSync": "1/2", "snapshotId": "77",
            "conditions": [condition("Ready", message="fine"), condition("Healthy")],
            "health": {"smallFiles": 3, "deleteFiles": 4, "snapshots": 5},
        },
        "one True 336776 12 12 1/2 77 True 3 4 5 Because fine",
    ),
    "SecondaryIndex": (
        INDEX,
        {
            "columnList": "id,day", "synced": "10/12", "missing": "11,12", "covered": "83%", "lastSyncTime": TIME,
            "unusedBelowPercent": 80,
            "conditions": [condition("Ready")],
        },
        "one orders id,day 10/12 11,12 83% 80 True Because",
    ),
    "LoadJob": (
        LOAD,
        {
            "segment": 4, "rowsLoaded": 100, "rowsRejected": 0, "reason": "Committed", "duration": "27s",
            "conditions": [condition("Complete")],
        },
        "one orders True 4 100 0 Committed 27s",
    ),
    "MergeJob": (
        MERGE,
        {
            "pruned": "388/400", "duration": "8s", "reason": "Committed",
            "rows": {"updated": 5, "deleted": 6, "inserted": 7, "rejected": 1, "unmatchedDeletes": 2},
            "conditions": [condition("Complete")],
        },
        "one orders True 388/400 5 6 7 1 2 Committed 8s",
    ),
    "MergeSchedule": (
        {**SCHEDULE, "schedule": "@hourly"},
        {
            "lastScheduleTime": YEARS_AGO, "nextScheduleTime": TIME, "active": 1,
            "conditions": [condition("Ready")],
        },
        f"one @hourly false 36y {TIME} 1 True Because UTC",
    ),
}  # fmt: skip


@pytest.fixture
def filled(api: CustomObjectsApi, namespace: str) -> str:
    """A namespace with one object of each kind that has a status."""
    for kind, (spec, status, _) in STATUS.items():
        plural = KINDS[kind].plural
        created = api.create_namespaced_custom_object(GROUP, VERSION, namespace, plural, manifest(kind, spec, "one"))
        api.replace_namespaced_custom_object_status(
            GROUP, VERSION, namespace, plural, "one", {**created, "status": status}
        )
    return namespace


def test_kubectl_get_prints_the_columns_of_every_kind(control_plane: ControlPlane, filled: str) -> None:
    for short_name, (narrow, wide) in COLUMNS.items():
        get = ("get", short_name, "--namespace", filled)
        assert control_plane.kubectl(*get).splitlines()[0].split() == narrow.split()
        assert control_plane.kubectl(*get, "--output", "wide").splitlines()[0].split() == wide.split()


def test_kubectl_get_prints_the_values_of_the_status(control_plane: ControlPlane, filled: str) -> None:
    for kind, (_, _, expected) in STATUS.items():
        text = control_plane.kubectl("get", KINDS[kind].short_name, "--namespace", filled, "--output", "wide")
        assert text.splitlines()[1].split()[: len(expected.split())] == expected.split()


def test_last_sync_is_printed_as_an_age(control_plane: ControlPlane, filled: str) -> None:
    header, row = control_plane.kubectl("get", "si", "--namespace", filled).splitlines()
    assert row.split()[header.split().index("LASTSYNC")].endswith(("d", "h", "y"))


def test_kubectl_wait_works_on_each_kind(control_plane: ControlPlane, filled: str) -> None:
    for kind, (_, status, _) in STATUS.items():
        awaited = status["conditions"][0]["type"]
        target = f"{KINDS[kind].singular}/one"
        wait = ("wait", f"--for=condition={awaited}", target, "--timeout=300s")
        text = control_plane.kubectl(*wait, "--namespace", filled)
        assert "condition met" in text

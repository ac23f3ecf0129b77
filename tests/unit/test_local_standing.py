"""How objects stand together for somebody who waits for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_cli.kinds import INDEX, LOAD_JOB, TABLE, WAREHOUSE, ResourceKind
from skipstone_local.up.standing import Board, Outlook


def obj(
    name: str, *conditions: tuple[str, str, str], spec: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    listed = [{"type": kind, "status": holds, "reason": reason, "message": "m"} for kind, holds, reason in conditions]
    metadata = {"name": name, "namespace": "default", "uid": name, "generation": 1}
    return {
        "metadata": metadata,
        "spec": spec or {},
        "status": {"observedGeneration": 1, "conditions": listed, **status},
    }


def outlook(kind: ResourceKind, found: dict[str, Any], *others: tuple[ResourceKind, dict[str, Any]]) -> Outlook:
    board = Board()
    for each, other in (*others, (kind, found)):
        board.put(each, other)
    return next(judged for seen, judged in board.judge_all(NOW) if seen.obj is found)


NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
READY, BROKEN = ("Ready", "True", "Checked"), ("Ready", "False", "CheckFailed")
PLANNING = (("PlanningReady", "False", "ReplicasPending"), ("Reconciling", "True", "ReplicasPending"))
WAITS = (("Ready", "False", "WarehouseNotReady"), ("Reconciling", "True", "WarehouseNotReady"))


@pytest.mark.parametrize(
    ("kind", "found", "expected"),
    [
        (WAREHOUSE, obj("w"), Outlook.OPEN),
        (WAREHOUSE, obj("w", READY), Outlook.DONE),
        (WAREHOUSE, obj("w", READY, ("Reconciling", "True", "CheckPending")), Outlook.OPEN),
        (WAREHOUSE, obj("w", READY, observedGeneration=0), Outlook.OPEN),
        (WAREHOUSE, obj("w", BROKEN), Outlook.FAILED),
        (WAREHOUSE, obj("w", BROKEN, currentRun={"id": "r"}), Outlook.OPEN),
        (WAREHOUSE, obj("w", BROKEN, retryTime=LATER, failedAttempts=2), Outlook.OPEN),
        (WAREHOUSE, obj("w", BROKEN, retryTime=LATER, failedAttempts=3), Outlook.FAILED),
        (WAREHOUSE, obj("w", BROKEN, retryTime=NOW, failedAttempts=3), Outlook.OPEN),
        (WAREHOUSE, obj("w", READY, *PLANNING), Outlook.DONE),
        (INDEX, obj("i", READY, ("Synced", "False", "SegmentsMissing"), ("Reconciling", "True", "Idle")), Outlook.OPEN),
        (INDEX, obj("i", READY, ("Stalled", "True", "SegmentsFailed")), Outlook.FAILED),
        (LOAD_JOB, obj("l", ("Complete", "True", "Committed")), Outlook.DONE),
        (LOAD_JOB, obj("l", ("Failed", "True", "BadRecords")), Outlook.FAILED),
        (LOAD_JOB, obj("l", ("Progressing", "False", "Suspended")), Outlook.DONE),
        (LOAD_JOB, obj("l", ("Progressing", "False", "Retrying")), Outlook.OPEN),
    ],
)  # fmt: skip
def test_one_object(kind: ResourceKind, found: dict[str, Any], expected: Outlook) -> None:
    assert outlook(kind, found) is expected


def test_what_waits_for_something_that_failed_or_is_not_there_is_blocked() -> None:
    table = obj("t", *WAITS, spec={"warehouseRef": {"name": "w"}})
    job = obj("l", ("Progressing", "False", "TableNotReady"), spec={"tableRef": {"name": "t"}})
    assert outlook(TABLE, table) is Outlook.BLOCKED
    assert outlook(TABLE, table, (WAREHOUSE, obj("w"))) is Outlook.OPEN
    assert outlook(TABLE, table, (WAREHOUSE, obj("w", READY))) is Outlook.OPEN
    assert outlook(LOAD_JOB, job, (WAREHOUSE, obj("w", BROKEN)), (TABLE, table)) is Outlook.BLOCKED
    assert outlook(LOAD_JOB, job, (WAREHOUSE, obj("w", READY)), (TABLE, table)) is Outlook.OPEN


def test_a_line_is_one_line_that_changes_nothing_on_a_terminal() -> None:
    found = obj("w", ("Ready", "False", "CheckFailed"))
    found["status"]["conditions"][0]["message"] = "first\n\x1b[2Jsecond"
    assert Board().put(WAREHOUSE, found).line == "wh/w  Failed  CheckFailed: first \\x1b[2Jsecond"

"""Worlds of one job: intended, launched, ended, being confirmed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.reasons import Reason
from skipstone_operator.reconcilers.jobs.deciding import decide_job
from skipstone_operator.reconcilers.jobs.facts import plan_run
from skipstone_operator.reconcilers.runs.requests import RunPlan
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.runs import ConfFacts, RunWorld
from skipstone_operator.worlds.steps import PutStatus
from skipstone_operator.worlds.subjects import Finding
from skipstone_operator.worlds.times import parse_time
from skipstone_operator.worlds.worlds import JobWorld

from tests.unit import objects
from tests.unit.world_cases import (
    EARLIER,
    condition,
    ended,
    job_world,
    report,
    written_condition,
)

OWNER = "uid-jan"


BUSY = Finding(Reason.WAITING_FOR_TABLE, "busy")


TURN = Finding(Reason.WAITING_FOR_TURN, "later")


def waits(world: JobWorld) -> tuple[str, str]:
    return written_condition(decide_job(world), "Progressing")


def plan_of(world: JobWorld) -> RunPlan:
    plan = plan_run(world)
    assert plan is not None
    return plan


def with_run(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **changes: Any
) -> tuple[JobWorld, CurrentRun]:
    """A load whose current run was launched an hour ago."""
    job = objects.load("jan", **(spec or {}))
    current = replace(plan_of(job_world(job)).intent(1, EARLIER), **{"launch_time": EARLIER, **changes})
    base = {"attempts": 1, "launched": True, "startTime": EARLIER, "tableUid": "uid-flights"}
    world = job_world(job, {**base, **(status or {}), "currentRun": encode(current)})
    return world, current


def seen(world: JobWorld, current: CurrentRun, found: Any = None, **facts: Any) -> JobWorld:
    return replace(world, run=RunWorld(current=current, owner_uid=OWNER, pod=found, **facts))


CONF = ConfFacts(name="c", namespace="lake", uid="uid-conf", run_id="", owner_uid=OWNER)


def conclude(
    outcome: RunOutcome | None, reason: Reason, code: int = 0, world: JobWorld | None = None, **changes: Any
) -> PutStatus:
    """What is written when the driver ended so."""
    made, current = with_run(**changes)
    said = report(current, outcome, reason, counts=COUNTS, rejected_path="rejects/jan") if outcome else None
    pod_ = ended(current, OWNER, code, said, created=parse_time(EARLIER))
    step = decide_job(seen(world or made, current, pod_))
    assert isinstance(step, PutStatus)
    return step


COUNTS = {"segment": 4, "rowsLoaded": 90, "rowsRejected": 2}


def merging() -> tuple[JobWorld, CurrentRun]:
    """A MergeJob whose first attempt was launched."""
    job = objects.merge("jan")
    current = replace(plan_of(job_world(job)).intent(1, EARLIER), launch_time=EARLIER)
    return job_world(job, {"attempts": 1, "currentRun": encode(current)}), current


CONFIRM = {"attempts": 1, "reason": "BackoffLimitExceeded", "message": "all failed", "since": EARLIER}


TRIED = {"attempts": 4, "failedAttempts": 4, "launched": True, "tableUid": "uid-flights", "confirm": CONFIRM}


def longest(value: Any) -> int:
    if isinstance(value, dict):
        return max(map(longest, value.values()), default=0)
    return max(map(longest, value), default=0) if isinstance(value, list) else len(str(value))


ELSEWHERE = {"attempts": 1, "launched": True, "tableUid": "uid-of-the-first"}


def launched_load() -> CurrentRun:
    plan = plan_run(job_world())
    assert plan is not None
    return replace(plan.intent(1, EARLIER), launch_time=EARLIER)


FINISHED = {
    "observedGeneration": 1,
    "completionTime": EARLIER,
    "attempts": 1,
    "conditions": [condition("Complete", "True", "Committed"), condition("Failed", "False", "Committed")],
}

"""Worlds of one Table: new, with a change run, with jobs, being deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.reasons import Reason
from skipstone_operator.ports import EventType
from skipstone_operator.reconcilers.runs.requests import RunPlan, plan_table_run
from skipstone_operator.reconcilers.table import decide
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import PutFinalizers, PutStatus, Step
from skipstone_operator.worlds.subjects import TableSubject
from skipstone_operator.worlds.worlds import JobWorld, TableWorld

from tests.unit import objects
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    current_run,
    ended,
    good_warehouse,
    job_world,
    place,
    report,
    subject,
    table_state,
    table_world,
    written_condition,
)

OWNER = "uid-flights"


def new_table(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any
) -> TableSubject:
    found: TableSubject = subject(objects.table(**(spec or {})), status, **metadata)
    return found


def ready(step: Step) -> tuple[str, str]:
    return written_condition(step, "Ready")


def progressing(step: Step) -> tuple[str, str]:
    return written_condition(step, "Progressing")


def written(world: TableWorld) -> PutStatus:
    step = decide(world)
    assert isinstance(step, PutStatus), step
    return step


TWICE = [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]


def plan_of(table: TableSubject) -> RunPlan:
    return plan_table_run(table, place(table=table), good_warehouse(), SETTING)


def with_run(status: dict[str, Any] | None = None, **changes: Any) -> tuple[TableWorld, CurrentRun]:
    current = replace(plan_of(new_table()).intent(1, EARLIER), **{"launch_time": EARLIER, **changes})
    table = new_table(status={**(status or {}), "currentRun": encode(current)})
    return table_world(table), current


def seen(world: TableWorld, current: CurrentRun, found: Any = None) -> TableWorld:
    pods = (found,) if found is not None else ()
    return replace(world, run=RunWorld(current=current, owner_uid=OWNER, pod=found), pods=pods)


def conclude(
    outcome: RunOutcome | None, reason: Reason, code: int, status: dict[str, Any] | None = None, **state: Any
) -> PutStatus:
    world, current = with_run(status)
    told = (table_state(**state),)
    said = report(current, outcome, reason, table_states=told, snapshot_id="5") if outcome else None
    return written(seen(world, current, ended(current, OWNER, code, said)))


def queued(name: str, created: str, status: dict[str, Any] | None = None, **spec: Any) -> JobWorld:
    return job_world(objects.load(name, **spec), status, metadata={"creationTimestamp": created})


OLD, MID, NEW = "2026-01-01T10:00:00Z", "2026-01-01T10:00:01Z", "2026-01-01T10:00:02Z"


BEGUN = {"attempts": 1, "currentRun": encode(current_run())}


GOING = {"deletionTimestamp": "2026-01-01T11:59:00Z", "finalizers": ["skipstone.dev/reclaim", "other"]}


def going(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> TableSubject:
    known = {"tableUuid": "uuid-1", "location": "/skipstone/main/air/flights"} if status is None else status
    return new_table({"reclaimPolicy": "Delete", **(spec or {})}, known, **{**GOING, **meta})


def released(step: Step) -> tuple[tuple[str, ...], list[tuple[EventType, Reason]]]:
    assert isinstance(step, PutFinalizers), step
    return step.finalizers, [(record.type, record.reason) for record in step.events]


KEPT = (("other",), [(EventType.WARNING, Reason.DATA_RETAINED)])


SAME_REST = (
    "http://c",
    "http://c/",
    "HTTP://C:80//",
    "http://me@c",
    "http://c.lake",
    "http://c.lake.svc",
    "http://c.Lake.svc.cluster.local./",
)


OTHER_REST = ("http://d", "https://c", "http://c:8181", "http://c/x", "http://c.other", "http://[::1]:c")


POSTGRES = {"type": "Sql", "uri": "postgresql://db.example.com/lake"}


SAME_POSTGRES = (
    "postgresql://db.example.com/lake",
    "postgresql+psycopg2://me@DB.example.com:5432/lake/?sslmode=require",
    "postgresql:///lake?host=db.example.com",
    "postgresql:///lake?host=db.example.com&port=5432",
)


OTHER_POSTGRES = ("postgresql://db.example.com/Lake", "postgresql://db.example.com:5433/lake")

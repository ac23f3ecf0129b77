"""What kpt, Flux and other tools that wait by kstatus are told of every kind, in every state it passes through."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.conditions import Judgement, fails, holds, unknown
from skipstone_operator.reconcilers.runs.summaries import lay_conditions
from skipstone_operator.resources.kinds import KINDS

from tests.unit import objects
from tests.unit.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, compute
from tests.unit.kube_double import START
from tests.unit.lake_double import Ends
from tests.unit.operator_double import World

Obj = dict[str, Any]
PLACES = {
    "Warehouse": "main",
    "Table": "flights",
    "SecondaryIndex": "by-tail",
    "LoadJob": "jan",
    "MergeJob": "feed",
    "MergeSchedule": "hourly",
}


def world(*declared: Obj, claim: Obj | None = None) -> World:
    """What is declared, in a lake whose claim is there."""
    made = World()
    for obj in (claim or objects.claim(), *declared):
        made.kube.add(obj)
    return made


def lake(*declared: Obj, **table: Any) -> World:
    """A ready Warehouse and Table, and what is declared."""
    return world(objects.warehouse(), objects.table(**table), *declared)


def loaded(*declared: Obj) -> World:
    """A Table that was loaded before anything else was declared."""
    made = lake(objects.load("jan"))
    made.run_until(lambda: made.holds("LoadJob", "jan", "Complete"))
    for obj in declared:
        made.kube.add(obj)
    return made


def status(of: World, kind: str) -> str:
    return compute(of.kube.objects[kind, "lake", PLACES[kind]])


def after(of: World, kind: str, *, end: str = CURRENT, ticks: int = 40) -> list[str]:
    """The statuses of the resource until it stays at ``end`` for a while; never two summaries at once."""
    seen: list[str] = []
    for _ in range(ticks):
        if seen[-4:] == [end] * 4:
            break
        of.reconcile_all()
        seen.append(status(of, kind))
        found = of.kube.status(kind, PLACES[kind]).get("conditions") or ()
        summaries = [each for each in found if each["type"] in ("Reconciling", "Stalled")]
        assert len(summaries) <= 1
        assert all(each["status"] == "True" for each in summaries)
        of.tick()
    return [name for name, _ in groupby(seen)]


def edit(of: World, kind: str, **spec: Any) -> None:
    of.kube.edit(kind, PLACES[kind], lambda obj: obj["spec"].update(spec))


def failing(kind: RunKind, reason: Reason, code: int = 65) -> Callable[[JobRequest], Ends | None]:
    return lambda request: Ends(code, reason) if request.kind is kind else None


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        ("Warehouse", ()),
        ("Table", ()),
        ("SecondaryIndex", (objects.index(),)),
        ("LoadJob", (objects.load("jan"),)),
        ("MergeJob", (objects.merge("feed"),)),
    ],
)
def test_what_is_declared_is_in_progress_until_it_is_done(kind: str, declared: tuple[Obj, ...]) -> None:
    assert after(lake(*declared), kind) == [IN_PROGRESS, CURRENT]


def test_a_schedule_is_current_while_its_jobs_run_and_after_one_failed() -> None:
    made = lake(objects.schedule(cron="* * * * *"))
    made.lake.script = failing(RunKind.MERGE, Reason.BAD_RECORDS)
    assert after(made, "MergeSchedule", end="", ticks=30) == [CURRENT]
    assert made.holds("MergeSchedule", "hourly", "Degraded")


@pytest.mark.parametrize(
    ("kind", "declared", "run"),
    [("LoadJob", objects.load("jan"), RunKind.LOAD), ("MergeJob", objects.merge("feed"), RunKind.MERGE)],
)
def test_a_job_that_failed_has_failed(kind: str, declared: Obj, run: RunKind) -> None:
    made = lake(declared)
    made.lake.script = failing(run, Reason.BAD_RECORDS)
    assert after(made, kind, end=FAILED) == [IN_PROGRESS, FAILED]
    assert made.kube.condition(kind, PLACES[kind], "Stalled") == ("True", "BadRecords")


@pytest.mark.parametrize(("end", "reason"), [(CURRENT, None), (FAILED, Reason.BAD_RECORDS)])
def test_a_job_that_ended_stays_so_when_its_spec_changes(end: str, reason: Reason | None) -> None:
    made = lake(objects.load("jan"))
    if reason is not None:
        made.lake.script = failing(RunKind.LOAD, reason)
    after(made, "LoadJob", end=end)
    edit(made, "LoadJob", ttlSecondsAfterFinished=3600)
    assert status(made, "LoadJob") == IN_PROGRESS
    assert after(made, "LoadJob", end=end) == [end]


def test_a_failed_job_of_a_release_that_did_not_say_so_is_told() -> None:
    made = lake(objects.load("jan"))
    made.lake.script = failing(RunKind.LOAD, Reason.BAD_RECORDS)
    after(made, "LoadJob", end=FAILED)
    made.kube.edit("LoadJob", "jan", lambda obj: obj["status"]["conditions"].pop())
    assert status(made, "LoadJob") == CURRENT
    assert after(made, "LoadJob", end=FAILED) == [FAILED]


def test_a_job_that_cannot_be_read_has_failed_and_is_in_progress_once_it_can() -> None:
    made = lake(objects.load("jan", source={"format": "FromTheFuture", "paths": ["x"]}))
    assert after(made, "LoadJob", end=FAILED) == [FAILED]
    edit(made, "LoadJob", **objects.load("jan")["spec"])
    assert after(made, "LoadJob") == [IN_PROGRESS, CURRENT]


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("LoadJob", lambda: lake(objects.load("jan", suspend=True))),
        ("LoadJob", lambda: world(objects.load("jan"))),
        ("Table", lambda: world(objects.table())),
        ("Table", lambda: world(objects.table(), objects.warehouse(storage={"pvc": {"claimName": "absent"}}))),
        ("SecondaryIndex", lambda: world(objects.index())),
        ("SecondaryIndex", lambda: loaded(objects.index(suspend=True))),
        ("SecondaryIndex", lambda: loaded(objects.index(maintenance="Manual"))),
        ("Warehouse", lambda: world(objects.warehouse(storage={"pvc": {"claimName": "absent"}}))),
    ],
)
def test_what_waits_for_something_else_is_in_progress(kind: str, made: Callable[[], World]) -> None:
    assert after(made(), kind, end=IN_PROGRESS) == [IN_PROGRESS]


EXECUTORS = {"executor": {"instances": 1}}


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("Warehouse", lambda: world(objects.warehouse(spark=EXECUTORS), claim=objects.claim("ReadWriteOncePod"))),
        ("SecondaryIndex", lambda: lake(objects.index("by-tail", "nothing"))),
        ("SecondaryIndex", lambda: lake(objects.index("a-twin"), objects.index())),
        ("MergeSchedule", lambda: lake(objects.schedule(cron="0 0 30 2 *"))),
        ("MergeSchedule", lambda: lake(objects.schedule(timeZone="Nowhere/AtAll"))),
        ("Table", lambda: lake(maintenance={"window": {"schedule": "0 0 30 2 *", "duration": "1h"}})),
    ],
)
def test_what_somebody_has_to_change_has_failed(kind: str, made: Callable[[], World]) -> None:
    assert after(made(), kind, end=FAILED)[-1] == FAILED


def test_a_table_whose_change_is_refused_has_failed_until_it_is_taken_back() -> None:
    made = lake()
    after(made, "Table")
    made.lake.script = failing(RunKind.TABLE, Reason.SCHEMA_MISMATCH)
    edit(made, "Table", columns=[{"name": "id", "type": "string"}])
    assert after(made, "Table", end=FAILED) == [IN_PROGRESS, FAILED]
    made.lake.script = lambda _: None
    edit(made, "Table", columns=objects.table()["spec"]["columns"])
    assert after(made, "Table") == [IN_PROGRESS, CURRENT]


def test_a_table_that_is_claimed_twice_has_failed() -> None:
    made = lake()
    after(made, "Table")
    made.kube.clock.advance(60)
    made.kube.add(objects.table("late"))
    made.run_until(lambda: made.kube.condition("Table", "late", "Ready")[1] == "ResourceConflict")
    assert compute(made.kube.objects["Table", "lake", "late"]) == FAILED


def test_a_table_stays_current_while_it_is_maintained() -> None:
    made = lake(maintenance={"compaction": {"minInputFiles": 2}})
    after(made, "Table")
    for name in ("jan", "feb", "mar"):
        made.kube.add(objects.load(name))
    assert after(made, "Table", end="", ticks=30) == [CURRENT]
    assert made.kube.status("Table", "flights")["lastMaintainRun"]["result"] == "Succeeded"


def test_an_index_is_in_progress_again_while_segments_are_missing() -> None:
    made = loaded(objects.index())
    after(made, "SecondaryIndex")
    made.kube.add(objects.load("feb"))
    assert after(made, "SecondaryIndex") == [CURRENT, IN_PROGRESS, CURRENT]


def test_an_index_that_is_given_up_has_failed() -> None:
    made = loaded(objects.index())
    made.lake.script = failing(RunKind.REINDEX, Reason.COLUMN_TYPE_UNSUPPORTED)
    assert after(made, "SecondaryIndex", end=FAILED) == [IN_PROGRESS, FAILED]


def test_a_check_that_fails_again_and_again_is_in_progress() -> None:
    made = world(objects.warehouse())
    made.lake.script = failing(RunKind.CHECK, Reason.CATALOG_UNAVAILABLE, 69)
    assert after(made, "Warehouse", end=IN_PROGRESS) == [IN_PROGRESS]


@pytest.mark.parametrize("kind", ["Warehouse", "Table", "SecondaryIndex", "MergeSchedule"])
def test_a_new_generation_is_in_progress_at_once(kind: str) -> None:
    made = lake(objects.index(), objects.schedule())
    after(made, kind)
    assert status(made, kind) == CURRENT
    made.kube.edit(kind, PLACES[kind], lambda obj: obj["metadata"].update(generation=7))
    assert status(made, kind) == IN_PROGRESS
    assert after(made, kind)[-1] == CURRENT


def test_what_is_deleted_is_terminating() -> None:
    made = lake(objects.index(), objects.load("jan"))
    after(made, "SecondaryIndex")
    made.kube.edit("SecondaryIndex", "by-tail", lambda obj: obj["metadata"].update(deletionTimestamp=START.isoformat()))
    assert status(made, "SecondaryIndex") == TERMINATING


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        # The Table was in use before its spec changed: Ready is of the generation before.
        ((fails("Progressing", Reason.WAITING_FOR_TABLE, "later"),), ("Reconciling", "WaitingForTable")),
        ((holds("Progressing", Reason.RETRYING, "again"),), ("Reconciling", "Retrying")),
        ((fails("Progressing", Reason.RESOURCE_CONFLICT, "taken"),), ("Stalled", "ResourceConflict")),
        ((unknown("Ready", Reason.INTERNAL_ERROR), unknown("Progressing", Reason.INTERNAL_ERROR)),
         ("Reconciling", "InternalError")),
        ((unknown("Ready", Reason.INVALID_SPEC), unknown("Progressing", Reason.INVALID_SPEC)),
         ("Stalled", "InvalidSpec")),
    ],
)  # fmt: skip
def test_a_resource_that_is_ready_for_another_spec_is_not_current(
    judgements: tuple[Judgement, ...], expected: tuple[str, str]
) -> None:
    old = lay_conditions((), [holds("Ready", Reason.CREATED)], generation=1, now=START)
    new = lay_conditions(old, judgements, generation=2, now=START)
    assert [(each.type, each.reason) for each in new if each.type in ("Reconciling", "Stalled")] == [expected]
    assert lay_conditions(new, judgements, generation=2, now=START) == new


def test_every_kind_is_among_these_tests() -> None:
    assert set(PLACES) == set(KINDS)

"""One Warehouse with its check and observe runs: each world has one next write."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.reasons import Reason
from skipstone_operator.ports import EventType, Refused
from skipstone_operator.reconcilers.observes import seconds_to_look
from skipstone_operator.reconcilers.runs.requests import DueTable, plan_check_run, plan_observe_run
from skipstone_operator.reconcilers.warehouse import decide, refused
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import Create, Delete, PutFinalizers, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Children, ClaimFacts
from skipstone_operator.worlds.worlds import WarehouseWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.world_cases import (
    EARLIER,
    ONE_NODE,
    SETTING,
    condition,
    ended,
    good_table,
    pending,
    pod,
    report,
    subject,
    synced_index_status,
    warehouse_world,
    written_condition,
)

Obj = dict[str, Any]
OWNER = "uid-main"
CHECKED = {"observedGeneration": 1, "checkedGeneration": 1, "conditions": [condition("Ready", "True", "Checked")]}
ONE_POD = ClaimFacts("lake-data", ("ReadWriteOncePod",))
SHARED = ClaimFacts("lake-data", ("ReadWriteMany",))
REST_CATALOG = {"catalog": {"type": "Rest", "uri": "http://catalog:8181"}}


def written(world: WarehouseWorld) -> PutStatus:
    step = decide(world)
    assert isinstance(step, PutStatus), step
    return step


def both(step: Step) -> list[tuple[str, str]]:
    return [written_condition(step, "Ready"), written_condition(step, "Progressing")]


IDLE = ("False", Reason.IDLE)
PENDING = ("False", Reason.CHECK_PENDING)


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (warehouse_world(claim=None), [("False", Reason.CLAIM_NOT_FOUND), IDLE]),
        (warehouse_world(claim=SHARED), [("False", Reason.CATALOG_NEEDS_ONE_NODE), IDLE]),
        (warehouse_world(REST_CATALOG, claim=SHARED), [PENDING, ("True", Reason.RUN_INTENDED)]),
        (
            warehouse_world({"spark": {"executor": {"instances": 1}}}, claim=ONE_POD),
            [("False", Reason.INVALID_SPEC), IDLE],
        ),
        (warehouse_world(claim=ONE_POD), [PENDING, ("True", Reason.RUN_INTENDED)]),
        (warehouse_world({"catalog": {"type": "Rest"}}), [("False", Reason.INVALID_SPEC), IDLE]),
        (
            warehouse_world({"spark": {"podTemplate": {"spec": {"hostNetwork": True}}}}),
            [("False", Reason.INVALID_SPEC), IDLE],
        ),
        (
            warehouse_world({"spark": {"conf": {"spark.jars": "evil.jar"}}}),
            [("False", Reason.INVALID_SPEC), IDLE],
        ),
        (
            warehouse_world({"spark": {"conf": {"spark.driver.memoryOverhead": "plenty"}}}),
            [("False", Reason.INVALID_SPEC), IDLE],
        ),
        (
            warehouse_world({"spark": {"conf": {"spark.executor.memoryOverheadFactor": "half"}}}),
            [("False", Reason.INVALID_SPEC), IDLE],
        ),
        (warehouse_world(), [PENDING, ("True", Reason.RUN_INTENDED)]),
        (warehouse_world(status={**CHECKED, "conditions": []}), [("True", Reason.CHECKED), IDLE]),
        (warehouse_world(status=CHECKED, metadata={"generation": 2}), [PENDING, ("True", Reason.RUN_INTENDED)]),
        (warehouse_world(status=CHECKED, claim=None), [("False", Reason.CLAIM_NOT_FOUND), IDLE]),
    ],
    ids=[
        "no claim",
        "SQLite on a shared claim",
        "a server catalog on a shared claim",
        "executors on a claim for one pod",
        "no executors on a claim for one pod",
        "bad catalog",
        "forbidden pod template",
        "forbidden setting",
        "driver overhead that is no amount of memory",
        "executor overhead that is no number",
        "never checked",
        "checked",
        "changed since",
        "claim gone since",
    ],
)
def test_what_an_idle_warehouse_says(world: WarehouseWorld, expected: list[tuple[str, Reason]]) -> None:
    assert both(written(world)) == expected


@pytest.mark.parametrize(
    ("modes", "one_node", "one_pod"),
    [
        (("ReadWriteOnce",), True, False),
        (("ReadWriteOncePod",), True, True),
        (("ReadWriteMany",), False, False),
        (("ReadWriteOnce", "ReadWriteMany"), False, False),
    ],
)
def test_access_modes(modes: tuple[str, ...], one_node: bool, one_pod: bool) -> None:
    facts = ClaimFacts("c", modes)
    assert (facts.one_node, facts.one_pod) == (one_node, one_pod)


def test_the_columns_are_composed() -> None:
    step = written(warehouse_world(tables=(good_table(),)))
    status = step.status
    assert (status["catalog"], status["storage"]) == ("Sql (SQLite)", "pvc/lake-data (ReadWriteOnce)")
    assert (status["tables"], status["effectiveImage"]) == (1, "skipstone-spark:test")
    assert written(warehouse_world(REST_CATALOG)).status["catalog"] == "Rest"
    postgres = {"catalog": {"type": "Sql", "uri": "postgresql://db/lake"}}
    assert written(warehouse_world(postgres)).status["catalog"] == "Sql (PostgreSQL)"


def test_a_warehouse_at_rest_writes_nothing() -> None:
    once = written(warehouse_world(status=CHECKED))
    assert decide(warehouse_world(status=dict(once.status))) == Rest()


def with_check(**changes: Any) -> tuple[WarehouseWorld, CurrentRun]:
    plan = plan_check_run(warehouse_world().warehouse, ONE_NODE, SETTING)
    current = replace(plan.intent(1, EARLIER), **{"launch_time": EARLIER, **changes})
    return warehouse_world(status={"currentRun": encode(current)}), current


def seen(world: WarehouseWorld, current: CurrentRun, found: Any = None) -> WarehouseWorld:
    return replace(world, check=RunWorld(current=current, owner_uid=OWNER, pod=found))


def conclude(outcome: RunOutcome | None, reason: Reason, code: int) -> PutStatus:
    world, current = with_check()
    said = report(current, outcome, reason) if outcome else None
    return written(seen(replace(world, tables=(good_table(),)), current, ended(current, OWNER, code, said)))


class TestCheck:
    def test_good(self) -> None:
        step = conclude(RunOutcome.COMMITTED, Reason.CHECKED, 0)
        assert both(step) == [("True", Reason.CHECKED), IDLE]
        assert (step.status["checkedGeneration"], step.status["checkTime"]) == (1, "2026-01-01T12:00:00Z")

    @pytest.mark.parametrize(
        ("outcome", "reason", "code", "shown"),
        [
            (RunOutcome.UNKNOWN, Reason.CATALOG_UNAVAILABLE, 69, Reason.CATALOG_UNAVAILABLE),
            (RunOutcome.UNKNOWN, Reason.STORAGE_UNAVAILABLE, 69, Reason.STORAGE_UNAVAILABLE),
            (RunOutcome.FAILED, Reason.PATH_OUTSIDE_WAREHOUSE, 64, Reason.PATH_OUTSIDE_WAREHOUSE),
            (None, Reason.DRIVER_FAILED, 1, Reason.CHECK_FAILED),
        ],
    )
    def test_bad_is_tried_again(self, outcome: RunOutcome | None, reason: Reason, code: int, shown: Reason) -> None:
        step = conclude(outcome, reason, code)
        assert both(step) == [("False", shown), ("True", Reason.RETRYING)]
        assert step.status["retryTime"] == "2026-01-01T12:00:10Z"
        again = decide(warehouse_world(status=dict(step.status), tables=(good_table(),)))
        assert isinstance(again, Rest)
        assert again.requeue.after == 10
        later = warehouse_world(status=dict(step.status), tables=(good_table(),))
        later = replace(later, setting=replace(SETTING, now=START + timedelta(seconds=10)))
        assert both(written(later)) == [("False", shown), ("True", Reason.RUN_INTENDED)]

    def test_launching(self) -> None:
        world, current = with_check(launch_time=None)
        step = decide(seen(world, current))
        assert isinstance(step, Create)

    def test_a_new_generation_before_the_pod_makes_a_new_intent(self) -> None:
        _, current = with_check(launch_time=None)
        changed = warehouse_world(status={"currentRun": encode(current)}, metadata={"generation": 2})
        step = written(seen(changed, current))
        assert step.status["currentRun"]["generation"] == 2

    def test_a_claim_lost_before_the_pod_takes_the_intent_back(self) -> None:
        world, current = with_check(launch_time=None)
        assert "currentRun" not in written(replace(seen(world, current), claim=None)).status

    @pytest.mark.parametrize("reason", [Reason.IMAGE_PULL_FAILED, Reason.UNSCHEDULABLE, Reason.CONTAINER_CONFIG_ERROR])
    def test_a_pod_that_cannot_start_is_why_it_is_not_ready(self, reason: Reason) -> None:
        world, current = with_check()
        step = written(seen(world, current, pending(current, OWNER, reason)))
        assert both(step) == [("False", reason), ("True", reason)]

    def test_a_late_pod_goes(self) -> None:
        world, current = with_check()
        late = replace(world, setting=replace(SETTING, now=START + timedelta(seconds=301)))
        found = pending(current, OWNER, Reason.UNSCHEDULABLE)
        step = written(seen(late, current, found))
        after = replace(warehouse_world(status=dict(step.status)), setting=late.setting)
        assert after.warehouse.status.current_run is not None
        assert isinstance(decide(seen(after, after.warehouse.status.current_run, found)), Delete)

    def test_a_running_check(self) -> None:
        world, current = with_check()
        assert both(written(seen(world, current, pod(current, OWNER)))) == [PENDING, ("True", Reason.DRIVER_RUNNING)]

    def test_a_foreign_pod_is_never_touched(self) -> None:
        world, current = with_check()
        step = written(seen(world, current, pod(current, "somebody")))
        assert written_condition(step, "Progressing") == ("False", Reason.RESOURCE_CONFLICT)

    @pytest.mark.parametrize(
        ("message", "reason", "progress"),
        [("exceeded quota", Reason.WAITING_FOR_QUOTA, "False"), ("no", Reason.POD_REJECTED, "True")],
    )
    def test_a_refused_pod_is_why_it_is_not_ready(self, message: str, reason: Reason, progress: str) -> None:
        world, current = with_check(launch_time=None)
        step = refused(seen(world, current), "Check", Refused(status=403, reason="Forbidden", message=message))
        assert both(step) == [("False", reason), (progress, reason)]


def observed(name: str = "flights", *, status: Obj | None = None, **spec: Any) -> Any:
    base = {"observedTime": "2026-01-01T11:59:00Z", "conditions": [condition("Ready", "True", "Observed")]}
    return subject(objects.observed_table(name, **spec), {**base, **(status or {})})


def quiet_index(**changes: Any) -> Any:
    return subject(objects.index(maintenance="Manual"), synced_index_status(**changes))


class TestDueTables:
    @pytest.mark.parametrize(
        ("table", "indexes", "wait"),
        [
            (observed(), (), 240),
            (observed(refreshIntervalSeconds=30), (), 0),
            (observed(refreshIntervalSeconds=0), (), None),
            (observed(status={"observedTime": None}), (), 0),
            (good_table(), (), None),
            (good_table(observedTime=None), (), 0),
            (good_table(appliedGeneration=0, observedTime=None), (), None),
            (observed(status={"conditions": [condition("Ready", "False", "ResourceConflict")]}), (), None),
            (observed(status={"conditions": []}), (), None),
            (good_table(), (quiet_index(),), None),
            (good_table(), (quiet_index(tableSequenceNumber=1),), 0),
            (good_table(), (subject(objects.index(maintenance="Manual"), {}),), 0),
            (good_table(), (subject(objects.index(), {}),), None),
            (good_table(), (subject(objects.index(suspend=True), {}),), 0),
        ],
        ids=[
            "observed every 300 s",
            "interval over",
            "switched off",
            "never looked at",
            "managed",
            "managed without a report",
            "not made yet",
            "claimed by another",
            "not judged yet",
            "index known",
            "manual index behind",
            "manual index unknown",
            "automatic index unknown",
            "suspended index unknown",
        ],
    )
    def test_when_a_table_is_looked_at(self, table: Any, indexes: tuple[Any, ...], wait: float | None) -> None:
        world = warehouse_world(status=CHECKED, tables=(table,), indexes={"flights": indexes})
        assert seconds_to_look(world, table) == wait

    def test_what_was_not_answered_is_asked_again_later(self) -> None:
        last = {"id": "x", "kind": "Observe", "result": "Succeeded", "startTime": EARLIER}
        asked = {**CHECKED, "lastObserveRun": {**last, "completionTime": "2026-01-01T11:59:30Z"}}
        table = observed(status={"observedTime": None})
        assert seconds_to_look(warehouse_world(status=asked, tables=(table,)), table) == 0
        old = subject(objects.observed_table(), dict(table.raw["status"]), creationTimestamp="2026-01-01T10:00:00Z")
        assert seconds_to_look(warehouse_world(status=asked, tables=(old,)), old) == 30


def settled(world: WarehouseWorld) -> WarehouseWorld:
    """The world after its conditions were written."""
    while isinstance(step := decide(world), PutStatus) and "observeRun" not in step.status:
        world = replace(world, warehouse=subject(objects.warehouse(), dict(step.status)))
    return world


class TestObserveRun:
    def test_one_run_for_all_due_tables(self) -> None:
        due, late = observed(refreshIntervalSeconds=30), observed("b", refreshIntervalSeconds=90)
        world = settled(warehouse_world(status=CHECKED, tables=(due, late)))
        step = written(world)
        run = step.status["observeRun"]
        assert run["kind"] == "Observe"
        after = replace(world, warehouse=subject(objects.warehouse(), dict(step.status)))
        current = after.warehouse.status.observe_run
        assert current is not None
        create = decide(replace(after, observe=RunWorld(current=current, owner_uid=OWNER)))
        assert isinstance(create, Create)
        assert create.object["data"]["request.json"].count('"management": "Observed"') == 1

    def test_no_more_than_one_report_can_tell_and_the_longest_unseen_first(self) -> None:
        tables = [observed(f"t{n:02}", refreshIntervalSeconds=30) for n in range(60)]
        longest = observed("z", status={"observedTime": "2026-01-01T10:00:00Z"}, refreshIntervalSeconds=30)
        world = settled(warehouse_world(status=CHECKED, tables=(*tables, longest)))
        after = replace(world, warehouse=subject(objects.warehouse(), dict(written(world).status)))
        current = after.warehouse.status.observe_run
        assert current is not None
        create = decide(replace(after, observe=RunWorld(current=current, owner_uid=OWNER)))
        assert isinstance(create, Create)
        asked = [
            look["table"]["uid"] for look in json.loads(create.object["data"]["request.json"])["observe"]["tables"]
        ]
        assert len(asked) == 48
        assert asked[0] == "uid-z"

    def test_rests_until_the_next_is_due(self) -> None:
        step = decide(settled(warehouse_world(status=CHECKED, tables=(observed(),))))
        assert isinstance(step, Rest)
        assert step.requeue.after == 240

    def test_not_before_the_warehouse_is_ready(self) -> None:
        world = warehouse_world(tables=(observed(refreshIntervalSeconds=30),), claim=None)
        assert isinstance(decide(settled(world)), Rest)

    def observing(self, found: Any = None, **changes: Any) -> tuple[WarehouseWorld, CurrentRun]:
        table = observed(refreshIntervalSeconds=30)
        plan = plan_observe_run(warehouse_world().warehouse, ONE_NODE, [DueTable(table=table, indexes=())], SETTING)
        current = replace(plan.intent(1, EARLIER), **{"launch_time": EARLIER, **changes})
        status = {**written(warehouse_world(status=CHECKED, tables=(table,))).status, "observeRun": encode(current)}
        world = warehouse_world(status=status, tables=(table,))
        return replace(world, observe=RunWorld(current=current, owner_uid=OWNER, pod=found)), current

    def test_its_end_is_remembered_and_the_next_waits_a_moment(self) -> None:
        world, current = self.observing()
        said = report(current, RunOutcome.COMMITTED, Reason.OBSERVED)
        run = RunWorld(current=current, owner_uid=OWNER, pod=ended(current, OWNER, 0, said))
        step = written(replace(world, observe=run))
        assert step.status["lastObserveRun"]["reason"] == "Observed"
        assert step.status["observeRetryTime"] == "2026-01-01T12:00:10Z"

    def test_failures_back_off(self) -> None:
        world, current = self.observing()
        run = RunWorld(current=current, owner_uid=OWNER, pod=ended(current, OWNER, 1))
        status = {**world.warehouse.raw["status"], "failedObserves": 3}
        world = replace(world, warehouse=subject(objects.warehouse(), status), observe=run)
        step = written(world)
        assert (step.status["failedObserves"], step.status["observeRetryTime"]) == (4, "2026-01-01T12:01:20Z")

    def test_a_late_pod_goes(self) -> None:
        world, current = self.observing()
        found = pending(current, OWNER, Reason.UNSCHEDULABLE)
        late = replace(world, setting=replace(SETTING, now=START + timedelta(seconds=301)))
        step = written(replace(late, observe=RunWorld(current=current, owner_uid=OWNER, pod=found)))
        assert step.status["observeRun"]["stopReason"] == "Unschedulable"

    def test_nothing_due_any_more_takes_the_intent_back(self) -> None:
        world, current = self.observing(launch_time=None)
        step = written(replace(world, tables=(observed(),), observe=RunWorld(current=current, owner_uid=OWNER)))
        assert "observeRun" not in step.status

    def test_a_refused_pod_waits_in_silence(self) -> None:
        world, _ = self.observing()
        step = refused(world, "Observe", Refused(status=403, reason="Forbidden", message="exceeded quota"))
        assert isinstance(step, Rest)

    @pytest.mark.parametrize("refusal", [True, False], ids=["refused pod", "pod of somebody else"])
    def test_what_is_in_its_way_is_told_and_another_run_follows(self, refusal: bool) -> None:
        world, current = self.observing(launch_time=None)
        world = replace(world, observe=RunWorld(current=current, owner_uid=OWNER))
        if refusal:
            step = refused(world, "Observe", Refused(status=403, reason="Forbidden", message="no privileged pods"))
        else:
            step = decide(replace(world, observe=RunWorld(current=current, owner_uid=OWNER, pod=pod(current, "x"))))
        assert isinstance(step, PutStatus)
        assert "observeRun" not in step.status
        assert step.status["failedObserves"] == 1
        last = step.status["lastObserveRun"]
        assert last["reason"] == ("PodRejected" if refusal else "ResourceConflict")
        again = replace(world, warehouse=subject(objects.warehouse(), dict(step.status)), observe=None)
        later = replace(again, setting=replace(SETTING, now=START + timedelta(seconds=30)))
        assert written(later).status["observeRun"]["attempt"] == 2

    def test_only_its_newest_pod_is_kept(self) -> None:
        _, current = self.observing()
        older = replace(current, id="uidmain-12345678-7")
        said = report(current, RunOutcome.COMMITTED, Reason.OBSERVED)
        pods = (
            ended(current, OWNER, 0, said, operation="Observe"),
            ended(older, OWNER, 0, operation="Observe", ended=START - timedelta(hours=1)),
        )
        idle = warehouse_world(status=CHECKED, children=Children(pods=pods))
        step = decide(settled(idle))
        assert isinstance(step, Delete)
        assert step.name == "uidmain-12345678-7-driver"


GOING = {"deletionTimestamp": "2026-01-01T11:59:00Z", "finalizers": ["skipstone.dev/reclaim"]}
DEPENDANT = subject(objects.index())


class TestDeletion:
    def test_a_finalizer_while_somebody_needs_it(self) -> None:
        step = decide(warehouse_world(dependants=(DEPENDANT,)))
        assert isinstance(step, PutFinalizers)
        assert step.finalizers == ("skipstone.dev/reclaim",)
        off = decide(warehouse_world(metadata={"finalizers": ["skipstone.dev/reclaim"]}))
        assert isinstance(off, PutFinalizers)
        assert off.finalizers == ()

    def test_waits_and_says_for_whom(self) -> None:
        step = written(warehouse_world(metadata=GOING, dependants=(DEPENDANT,)))
        assert both(step) == [("False", Reason.DELETING), ("True", Reason.DELETING)]
        assert "SecondaryIndex by-tail" in str(step.status["conditions"])

    def test_looks_again_soon_whether_they_are_gone(self) -> None:
        told = dict(written(warehouse_world(metadata=GOING, dependants=(DEPENDANT,))).status)
        step = decide(warehouse_world(metadata=GOING, dependants=(DEPENDANT,), status=told))
        assert isinstance(step, Rest)
        assert step.requeue.after == 30

    def test_goes_when_nobody_is_left(self) -> None:
        step = decide(warehouse_world(metadata=GOING))
        assert isinstance(step, PutFinalizers)
        assert step.events == ()

    def test_goes_after_ten_minutes(self) -> None:
        world = warehouse_world(metadata=GOING, dependants=(DEPENDANT,))
        step = decide(replace(world, setting=replace(SETTING, now=START + timedelta(seconds=540))))
        assert isinstance(step, PutFinalizers)
        assert [(e.type, e.reason) for e in step.events] == [(EventType.WARNING, Reason.DATA_RETAINED)]

    def test_nothing_is_started_for_it_any_more(self) -> None:
        assert decide(warehouse_world(metadata={**GOING, "finalizers": []})) == Rest()

"""One job: each world has one next write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.funnel import FunnelStage
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers.jobs.deciding import decide_job, refused
from skipstone_operator.worlds.steps import Create, Delete, PutStatus, Rest
from skipstone_operator.worlds.worlds import JobWorld

from tests.unit import objects
from tests.unit.job_cases import (
    BUSY,
    CONF,
    OWNER,
    TURN,
    merging,
    seen,
    waits,
    with_run,
)
from tests.unit.kube_double import START
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    condition,
    good_table,
    good_warehouse,
    job_world,
    pending,
    place,
    pod,
    subject,
    underway,
    written_condition,
)


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (job_world(place=place(table=None)), ("False", Reason.TABLE_NOT_FOUND)),
        (job_world(place=place(table=good_table(conditions=[]))), ("False", Reason.TABLE_NOT_READY)),
        (
            job_world(place=place(table=good_table(conditions=[condition("Ready", "False", "SchemaDrift")]))),
            ("False", Reason.TABLE_NOT_READY),
        ),
        (
            job_world(place=place(table=good_table(conditions=[condition("Ready", "True", "Created", generation=0)]))),
            ("False", Reason.TABLE_NOT_READY),
        ),
        (job_world(place=place(warehouse=None)), ("False", Reason.WAITING_FOR_WAREHOUSE)),
        (job_world(place=place(warehouse=subject(objects.warehouse()))), ("False", Reason.WAITING_FOR_WAREHOUSE)),
        (job_world(turn=BUSY), ("False", Reason.WAITING_FOR_TABLE)),
        (job_world(turn=TURN), ("False", Reason.WAITING_FOR_TURN)),
        (job_world(objects.load("jan", suspend=True)), ("False", Reason.SUSPENDED)),
        (
            job_world(status={"attempts": 1, "launched": True, "retryTime": "2026-01-01T12:01:00Z"}),
            ("True", Reason.RETRYING),
        ),
        (job_world(), ("True", Reason.RUN_INTENDED)),
    ],
    ids=[
        "no table",
        "table not judged yet",
        "table drifted",
        "table judged at another generation",
        "no warehouse",
        "warehouse not checked",
        "another writer",
        "an older job",
        "suspended",
        "back-off",
        "nothing in the way",
    ],
)
def test_what_an_idle_job_does(world: JobWorld, expected: tuple[str, Reason]) -> None:
    assert waits(world) == expected
    assert written_condition(decide_job(world), "Complete") == ("False", expected[1])
    assert written_condition(decide_job(world), "Failed") == ("False", expected[1])


def test_the_intent_is_complete_before_anything_exists() -> None:
    step = decide_job(job_world())
    assert isinstance(step, PutStatus)
    run = step.status["currentRun"]
    assert run["id"] == f"uidjan-{run['inputsHash']}-1"
    assert (run["kind"], run["attempt"], run["txn"], run["startTime"]) == ("Load", 1, OWNER, "2026-01-01T12:00:00Z")
    assert (step.status["attempts"], step.status["tableUid"]) == (1, "uid-flights")
    assert "startTime" not in step.status
    assert step.requeue.after == 0


def test_waiting_twice_writes_once() -> None:
    step = decide_job(job_world(turn=BUSY))
    assert isinstance(step, PutStatus)
    again = job_world(status=dict(step.status), turn=BUSY)
    assert isinstance(decide_job(again), Rest)


def test_a_merge_without_effect_or_with_a_bad_predicate_fails_before_any_run() -> None:
    bad = objects.merge("jan", whenMatched=[{"action": "Update", "when": "source.a ="}])
    step = decide_job(job_world(bad))
    assert written_condition(step, "Failed") == ("True", Reason.INVALID_SPEC)


class TestLaunching:
    def intended(self, spec: dict[str, Any] | None = None, **changes: Any) -> JobWorld:
        world, current = with_run(spec, launch_time=None, **changes)
        return seen(world, current)

    def test_config_map_then_pod(self) -> None:
        world = self.intended()
        first = decide_job(world)
        assert isinstance(first, Create)
        assert first.object["kind"] == "ConfigMap"
        assert world.run is not None
        conf = replace(CONF, run_id=world.run.current.id)
        second = decide_job(replace(world, run=replace(world.run, conf=conf)))
        assert isinstance(second, Create)
        assert second.object["kind"] == "Pod"

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"turn": BUSY}, Reason.WAITING_FOR_TABLE),
            ({"place": place(table=None)}, Reason.TABLE_NOT_FOUND),
            ({"place": place(warehouse=None)}, Reason.WAITING_FOR_WAREHOUSE),
        ],
    )
    def test_an_intent_that_lost_its_ground_is_taken_back(self, change: dict[str, Any], reason: Reason) -> None:
        step = decide_job(replace(self.intended(), **change))
        assert written_condition(step, "Progressing") == ("False", reason)
        assert isinstance(step, PutStatus)
        assert "currentRun" not in step.status
        assert step.status["attempts"] == 1, "its pod may have come and gone"

    def test_suspended_before_the_pod(self) -> None:
        step = decide_job(self.intended({"suspend": True}))
        assert written_condition(step, "Progressing") == ("False", Reason.SUSPENDED)

    def test_a_config_map_goes_before_its_intent(self) -> None:
        world = self.intended({"suspend": True})
        assert world.run is not None
        conf = replace(CONF, run_id=world.run.current.id)
        step = decide_job(replace(world, run=replace(world.run, conf=conf)))
        assert isinstance(step, Delete)
        assert step.kind == "ConfigMap"

    @pytest.mark.parametrize(("age", "attempt"), [(5, 1), (300, 2)], ids=["at once", "after a while unseen"])
    def test_a_changed_warehouse_makes_a_new_intent(self, age: int, attempt: int) -> None:
        setting = replace(SETTING, now=START - timedelta(hours=1) + timedelta(seconds=age))
        changed = place(warehouse=good_warehouse(spark={"image": "other:1"}))
        world = replace(self.intended(), place=changed, setting=setting)
        step = decide_job(world)
        assert isinstance(step, PutStatus)
        assert world.run is not None
        assert step.status["currentRun"]["id"] != world.run.current.id
        assert (step.status["currentRun"]["attempt"], step.status["attempts"]) == (attempt, attempt)

    def test_a_foreign_child_is_never_touched(self) -> None:
        world, current = with_run(launch_time=None)
        step = decide_job(seen(world, current, pod(current, "somebody-else")))
        assert written_condition(step, "Progressing") == ("False", Reason.RESOURCE_CONFLICT)

    @pytest.mark.parametrize(
        ("message", "waited", "expected"),
        [
            ("exceeded quota: pods", 10_000, ("False", Reason.WAITING_FOR_QUOTA)),
            ("violates PodSecurity", 0, ("True", Reason.POD_REJECTED)),
            ("violates PodSecurity", 10_000, ("True", Reason.RETRYING)),
        ],
        ids=["quota has no deadline", "rejected", "rejected for too long"],
    )
    def test_a_refused_child(self, message: str, waited: int, expected: tuple[str, Reason]) -> None:
        world = self.intended(start_time="2026-01-01T12:00:00Z")
        world = replace(world, setting=replace(SETTING, now=START + timedelta(seconds=waited)))
        step = refused(world, Refused(status=403, reason="Forbidden", message=message))
        assert written_condition(step, "Progressing") == expected


class TestFollowing:
    @pytest.mark.parametrize(
        "reason",
        [
            Reason.DRIVER_PENDING,
            Reason.UNSCHEDULABLE,
            Reason.IMAGE_PULL_FAILED,
            Reason.CONTAINER_CONFIG_ERROR,
            Reason.VOLUME_UNAVAILABLE,
        ],
    )
    def test_a_pending_driver_says_why(self, reason: Reason) -> None:
        world, current = with_run()
        assert waits(seen(world, current, pending(current, OWNER, reason))) == ("True", reason)

    def test_a_running_driver_shows_its_progress(self) -> None:
        world, current = with_run()
        step = decide_job(
            seen(world, current, pod(current, OWNER, underway=underway(current, progress="7 of 9 files")))
        )
        assert written_condition(step, "Progressing") == ("True", Reason.DRIVER_RUNNING)
        assert isinstance(step, PutStatus)
        assert step.status["currentRun"]["progress"] == "7 of 9 files"

    def test_a_funnel_that_no_status_holds_is_cut(self) -> None:
        world, current = merging()
        stages = tuple(
            FunnelStage(name=name, files_in=9, files_out=9) for name in ("x" * 70, "x" * 80, *map(str, range(30)), "3")
        )
        told = underway(current, counts={"filesTotal": 9}, funnel=stages)
        step = decide_job(seen(world, current, pod(current, world.job.meta.uid, underway=told)))
        assert isinstance(step, PutStatus)
        names = [stage["name"] for stage in step.status["funnel"]]
        assert names == ["x" * 63 + "…", *map(str, range(15))]

    def test_the_first_sight_of_a_pod_starts_the_clock(self) -> None:
        world, current = with_run(status={"startTime": None, "launched": False}, launch_time=None)
        step = decide_job(seen(world, current, pending(current, OWNER, Reason.DRIVER_PENDING)))
        assert isinstance(step, PutStatus)
        assert (step.status["startTime"], step.status["launched"]) == ("2026-01-01T12:00:00Z", True)
        assert step.status["currentRun"]["launchTime"] == "2026-01-01T12:00:00Z"

    @pytest.mark.parametrize(
        ("spec", "stop"),
        [
            ({}, ""),
            ({"suspend": True}, "Suspended"),
            ({"activeDeadlineSeconds": 60}, "DeadlineExceeded"),
            ({"activeDeadlineSeconds": 7200}, ""),
        ],
        ids=["goes on", "suspended", "deadline", "time left"],
    )
    def test_why_a_driver_is_stopped_is_written_first(self, spec: dict[str, Any], stop: str) -> None:
        world, current = with_run(spec)
        step = decide_job(seen(world, current, pod(current, OWNER)))
        assert isinstance(step, PutStatus)
        assert step.status["currentRun"]["stopReason"] == stop

    def test_a_table_that_goes_stops_its_drivers(self) -> None:
        world, current = with_run()
        going = subject(objects.table(), deletionTimestamp=EARLIER)
        step = decide_job(replace(seen(world, current, pod(current, OWNER)), place=place(table=going)))
        assert written_condition(step, "Progressing") == ("True", Reason.TABLE_NOT_FOUND)

    def test_a_pod_that_pends_too_long_is_stopped(self) -> None:
        world, current = with_run()
        late = replace(world, setting=replace(SETTING, now=START + timedelta(seconds=301)))
        step = decide_job(seen(late, current, pending(current, OWNER, Reason.UNSCHEDULABLE)))
        assert isinstance(step, PutStatus)
        assert step.status["currentRun"]["stopReason"] == "Unschedulable"

    @pytest.mark.parametrize(("deleting", "kind"), [(False, Delete), (True, Rest)])
    def test_then_the_pod_is_deleted_once(self, deleting: bool, kind: type[object]) -> None:
        world, current = with_run({"suspend": True})
        first = decide_job(seen(world, current, pod(current, OWNER)))
        assert isinstance(first, PutStatus)
        again = job_world(objects.load("jan", suspend=True), dict(first.status))
        assert isinstance(
            decide_job(seen(again, again.job.status.current_run, pod(current, OWNER, deleting=deleting))), kind
        )

"""One job: each world has one next write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import IndexState, RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.funnel import FunnelStage, LeftOut
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers.confirms import plan_confirm
from skipstone_operator.reconcilers.jobfacts import plan_run
from skipstone_operator.reconcilers.jobs import decide_job, refused
from skipstone_operator.reconcilers.requests import RunPlan
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.pods import read_pod
from skipstone_operator.worlds.runs import ConfFacts, RunWorld
from skipstone_operator.worlds.steps import Create, Delete, PutStatus, Rest
from skipstone_operator.worlds.subjects import Children, Finding
from skipstone_operator.worlds.times import parse_time
from skipstone_operator.worlds.worlds import JobWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    condition,
    current_run,
    ended,
    good_table,
    good_warehouse,
    job_world,
    pending,
    place,
    pod,
    report,
    subject,
    table_state,
    underway,
    written_condition,
)

OWNER = "uid-jan"
BUSY = Finding(Reason.WAITING_FOR_TABLE, "busy")
TURN = Finding(Reason.WAITING_FOR_TURN, "later")


def waits(world: JobWorld) -> tuple[str, str]:
    return written_condition(decide_job(world), "Progressing")


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


class TestEnding:
    @pytest.mark.parametrize("outcome", [RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED])
    def test_complete(self, outcome: RunOutcome) -> None:
        reason = Reason.COMMITTED if outcome is RunOutcome.COMMITTED else Reason.ALREADY_COMMITTED
        step = conclude(outcome, reason)
        assert written_condition(step, "Complete") == ("True", reason)
        assert written_condition(step, "Failed")[0] == "False"
        assert written_condition(step, "Progressing") == ("False", Reason.IDLE)
        status = step.status
        assert (status["segment"], status["rowsLoaded"], status["rowsRejected"]) == (4, 90, 2)
        assert (status["rejectedPath"], status["duration"]) == ("rejects/jan", "1h00m")
        assert status["completionTime"] == "2026-01-01T12:00:00Z"
        assert "currentRun" not in status

    def test_a_merge_shows_its_funnel(self) -> None:
        job = objects.merge("jan")
        current = replace(plan_of(job_world(job)).intent(1, EARLIER), launch_time=EARLIER)
        counts = {"filesTotal": 400, "filesCandidate": 12, "filesTouched": 3, "filesRewritten": 3, "rowsDeleted": 5}
        counts |= {"rowsIgnored": 2}
        funnel = (
            FunnelStage(name="Partitions", files_in=400, files_out=400, left_out=LeftOut.SWITCHED_OFF, message="why"),
            FunnelStage(name="KeyRanges", files_in=400, files_out=12, untouched=9, ms=7),
        )
        said = report(current, RunOutcome.COMMITTED, Reason.COMMITTED, counts=counts | {"bytesRemoved": 77})
        said = replace(said, funnel=funnel, stages_ms={"prune": 7})
        world = job_world(job, {"attempts": 1, "currentRun": encode(current)})
        step = decide_job(seen(world, current, ended(current, OWNER, 0, said)))
        assert isinstance(step, PutStatus)
        assert step.status["pruned"] == "388/400"
        assert (step.status["rows"]["deleted"], step.status["rows"]["ignored"]) == (5, 2)
        assert step.status["bytes"]["removed"] == 77
        left_out, ran = step.status["funnel"]
        assert (left_out["leftOut"], left_out["message"]) == ("SwitchedOff", "why")
        assert (ran["filesOut"], ran["falsePositives"], ran["falsePositiveRate"]) == (12, 9, "75.0 %")
        assert ran["durationMs"] == 7
        assert step.status["lastRun"]["stagesMs"] == {"prune": 7}

    def test_a_merge_at_work_shows_what_it_prunes(self) -> None:
        world, current = merging()
        funnel = (FunnelStage(name="KeyRanges", files_in=400, files_out=12),)
        counts = {"filesTotal": 400, "filesCandidate": 12, "tasksDone": 3}
        said = underway(current, progress="merging", counts=counts, funnel=funnel)
        step = decide_job(seen(world, current, pod(current, OWNER, underway=said)))
        assert isinstance(step, PutStatus)
        assert (step.status["pruned"], step.status["files"]["candidate"]) == ("388/400", 12)
        (stage,) = step.status["funnel"]
        assert (stage["filesOut"], stage.get("falsePositiveRate", "")) == (12, ""), "nobody knows yet"
        assert "rows" not in step.status
        early = decide_job(seen(world, current, pod(current, OWNER, underway=underway(current, progress="reading"))))
        assert isinstance(early, PutStatus)
        assert not early.status.get("pruned")

    def test_a_merge_tells_which_indexes_it_left_behind(self) -> None:
        world, current = merging()
        names = ("auto", "manual", "suspended", "synced")
        specs = {"manual": {"maintenance": "Manual"}, "suspended": {"suspend": True}}
        subjects = tuple(subject(objects.index(name, **specs.get(name, {}))) for name in names)
        states = tuple(
            IndexState(uid=one.meta.uid, name=one.meta.name, segments_missing=0 if one.meta.name == "synced" else 2)
            for one in subjects
        )
        said = report(current, RunOutcome.COMMITTED, Reason.COMMITTED, counts={"filesTotal": 1})
        said = replace(said, table_states=(table_state(indexes=states),))
        world = replace(world, place=replace(world.place, indexes=subjects))
        step = decide_job(seen(world, current, ended(current, OWNER, 0, said)))
        assert isinstance(step, PutStatus)
        told = {one["name"]: (one["missingSegments"], one["catchesUp"]) for one in step.status["indexesBehind"]}
        assert told == {"auto": (2, True), "manual": (2, False), "suspended": (2, False)}

    @pytest.mark.parametrize(("code", "reason"), [(64, Reason.KEY_COLUMN_MISSING), (65, Reason.DUPLICATE_SOURCE_KEYS)])
    def test_refused_at_the_first_attempt(self, code: int, reason: Reason) -> None:
        step = conclude(RunOutcome.FAILED, reason, code)
        assert written_condition(step, "Failed") == ("True", reason)
        assert step.status["lastRun"]["result"] == "Failed"

    def test_refused_at_a_later_attempt_is_confirmed(self) -> None:
        step = conclude(RunOutcome.FAILED, Reason.SOURCE_NOT_FOUND, 65, status={"attempts": 2, "failedAttempts": 1})
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)
        assert step.status["confirm"]["reason"] == "SourceNotFound"

    @pytest.mark.parametrize("code", [1, 69, 75, 137])
    def test_a_failed_attempt_is_followed_by_another(self, code: int) -> None:
        step = conclude(None, Reason.DRIVER_FAILED, code)
        assert written_condition(step, "Progressing") == ("True", Reason.RETRYING)
        assert (step.status["failedAttempts"], step.status["retryTime"]) == (1, "2026-01-01T12:00:10Z")

    def test_the_third_failure_waits_longer(self) -> None:
        step = conclude(None, Reason.DRIVER_FAILED, 1, status={"failedAttempts": 2})
        assert step.status["retryTime"] == "2026-01-01T12:00:40Z"

    def test_after_the_last_failure_somebody_looks(self) -> None:
        step = conclude(None, Reason.DRIVER_FAILED, 1, status={"failedAttempts": 3})
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)
        assert step.status["confirm"]["reason"] == "BackoffLimitExceeded"

    def test_after_the_deadline_somebody_looks(self) -> None:
        step = conclude(None, Reason.DRIVER_FAILED, 1, spec={"activeDeadlineSeconds": 60})
        assert step.status["confirm"]["reason"] == "DeadlineExceeded"

    def test_a_vanished_pod_does_not_count(self) -> None:
        world, current = with_run(status={"failedAttempts": 3})
        step = decide_job(seen(world, current))
        assert written_condition(step, "Progressing") == ("True", Reason.RETRYING)
        assert isinstance(step, PutStatus)
        assert (step.status["failedAttempts"], step.status["lostAttempts"]) == (3, 1)
        assert step.status["lastRun"]["reason"] == "DriverLost"

    def test_executors_go_before_the_verdict_is_written(self) -> None:
        world, current = with_run()
        executor = pod(current, "", name="exec-1")
        said = report(current, RunOutcome.COMMITTED, Reason.COMMITTED)
        step = decide_job(seen(world, current, ended(current, OWNER, 0, said), executors=(executor,)))
        assert isinstance(step, Delete)
        assert step.name == "exec-1"

    def test_a_pod_that_nobody_saw_may_have_committed_and_gone(self) -> None:
        world, current = with_run(
            {"backoffLimit": 0}, {"launched": False, "startTime": None}, launch_time=None, start_time=EARLIER
        )
        step = refused(seen(world, current), Refused(status=403, reason="Forbidden", message="violates PodSecurity"))
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)
        assert written_condition(step, "Failed")[0] == "False"


CONFIRM = {"attempts": 1, "reason": "BackoffLimitExceeded", "message": "all failed", "since": EARLIER}
TRIED = {"attempts": 4, "failedAttempts": 4, "launched": True, "tableUid": "uid-flights", "confirm": CONFIRM}


class TestConfirming:
    def with_confirm(self, **changes: Any) -> tuple[JobWorld, CurrentRun]:
        plan = plan_confirm(job_world(status=TRIED))
        assert isinstance(plan, RunPlan)
        current = replace(plan.intent(1, EARLIER), launch_time=EARLIER, **changes)
        return job_world(status={**TRIED, "currentRun": encode(current)}), current

    def test_intended_when_nobody_may_still_be_writing(self) -> None:
        step = decide_job(job_world(status={**TRIED, "confirm": {**CONFIRM, "attempts": 0}}))
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)
        assert isinstance(step, PutStatus)
        assert step.status["currentRun"]["kind"] == "Confirm"
        assert step.status["attempts"] == 4

    def test_a_live_driver_goes_first(self) -> None:
        live = pod(current_run(), OWNER)
        step = decide_job(job_world(status=TRIED, children=Children(pods=(live,))))
        assert isinstance(step, Delete)

    def test_a_driver_that_does_not_go_is_what_is_waited_for(self) -> None:
        going = pod(current_run(), OWNER, deleting=True)
        step = decide_job(job_world(status=TRIED, children=Children(pods=(going,))))
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)
        assert isinstance(step, PutStatus)
        assert f"when driver pod {going.name} is gone" in str(step.status["conditions"])
        again = job_world(status=dict(step.status), children=Children(pods=(going,)))
        assert isinstance(decide_job(again), Rest)

    def test_a_warehouse_that_no_pod_can_be_built_from(self) -> None:
        world, current = self.with_confirm()
        current = replace(current, launch_time=None)
        unfit = place(warehouse=good_warehouse(spark={"podTemplate": {"spec": {"shareProcessNamespace": True}}}))
        intended = decide_job(job_world(status=TRIED, place=unfit))
        launching = decide_job(replace(seen(world, current), place=unfit))
        for step in (intended, launching):
            assert written_condition(step, "Progressing") == ("True", Reason.OUTCOME_UNKNOWN)
            assert isinstance(step, PutStatus)
            message = next(c["message"] for c in step.status["conditions"] if c["type"] == "Progressing")
            assert "correct Warehouse 'main': spec.spark.podTemplate.spec.shareProcessNamespace" in message

    def test_suspend_does_not_keep_the_truth_waiting(self) -> None:
        step = decide_job(job_world(objects.load("jan", suspend=True), TRIED))
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)

    @pytest.mark.parametrize(
        "where",
        [place(table=None), place(warehouse=None), place(table=subject(objects.table(), uid="another"))],
        ids=["table gone", "warehouse gone", "another table of that name"],
    )
    def test_nobody_left_to_ask(self, where: Any) -> None:
        assert waits(job_world(status=TRIED, place=where)) == ("True", Reason.OUTCOME_UNKNOWN)

    @pytest.mark.parametrize(
        ("outcome", "reason", "code", "type_", "expected"),
        [
            (RunOutcome.ALREADY_COMMITTED, Reason.ALREADY_COMMITTED, 0, "Complete", Reason.ALREADY_COMMITTED),
            (RunOutcome.ABSENT, Reason.ABORTED, 0, "Failed", Reason.BACKOFF_LIMIT_EXCEEDED),
            (RunOutcome.FAILED, Reason.ROLLED_BACK, 64, "Failed", Reason.ROLLED_BACK),
            (RunOutcome.FAILED, Reason.INVALID_SPEC, 64, "Progressing", Reason.OUTCOME_UNKNOWN),
            (RunOutcome.UNKNOWN, Reason.CATALOG_UNAVAILABLE, 69, "Progressing", Reason.OUTCOME_UNKNOWN),
            (RunOutcome.UNKNOWN, Reason.CATALOG_UNPROVEN, 75, "Progressing", Reason.OUTCOME_UNKNOWN),
            (None, Reason.DRIVER_FAILED, 1, "Progressing", Reason.OUTCOME_UNKNOWN),
        ],
        ids=["landed", "absent and fenced", "rolled back", "catalog not opened", "no answer", "unproven", "silence"],
    )
    def test_its_answer(
        self, outcome: RunOutcome | None, reason: Reason, code: int, type_: str, expected: Reason
    ) -> None:
        world, current = self.with_confirm()
        said = report(current, outcome, reason) if outcome else None
        step = decide_job(seen(world, current, ended(current, OWNER, code, said)))
        assert written_condition(step, type_) == ("True", expected)
        assert isinstance(step, PutStatus)
        if type_ == "Progressing":
            assert step.status["confirm"]["nextTime"] == "2026-01-01T12:00:10Z"

    def test_asked_again_only_after_its_back_off(self) -> None:
        status = {**TRIED, "confirm": {**CONFIRM, "nextTime": "2026-01-01T12:00:30Z"}}
        step = decide_job(job_world(status=status))
        assert isinstance(step, Rest)
        assert step.requeue.after == 30

    def test_a_failed_pass_is_forgotten_while_it_waits(self) -> None:
        waiting = {**TRIED, "confirm": {**CONFIRM, "nextTime": "2026-01-01T12:00:30Z"}}
        broken = {**waiting, "conditions": [condition("Progressing", "Unknown", "InternalError")]}
        step = decide_job(job_world(status=broken))
        assert written_condition(step, "Progressing") == ("True", Reason.OUTCOME_UNKNOWN)
        assert isinstance(step, PutStatus)
        again = decide_job(job_world(status=dict(step.status)))
        assert isinstance(again, Rest)
        assert again.requeue.after == 30

    def test_a_confirm_run_at_work(self) -> None:
        world, current = self.with_confirm()
        assert waits(seen(world, current, pod(current, OWNER))) == ("True", Reason.CONFIRMING)


def longest(value: Any) -> int:
    if isinstance(value, dict):
        return max(map(longest, value.values()), default=0)
    return max(map(longest, value), default=0) if isinstance(value, list) else len(str(value))


def test_however_much_a_cluster_says_its_words_fit_into_the_status() -> None:
    current = launched_load()
    wordy = {"name": "spark-kubernetes-driver", "state": {"waiting": {"reason": "ErrImagePull", "message": "x" * 9000}}}
    labels = {"skipstone.dev/run-id": current.id, "skipstone.dev/owner-uid": OWNER}
    metadata = {"name": f"{current.id}-driver", "labels": labels, "creationTimestamp": EARLIER}
    raw = {"metadata": metadata, "status": {"containerStatuses": [wordy]}}
    world = job_world(status={"attempts": 1, "currentRun": encode(current)})
    stopping = decide_job(seen(world, current, read_pod(raw)))
    assert isinstance(stopping, PutStatus)
    assert stopping.status["currentRun"]["stopReason"] == "ImagePullFailed"
    assert longest(stopping.status) <= 1024
    last = job_world(objects.load("jan", backoffLimit=0), {"attempts": 1, "currentRun": encode(current)})
    said = report(current, RunOutcome.UNKNOWN, Reason.DRIVER_FAILED, message="y" * 9000)
    confirming = decide_job(seen(last, current, ended(current, OWNER, 1, said)))
    assert isinstance(confirming, PutStatus)
    assert confirming.status["confirm"]["reason"] == "BackoffLimitExceeded"
    assert longest(confirming.status) <= 1024


ELSEWHERE = {"attempts": 1, "launched": True, "tableUid": "uid-of-the-first"}


class TestAnotherTableOfThatName:
    """A job commits at most once: what began on one Table is never carried on in another."""

    def test_no_further_attempt(self) -> None:
        step = decide_job(job_world(status=ELSEWHERE))
        assert written_condition(step, "Progressing") == ("False", Reason.TABLE_NOT_FOUND)
        assert isinstance(step, PutStatus)
        message = next(c["message"] for c in step.status["conditions"] if c["type"] == "Progressing")
        assert message.startswith("spec.tableRef: ")
        assert message.endswith("delete this job and create it anew")

    def test_a_driver_at_work_goes(self) -> None:
        current = launched_load()
        world = job_world(status={**ELSEWHERE, "currentRun": encode(current)})
        step = decide_job(seen(world, current, pod(current, OWNER)))
        assert written_condition(step, "Progressing") == ("True", Reason.TABLE_NOT_FOUND)

    def test_an_intent_that_led_to_no_pod_is_renewed_for_the_new_one(self) -> None:
        current = current_run()
        status = {"attempts": 1, "tableUid": "uid-of-the-first", "currentRun": encode(current)}
        step = decide_job(seen(job_world(status=status), current))
        assert written_condition(step, "Progressing") == ("True", Reason.RUN_INTENDED)
        assert isinstance(step, PutStatus)
        assert step.status["tableUid"] == "uid-flights"


def launched_load() -> CurrentRun:
    plan = plan_run(job_world())
    assert plan is not None
    return replace(plan.intent(1, EARLIER), launch_time=EARLIER)


FINISHED = {
    "completionTime": EARLIER,
    "attempts": 1,
    "conditions": [condition("Complete", "True", "Committed"), condition("Failed", "False", "Committed")],
}


class TestFinished:
    def test_nothing_starts_any_more(self) -> None:
        for spec in ({}, {"suspend": True}, {"backoffLimit": 9}):
            assert decide_job(job_world(objects.load("jan", **spec), FINISHED)) == Rest()

    @pytest.mark.parametrize(("ttl", "kind"), [(3599, Delete), (3600, Delete), (3601, Rest)])
    def test_the_time_to_live(self, ttl: int, kind: type[object]) -> None:
        step = decide_job(job_world(objects.load("jan", ttlSecondsAfterFinished=ttl), FINISHED))
        assert isinstance(step, kind)
        if isinstance(step, Rest):
            assert step.requeue.after == 1

    def test_a_leftover_driver_goes(self) -> None:
        children = Children(pods=(pod(current_run(), OWNER),))
        step = decide_job(job_world(status=FINISHED, children=children))
        assert isinstance(step, Delete)

    def test_an_old_job_keeps_no_pods(self) -> None:
        children = Children(pods=(ended(current_run(), OWNER, 0),))
        assert isinstance(decide_job(job_world(status=FINISHED, children=children)), Rest)
        assert isinstance(decide_job(job_world(status=FINISHED, children=children, kept=False)), Delete)

    def test_a_job_that_is_deleted_is_left_alone(self) -> None:
        assert decide_job(job_world(metadata={"deletionTimestamp": EARLIER})) == Rest()

    def test_a_live_pod_is_taken_up_when_its_status_was_lost(self) -> None:
        live = pod(current_run(id="uidjan-12345678-3"), OWNER)
        step = decide_job(job_world(children=Children(pods=(live,))))
        assert isinstance(step, PutStatus)
        assert (step.status["currentRun"]["id"], step.status["attempts"]) == ("uidjan-12345678-3", 3)


def test_every_reason_of_a_refusal_reaches_the_condition() -> None:
    for reason in (Reason.SOURCE_ALREADY_APPLIED, Reason.PATH_OUTSIDE_WAREHOUSE, Reason.FORMAT_VERSION_UNSUPPORTED):
        assert written_condition(conclude(RunOutcome.FAILED, reason, 64), "Failed") == ("True", reason)


def test_a_load_and_its_confirm_run_never_share_a_name() -> None:
    world = job_world(status=TRIED)
    confirm = plan_confirm(world)
    assert isinstance(confirm, RunPlan)
    assert confirm.kind is RunKind.CONFIRM
    assert confirm.inputs_hash != plan_of(world).inputs_hash

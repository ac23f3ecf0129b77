"""How an attempt of a job ends: each end has one next write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import IndexState, RunOutcome, UnusedColumn
from skipstone_core.funnel import FunnelStage, LeftOut
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers.jobs.deciding import decide_job, refused
from skipstone_operator.worlds.pods import read_pod
from skipstone_operator.worlds.steps import Delete, PutStatus, Rest
from skipstone_operator.worlds.subjects import Children

from tests.unit import objects
from tests.unit.job_cases import (
    FINISHED,
    OWNER,
    conclude,
    launched_load,
    longest,
    merging,
    plan_of,
    seen,
    with_run,
)
from tests.unit.world_cases import (
    EARLIER,
    current_run,
    ended,
    job_world,
    pod,
    report,
    subject,
    table_state,
    underway,
    written_condition,
)


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

    def test_a_job_that_is_complete_tells_of_all_attempts_that_it_took(self) -> None:
        world, _ = with_run(status={"failedAttempts": 2, "lostAttempts": 1})
        step = conclude(RunOutcome.COMMITTED, Reason.COMMITTED, world=world)
        assert (step.status["failedAttempts"], step.status["lostAttempts"]) == (2, 1)

    def test_columns_that_nothing_used_are_in_the_status(self) -> None:
        current = replace(plan_of(job_world()).intent(1, EARLIER), launch_time=EARLIER)
        said = report(current, RunOutcome.COMMITTED, Reason.COMMITTED, counts={"rowsRead": 3, "rowsLoaded": 3})
        columns = (UnusedColumn(name="size", rows=2), UnusedColumn(name="x" * 300), UnusedColumn(name="size", rows=2))
        world = job_world(status={"attempts": 1, "currentRun": encode(current)})
        said = replace(said, unused_columns=columns, unused_total=2)
        step = decide_job(seen(world, current, ended(current, OWNER, 0, said)))
        assert isinstance(step, PutStatus)
        assert step.status["unusedColumns"][0] == {"name": "size", "rows": 2}
        assert [len(one["name"]) for one in step.status["unusedColumns"]] == [4, 255]
        assert (step.status["unusedColumnsTotal"], step.status["rowsRead"]) == (2, 3)

    def test_a_merge_shows_its_funnel(self) -> None:
        job = objects.merge("jan")
        current = replace(plan_of(job_world(job)).intent(1, EARLIER), launch_time=EARLIER)
        counts = {"filesTotal": 400, "filesCandidate": 12, "filesTouched": 3, "filesRewritten": 3, "rowsDeleted": 5}
        counts |= {"rowsIgnored": 2, "rowsUnmatchedDeletes": 4, "rowsUnmatchedUpdates": 6}
        funnel = (
            FunnelStage(name="Partitions", files_in=400, files_out=400, left_out=LeftOut.SWITCHED_OFF, message="why"),
            FunnelStage(name="KeyRanges", files_in=400, files_out=12, untouched=9, ms=7),
        )
        said = report(current, RunOutcome.COMMITTED, Reason.COMMITTED, counts=counts | {"bytesRemoved": 77})
        defaulted = (UnusedColumn(name="size", rows=2), UnusedColumn(name="size", rows=2))
        said = replace(said, funnel=funnel, stages_ms={"prune": 7}, defaulted_columns=defaulted)
        said = replace(said, gone_columns=("size", "x" * 300, "size"))
        world = job_world(job, {"attempts": 1, "currentRun": encode(current)})
        step = decide_job(seen(world, current, ended(current, OWNER, 0, said)))
        assert isinstance(step, PutStatus)
        assert step.status["pruned"] == "388/400"
        assert step.status["defaultedColumns"] == [{"name": "size", "rows": 2}]
        assert [len(name) for name in step.status["goneColumns"]] == [4, 255]
        assert (step.status["rows"]["deleted"], step.status["rows"]["ignored"]) == (5, 2)
        assert (step.status["rows"]["unmatchedDeletes"], step.status["rows"]["unmatchedUpdates"]) == (4, 6)
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

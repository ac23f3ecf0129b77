"""One MergeSchedule with its MergeJobs: each world has one next write."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.ids import scheduled_name
from skipstone_core.reasons import Reason
from skipstone_operator.manifests import build_merge_job
from skipstone_operator.ports import EventType, Refused
from skipstone_operator.reconcilers.runs.tables import consumer_of
from skipstone_operator.reconcilers.schedule import decide, refused
from skipstone_operator.resources.mergejob import MergeRows
from skipstone_operator.worlds.steps import Create, Delete, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import MergeJobSubject
from skipstone_operator.worlds.worlds import ScheduleWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.world_cases import SETTING, condition, subject, written_condition

Obj = dict[str, Any]
#: Noon is the time of START; the schedule was created an hour before, so that only noon is due.
NOON, ELEVEN = "2026-01-01T12:00:00Z", "2026-01-01T11:00:00Z"
RUNNING: Obj = {"conditions": [condition("Progressing", "True", "DriverRunning")]}
DONE: Obj = {"conditions": [condition("Complete", "True", "Committed")], "completionTime": "2026-01-01T11:05:00Z"}
BROKEN: Obj = {
    "conditions": [condition("Failed", "True", "BadRecords")],
    "completionTime": "2026-01-01T11:06:00Z",
    "reason": "BadRecords",
}


def minute(moment: datetime) -> int:
    return int(moment.timestamp()) // 60


def job(hours: float = 0, status: Obj | None = None, **metadata: Any) -> MergeJobSubject:
    """The MergeJob for a time ``hours`` before START."""
    made = build_merge_job(subject(objects.schedule()).raw, START - timedelta(hours=hours))
    created = (START - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return subject(made, status, creationTimestamp=created, **metadata)


def world(*jobs: MergeJobSubject, status: Obj | None = None, seconds: float = 0, **spec: Any) -> ScheduleWorld:
    """An hourly schedule ``seconds`` after noon."""
    setting = replace(SETTING, now=START + timedelta(seconds=seconds))
    born = {"creationTimestamp": spec.pop("born", ELEVEN)}
    return ScheduleWorld(schedule=subject(objects.schedule(**spec), status, **born), setting=setting, jobs=jobs)


def resting(found: ScheduleWorld) -> ScheduleWorld:
    """The world after the status of ``found`` was written."""
    step = decide(found)
    assert isinstance(step, PutStatus), step
    kept = subject(objects.schedule(), dict(step.status))
    return replace(found, schedule=replace(kept, raw=found.schedule.raw, resource=replace(
        kept.resource, spec=found.schedule.spec, metadata=found.schedule.meta
    )))  # fmt: skip


def put(step: Step) -> PutStatus:
    assert isinstance(step, PutStatus), step
    return step


def reasons(step: Step) -> list[str]:
    return [record.reason.value for record in put(step).events]


def test_a_time_that_came_gets_its_merge_job_word_for_word() -> None:
    template = {"suspend": True, "backoffLimit": 7}
    step = decide(world(template=template))
    assert isinstance(step, Create)
    made = step.object
    assert made["metadata"]["name"] == scheduled_name("hourly", minute(START)) == f"hourly-{minute(START)}"
    assert made["metadata"]["annotations"] == {"skipstone.dev/scheduled-time": NOON}
    assert made["spec"] == objects.schedule(template=template)["spec"]["mergeTemplate"]["spec"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("MergeSchedule", "uid-hourly", True)


def test_labels_and_annotations_of_the_template_are_kept_beside_ours() -> None:
    found = objects.schedule()
    found["spec"]["mergeTemplate"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    made = build_merge_job(subject(found).raw, START)["metadata"]
    assert made["labels"] == {
        "team": "a",
        "app.kubernetes.io/managed-by": "skipstone-operator",
        "skipstone.dev/schedule": "hourly",
    }
    assert made["annotations"]["note"] == "b"


def test_a_second_before_its_time_nothing_is_created_and_the_wait_ends_with_it() -> None:
    before = world(seconds=-1)
    step = put(decide(before))
    assert step.status["nextScheduleTime"] == NOON
    rest = decide(resting(before))
    assert isinstance(rest, Rest)
    assert rest.requeue.after == 1


def test_a_created_merge_job_is_recorded_once_and_then_nothing_is_written() -> None:
    after = world(job())
    step = put(decide(after))
    assert step.status["lastScheduleTime"] == NOON
    assert step.status["nextScheduleTime"] == "2026-01-01T13:00:00Z"
    assert (step.status["active"], step.status["activeJobs"]) == (1, [f"hourly-{minute(START)}"])
    assert written_condition(step, "Ready") == ("True", Reason.SCHEDULED)
    assert written_condition(step, "Progressing") == ("True", Reason.JOB_ACTIVE)
    rest = decide(resting(after))
    assert isinstance(rest, Rest)
    assert rest.requeue.after == 3600


def test_a_merge_job_that_the_status_does_not_know_is_not_created_again_even_if_it_is_gone_later() -> None:
    known = resting(world(job(status=DONE)))
    assert known.schedule.status.last_schedule_time == NOON
    assert isinstance(decide(replace(known, jobs=())), PutStatus | Rest)


@pytest.mark.parametrize(("policy", "step"), [("Forbid", PutStatus), ("Allow", Create), ("Replace", Delete)])
def test_what_happens_while_the_one_before_is_at_work(policy: str, step: type) -> None:
    found = decide(world(job(1, RUNNING), status={"lastScheduleTime": ELEVEN}, concurrencyPolicy=policy))
    assert isinstance(found, step)


def test_forbid_says_what_it_waits_for_and_starts_once_for_all_times_that_passed() -> None:
    before = {"lastScheduleTime": ELEVEN}
    waiting = world(job(1, RUNNING), status=before, seconds=7300)
    step = put(decide(waiting))
    assert written_condition(step, "Progressing") == ("True", Reason.PREVIOUS_JOB_ACTIVE)
    assert step.status["lastScheduleTime"] == ELEVEN
    created = decide(world(job(1, DONE), status=before, seconds=7300))
    assert isinstance(created, Create)
    assert created.object["metadata"]["name"] == f"hourly-{minute(START) + 120}"
    recorded = put(decide(world(job(1, DONE), job(-2), status=before, seconds=7300)))
    assert recorded.status["lastMissedTime"] == "2026-01-01T13:00:00Z"
    assert "RunMissed" in reasons(recorded)


def test_replace_deletes_the_one_before_and_then_creates() -> None:
    before = {"lastScheduleTime": ELEVEN}
    step = decide(world(job(1, RUNNING), status=before, concurrencyPolicy="Replace"))
    assert isinstance(step, Delete)
    assert (step.kind, step.uid) == ("MergeJob", f"uid-hourly-{minute(START) - 60}")
    going = job(1, RUNNING, deletionTimestamp=NOON)
    assert isinstance(decide(world(going, status=before, concurrencyPolicy="Replace")), Create)


@pytest.mark.parametrize(("late", "step"), [(0, Create), (60, Create), (61, PutStatus)])
def test_a_time_is_missed_once_its_deadline_passed(late: float, step: type) -> None:
    found = decide(world(seconds=late, startingDeadlineSeconds=60))
    assert isinstance(found, step)
    if isinstance(found, PutStatus):
        assert found.status["lastMissedTime"] == NOON
        assert reasons(found)[-1] == "RunMissed"


def test_a_missed_time_is_told_once() -> None:
    told = resting(world(seconds=61, startingDeadlineSeconds=60))
    rest = decide(told)
    assert isinstance(rest, Rest)
    assert rest.requeue.after == 3600 - 61


def test_while_forbid_waits_the_deadline_wakes_it() -> None:
    waiting = resting(world(job(1, RUNNING), status={"lastScheduleTime": ELEVEN}, startingDeadlineSeconds=60))
    rest = decide(waiting)
    assert isinstance(rest, Rest)
    assert rest.requeue.after == 61


def test_after_a_long_time_only_the_latest_is_made_up_for_and_a_warning_says_so() -> None:
    born, old = "2025-11-01T00:00:00Z", {"lastScheduleTime": "2025-12-01T00:00:00Z"}
    step = decide(world(status=old, born=born))
    assert isinstance(step, Create)
    assert step.object["metadata"]["name"] == f"hourly-{minute(START)}"
    told = put(decide(world(job(), status=old, born=born)))
    assert "TooManyMissed" in reasons(told)
    assert told.status["lastMissedTime"] == ELEVEN


def test_a_suspended_schedule_creates_nothing_and_makes_up_for_the_latest_afterwards() -> None:
    paused = world(suspend=True, seconds=7200, startingDeadlineSeconds=60)
    step = put(decide(paused))
    assert "nextScheduleTime" not in step.status
    assert written_condition(step, "Ready") == ("True", Reason.SUSPENDED)
    assert decide(resting(paused)) == Rest()
    assert isinstance(decide(world(seconds=7200)), Create)


def test_a_name_that_somebody_else_took_is_said_and_waited_for() -> None:
    found = replace(world(), taken=frozenset({f"hourly-{minute(START)}"}))
    step = put(decide(found))
    assert written_condition(step, "Ready") == ("False", Reason.RESOURCE_CONFLICT)
    rest = decide(resting(found))
    assert isinstance(rest, Rest)
    assert rest.requeue.after == 30
    later = replace(found, setting=replace(found.setting, now=START + timedelta(hours=1)))
    assert isinstance(decide(later), Create)


@pytest.mark.parametrize(
    ("message", "reason"),
    [("exceeded quota: mergejobs", Reason.WAITING_FOR_QUOTA), ("spec.keys is bad", Reason.JOB_REJECTED)],
)
def test_a_refused_merge_job_is_said_and_tried_again(message: str, reason: Reason) -> None:
    refusal = Refused(status=403, reason="Forbidden", message=message)
    step = put(refused(world(), refusal))
    assert written_condition(step, "Ready") == ("False", reason)
    assert message in next(c["message"] for c in step.status["conditions"] if c["type"] == "Ready")
    assert step.requeue.after == SETTING.timing.quota_poll
    again = put(refused(world(), refusal))
    assert isinstance(decide(resting(world(seconds=-1))), Rest)
    assert again.status == step.status


@pytest.mark.parametrize(
    "spec",
    [
        {"cron": "0 0 30 2 *"},
        {"cron": "nonsense"},
        {"timeZone": "Mars/Olympus"},
        {"template": {"keys": []}},
        {"template": {"whenMatched": [{"when": "target.x ==", "action": "Delete"}]}},
        {"template": {"ttlSecondsAfterFinished": 5}},
    ],
)
def test_a_spec_that_cannot_be_used_is_said_and_nothing_is_created(spec: Obj) -> None:
    bad = world(**spec)
    step = put(decide(bad))
    assert written_condition(step, "Ready") == ("False", Reason.INVALID_SPEC)
    assert decide(resting(bad)) == Rest()
    assert isinstance(refused(bad, Refused(422, "Invalid", "no")), Rest)


def test_history_keeps_three_complete_and_one_failed() -> None:
    jobs = [job(hours, BROKEN if hours % 2 else DONE) for hours in range(1, 11)]
    recorded = resting(world(*jobs, job(0, DONE)))
    gone = []
    while isinstance(step := decide(recorded), Delete):
        gone.append(step.name)
        recorded = replace(recorded, jobs=tuple(j for j in recorded.jobs if j.meta.name != step.name))
    kept = {scheduled_name("hourly", minute(START) - 60 * hours) for hours in (0, 1, 2, 4)}
    assert {j.meta.name for j in recorded.jobs} == kept
    assert len(gone) == 7


def test_history_waits_until_the_time_is_recorded() -> None:
    assert isinstance(decide(world(job(0, DONE), successfulJobsHistoryLimit=0)), PutStatus)
    recorded = resting(world(job(0, DONE), successfulJobsHistoryLimit=0))
    assert isinstance(decide(recorded), Delete)


def test_the_last_success_and_a_failure_after_it_are_shown() -> None:
    step = put(decide(world(job(0, BROKEN), job(1, DONE))))
    assert step.status["lastSuccessfulTime"] == DONE["completionTime"]
    assert step.status["lastReadTime"] == ELEVEN
    assert written_condition(step, "Degraded") == ("True", Reason.JOB_FAILED)
    assert [record.type for record in step.events if record.reason is Reason.JOB_FAILED] == [EventType.WARNING]
    well = put(decide(world(job(0, {**DONE, "completionTime": "2026-01-01T12:05:00Z"}), job(1, BROKEN))))
    assert written_condition(well, "Degraded") == ("False", Reason.HEALTHY)


def test_columns_that_the_last_merge_left_out_are_a_condition_until_one_uses_them() -> None:
    left = [{"name": "size", "rows": 7}, {"name": "void", "rows": 0}, {"name": "deep"}]
    step = put(decide(world(job(0, {**DONE, "unusedColumns": left}))))
    assert written_condition(step, "ColumnsIgnored") == ("True", Reason.COLUMNS_IGNORED)
    told = next(each["message"] for each in step.status["conditions"] if each["type"] == "ColumnsIgnored")
    assert "Nothing uses 2 columns of the source: 'size' (7 rows have a value), 'deep'" in told
    idle = job(1, {**DONE, "completionTime": "2026-01-01T12:05:00Z", "rows": encode(MergeRows())})
    step = put(decide(world(job(0, {**DONE, "unusedColumns": left}), idle)))
    assert written_condition(step, "ColumnsIgnored") == ("True", Reason.COLUMNS_IGNORED)
    kept = resting(world(job(0, {**DONE, "unusedColumns": left}), idle))
    assert isinstance(decide(replace(kept, jobs=(idle,))), Rest), "history does not keep the job that told it"
    later = job(1, {**DONE, "completionTime": "2026-01-01T12:05:00Z"})
    step = put(decide(world(job(0, {**DONE, "unusedColumns": left}), later)))
    assert written_condition(step, "ColumnsIgnored") == ("False", Reason.HEALTHY)


def test_columns_that_the_feed_has_no_more_are_a_condition_until_it_has_them() -> None:
    found = world(job(0, {**DONE, "goneColumns": ["size"]}))
    step = put(decide(found))
    assert step.status["goneColumns"] == ["size"]
    assert written_condition(step, "ColumnsGone") == ("True", Reason.COLUMNS_GONE)
    told = next(each["message"] for each in step.status["conditions"] if each["type"] == "ColumnsGone")
    assert told.startswith("The feed no longer has 1 column of the table that earlier jobs merged: 'size'")
    assert isinstance(decide(replace(resting(found), jobs=())), Rest), "known when the job is gone"
    later = job(1, {**DONE, "completionTime": "2026-01-01T12:05:00Z"})
    step = put(decide(replace(resting(found), jobs=(*found.jobs, later))))
    assert written_condition(step, "ColumnsGone") == ("False", Reason.HEALTHY)


def test_rows_that_the_last_merge_did_not_find_stay_known_when_its_job_is_gone() -> None:
    found = world(job(0, {**DONE, "rows": {"source": 9, "unmatchedDeletes": 3, "unmatchedUpdates": 2}}))
    step = put(decide(found))
    assert (step.status["rowsUnmatchedDeletes"], step.status["rowsUnmatchedUpdates"]) == (3, 2)
    idle = job(1, {**DONE, "completionTime": "2026-01-01T12:05:00Z", "rows": encode(MergeRows())})
    step = put(decide(replace(resting(found), jobs=(*found.jobs, idle))))
    assert step.status["rowsUnmatchedDeletes"] == 3, "it had no new files"
    later = job(2, {**DONE, "completionTime": "2026-01-01T12:06:00Z", "rows": {"source": 1}})
    assert put(decide(replace(resting(found), jobs=(*found.jobs, later)))).status.get("rowsUnmatchedDeletes", 0) == 0
    assert isinstance(decide(replace(resting(found), jobs=())), Rest)


def test_changes_that_a_kept_merge_left_out_are_a_condition_and_a_failure_quotes_its_cause() -> None:
    said = (
        "3 changes cannot be applied: status.rejectedPath has them. The first: 'f/1.json', line 2: column 'seen': ..."
    )
    complete = {**condition("Complete", "True", "Committed"), "message": said}
    rows = {"rejected": 3, "waiting": 2}
    left = {**DONE, "rows": rows, "rejectedPath": ".skipstone/rejected/u/r", "conditions": [complete]}
    later = job(1, {**DONE, "completionTime": "2026-01-01T12:05:00Z", "rows": {"rejected": 0}})
    step = put(decide(world(job(0, left), later)))
    assert written_condition(step, "ChangesLeftOut") == ("True", Reason.CHANGES_LEFT_OUT)
    told = next(each["message"] for each in step.status["conditions"] if each["type"] == "ChangesLeftOut")
    assert "left out 3 changes that do not fit and 2 that wait" in told
    assert ".skipstone/rejected/u/r" in told and "'f/1.json', line 2: column 'seen'" in told
    step = put(decide(world(job(0, DONE), later)))
    assert written_condition(step, "ChangesLeftOut") == ("False", Reason.HEALTHY)
    cause = {**condition("Failed", "True", "BadRecords"), "message": "'f/1.json', line 2: column 'seen'"}
    step = put(decide(world(job(0, {**BROKEN, "reason": "BadRecords", "conditions": [cause]}))))
    told = next(each["message"] for each in step.status["conditions"] if each["type"] == "Degraded")
    assert told.endswith("failed with BadRecords: 'f/1.json', line 2: column 'seen'")


def test_a_clock_that_went_back_creates_nothing_twice() -> None:
    recorded = resting(world(job(status=DONE)))
    back = replace(recorded, setting=replace(recorded.setting, now=START - timedelta(seconds=90)))
    step = decide(replace(back, jobs=()))
    assert not isinstance(step, Create)


def test_a_deleted_schedule_is_left_alone() -> None:
    gone = world()
    deleted = subject(objects.schedule(), deletionTimestamp=NOON)
    assert decide(replace(gone, schedule=deleted)) == Rest()


def test_the_jobs_of_a_schedule_share_a_memory_by_its_name() -> None:
    assert consumer_of(job()) == consumer_of(job(1)) == "MergeSchedule lake/hourly"
    alone = subject(objects.merge("x"))
    assert consumer_of(alone) == consumer_of(subject(objects.merge("x")))
    assert consumer_of(alone) != consumer_of(subject(objects.merge("y")))
    assert encode(job().spec.source)["consume"] == "New"

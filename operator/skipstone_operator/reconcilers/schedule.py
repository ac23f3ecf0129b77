"""MergeSchedule: the one next step towards a MergeJob for each time.

Entry point of keys of kind MergeSchedule. A MergeJob is named after the minute of its time, so there is never a second
one; what a status that was never written would have said is seen in the list of MergeJobs. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.errors import BadSpec
from skipstone_core.merging.unused import describe_gone, describe_unused
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    CHANGES_LEFT_OUT,
    COLUMNS_GONE,
    COLUMNS_IGNORED,
    COMPLETE,
    DEGRADED,
    FAILED,
    PROGRESSING,
    READY,
    Judgement,
    fails,
    find,
    format_time,
    holds,
    is_true,
)
from skipstone_operator.manifests import build_merge_job
from skipstone_operator.ports import EventRecord, EventType, JsonObject, Refused, Requeue
from skipstone_operator.reconcilers.runs.launch import FOREIGN_POLL
from skipstone_operator.reconcilers.runs.statuses import earliest, event, judged, later, or_rest, put_status
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.mergejob import MergeRows
from skipstone_operator.resources.mergeschedule import MAX_ACTIVE_JOBS, ConcurrencyPolicy, MergeScheduleStatus
from skipstone_operator.worlds.cron import read_cron
from skipstone_operator.worlds.schedules import MAX_MISSED, Missed, Timetable
from skipstone_operator.worlds.steps import Create, Delete, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Finding, MergeJobSubject
from skipstone_operator.worlds.times import past_time
from skipstone_operator.worlds.worlds import ScheduleWorld


def decide(world: ScheduleWorld) -> Step:
    """Choose the one next write for the schedule."""
    if world.schedule.deleting:
        return Rest()
    table = read_timetable(world)
    if isinstance(table, Finding):
        return or_rest(invalid(world, table), None)
    obstacle = find_obstacle(table)
    step = (start(table) if obstacle is None else None) or record(table, obstacle) or trim(table)
    return or_rest(step, earliest(table.wait, FOREIGN_POLL if obstacle is not None else None))


def read_timetable(world: ScheduleWorld) -> Timetable | Finding:
    """The schedule with its times, or what is wrong with its spec."""
    spec = world.schedule.spec
    if (bad := validate_spec(world.schedule.kind, spec)) is not None:
        return Finding(bad.reason, bad.message)
    try:
        return Timetable(world, read_cron(spec.schedule, spec.time_zone))
    except BadSpec as error:
        return Finding(error.reason, str(error))


def invalid(world: ScheduleWorld, finding: Finding) -> PutStatus | None:
    """Nothing is created until the spec changes."""
    judgements = (fails(READY, finding.reason, finding.message), fails(PROGRESSING, finding.reason))
    known = replace(world.schedule.status, next_schedule_time=None)
    return put_status(world.schedule, judged(known, world.schedule, judgements, world.setting.now))


def find_obstacle(table: Timetable) -> Finding | None:
    """What bears the name of the MergeJob that is due and is not ours."""
    job = manifest(table)
    if job is None or job["metadata"]["name"] not in table.world.taken:
        return None
    message = f"MergeJob {job['metadata']['name']} belongs to something else: delete it, or the next time goes on"
    return Finding(Reason.RESOURCE_CONFLICT, message)


def manifest(table: Timetable) -> JsonObject | None:
    """The MergeJob that is due."""
    return None if table.due is None else build_merge_job(table.world.schedule.raw, table.due)


def start(table: Timetable) -> Step | None:
    """Create the MergeJob that is due, or make room for it."""
    job, policy = manifest(table), table.world.schedule.spec.concurrency_policy
    if job is None or (policy is ConcurrencyPolicy.FORBID and table.active):
        return None
    if policy is ConcurrencyPolicy.REPLACE and (old := next((j for j in table.active if not j.deleting), None)):
        return delete(old)
    return Create(object=job)


def record(table: Timetable, finding: Finding | None) -> PutStatus | None:
    """Write down what is seen, with an Event for times that are given up."""
    schedule, missed = table.world.schedule, table.missed
    step = put_status(schedule, judged(seen(table), schedule, judgements(table, finding), table.now))
    if step is None or missed is None:
        return step
    return replace(step, events=(*step.events, missed_event(table, missed)))


def seen(table: Timetable) -> MergeScheduleStatus:
    """The status as it is now, without its conditions."""
    status, missed, following = table.world.schedule.status, table.missed, table.following
    known = status.last_schedule_time if past_time(status.last_schedule_time, table.now) is not None else None
    created = format_time(table.settled) if table.settled > table.recorded else known
    ended = last_complete(table)
    rows = (ended.status.rows if ended is not None else None) or MergeRows(
        unmatched_deletes=status.rows_unmatched_deletes, unmatched_updates=status.rows_unmatched_updates
    )
    ends = [job.status.completion_time for job in table.succeeded if job.status.completion_time]
    begins = [job.meta.creation_timestamp for job in table.succeeded]
    return replace(
        status,
        active=len(table.active),
        active_jobs=tuple(job.meta.name for job in table.active[:MAX_ACTIVE_JOBS]),
        last_schedule_time=created,
        next_schedule_time=None if following is None else format_time(following),
        last_successful_time=max([*ends, status.last_successful_time or ""]) or None,
        last_read_time=max([*begins, status.last_read_time or ""]) or None,
        gone_columns=status.gone_columns if ended is None else ended.status.gone_columns,
        rows_unmatched_deletes=rows.unmatched_deletes,
        rows_unmatched_updates=rows.unmatched_updates,
        last_missed_time=_last_missed(table) if missed is None else format_time(missed.latest),
    )


def last_complete(table: Timetable) -> MergeJobSubject | None:
    """The MergeJob that became Complete last, of those that are there and had something to merge."""
    merged = (job for job in table.succeeded if job.status.rows is None or job.status.rows.source)
    return max(merged, key=lambda job: (job.status.completion_time or "", job.age), default=None)


def _last_missed(table: Timetable) -> str | None:
    text = table.world.schedule.status.last_missed_time
    return text if past_time(text, table.now) is not None else None


def judgements(table: Timetable, finding: Finding | None) -> tuple[Judgement, ...]:
    """Ready, Progressing, Degraded, ColumnsIgnored, ColumnsGone and ChangesLeftOut."""
    blocked = fails(READY, finding.reason, finding.message) if finding is not None else None
    left_out = (ignored_columns(table), gone_columns(table), left_out_changes(table))
    return (blocked or ready(table), progress(table), health(table), *left_out)


def ready(table: Timetable) -> Judgement:
    """Return the condition that MergeJobs are created at their times."""
    if table.world.schedule.spec.suspend:
        return holds(READY, Reason.SUSPENDED, "spec.suspend is true: no MergeJob is created")
    return holds(READY, Reason.SCHEDULED, "a MergeJob is created at each time of spec.schedule")


def progress(table: Timetable) -> Judgement:
    """What is running, and what waits for it."""
    if not table.active:
        return fails(PROGRESSING, Reason.IDLE, "no MergeJob of the schedule is running")
    names = ", ".join(job.meta.name for job in table.active[:3])
    if table.due is not None and table.world.schedule.spec.concurrency_policy is ConcurrencyPolicy.FORBID:
        message = f"the MergeJob for {format_time(table.due)} waits for the end of {names}"
        return holds(PROGRESSING, Reason.PREVIOUS_JOB_ACTIVE, message)
    return holds(PROGRESSING, Reason.JOB_ACTIVE, f"running: {names}")


def health(table: Timetable) -> Judgement:
    """Return the condition that the MergeJob that ended last succeeded."""
    ended = sorted((*table.succeeded, *table.failed), key=lambda job: (job.status.completion_time or "", job.age))
    if not ended or ended[-1] not in table.failed:
        return fails(DEGRADED, Reason.HEALTHY)
    status = ended[-1].status
    cause = (
        next((condition.message for condition in status.conditions if condition.type == FAILED), "")
        or "see its conditions"
    )
    message = f"MergeJob {ended[-1].meta.name} failed with {status.reason}: {cause}"
    return holds(DEGRADED, Reason.JOB_FAILED, message)


def ignored_columns(table: Timetable) -> Judgement:
    """Return the condition that the MergeJob that became Complete last left values of its source out."""
    ended = last_complete(table)
    columns = () if ended is None else ended.status.unused_columns
    valued = [UnusedColumn(name=column.name, rows=column.rows) for column in columns if column.rows != 0]
    known = find(table.world.schedule.status.conditions, COLUMNS_IGNORED)
    if ended is None and known is not None and is_true([known], COLUMNS_IGNORED):
        return holds(COLUMNS_IGNORED, Reason.COLUMNS_IGNORED, known.message)
    if ended is None or not valued:
        return fails(COLUMNS_IGNORED, Reason.HEALTHY)
    sentence = describe_unused(valued, len(valued)).rstrip(".")
    message = (
        f"MergeJob {ended.meta.name}: {sentence}; set source.unknownColumns to Add, or add the columns to the Table"
    )
    return holds(COLUMNS_IGNORED, Reason.COLUMNS_IGNORED, message)


def gone_columns(table: Timetable) -> Judgement:
    """Return the condition that the feed of the last Complete MergeJob lacks columns that earlier ones had."""
    gone = seen(table).gone_columns
    if not gone:
        return fails(COLUMNS_GONE, Reason.HEALTHY)
    return holds(COLUMNS_GONE, Reason.COLUMNS_GONE, describe_gone(gone).rstrip("."))


def left_out_changes(table: Timetable) -> Judgement:
    """Return the condition that one of the kept MergeJobs left out changes; it names the newest of them."""
    jobs = [job for job in table.succeeded if (rows := job.status.rows) is not None and rows.rejected + rows.waiting]
    newest = max(jobs, key=lambda job: (job.status.completion_time or "", job.age), default=None)
    if newest is None or newest.status.rows is None:
        return fails(CHANGES_LEFT_OUT, Reason.HEALTHY)
    rows, where = newest.status.rows, newest.status.rejected_path
    kept = f"; {where} in the Warehouse has them" if where else ""
    sentence = next((condition.message for condition in newest.status.conditions if condition.type == COMPLETE), "")
    counts = f"left out {rows.rejected} changes that do not fit and {rows.waiting} that wait for a missing one"
    return holds(CHANGES_LEFT_OUT, Reason.CHANGES_LEFT_OUT, f"MergeJob {newest.meta.name} {counts}{kept}: {sentence}")


def missed_event(table: Timetable, missed: Missed) -> EventRecord:
    """The Event that tells of times that are given up."""
    last = format_time(missed.latest)
    if missed.count > MAX_MISSED:
        note = f"more than {MAX_MISSED} times passed without a MergeJob of their own, the latest was {last}"
        return event(table.world.schedule, EventType.WARNING, Reason.TOO_MANY_MISSED, note)
    note = f"{missed.count} times passed without a MergeJob of their own, the latest was {last}"
    return event(table.world.schedule, EventType.WARNING, Reason.RUN_MISSED, note)


def trim(table: Timetable) -> Step | None:
    """Delete the oldest MergeJob that history does not keep. Only after ``record``: the status knows its time."""
    spec = table.world.schedule.spec
    surplus = (
        *table.succeeded[: max(0, len(table.succeeded) - spec.successful_jobs_history_limit)],
        *table.failed[: max(0, len(table.failed) - spec.failed_jobs_history_limit)],
    )
    return next((delete(job) for job in surplus if not job.deleting), None)


def delete(job: MergeJobSubject) -> Delete:
    """Delete this very MergeJob; its driver goes with it."""
    return Delete(kind=job.kind, namespace=job.meta.namespace, name=job.meta.name, uid=job.meta.uid)


def refused(world: ScheduleWorld, refusal: Refused) -> Step:
    """The API server refused the MergeJob: say so, and try again until another time takes its place."""
    poll = world.setting.timing.quota_poll
    table = read_timetable(world)
    if isinstance(table, Finding):
        return Rest(requeue=Requeue(poll))
    reason = Reason.WAITING_FOR_QUOTA if refusal.by_quota else Reason.JOB_REJECTED
    finding = Finding(reason, f"the API server refused the MergeJob: {refusal.message}")
    return later(record(table, finding), poll)

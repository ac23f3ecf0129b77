"""LoadJob and MergeJob: the one next step for one job.

Called by the table's decider, since jobs reconcile under their Table's key. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import format_time, read_reason
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers.confirms import decide_confirm, intend_confirm
from skipstone_operator.reconcilers.jobends import conclude, count_failure, give_up
from skipstone_operator.reconcilers.jobfacts import (
    MAIN_KINDS,
    WAIT_POLL,
    deadline_left,
    deadline_message,
    find_block,
    find_stranger,
    is_prompt,
    plan_run,
    retry_message,
    table_uid,
)
from skipstone_operator.reconcilers.jobstatus import at_work, failed, is_finished, waiting, with_progress
from skipstone_operator.reconcilers.launch import (
    FOREIGN_POLL,
    StopOrder,
    adopted_intent,
    clean_executors,
    delete_pod,
    discard,
    find_live,
    is_stale,
    launch,
    next_attempt,
    refusal_finding,
    trim,
)
from skipstone_operator.reconcilers.statuses import earliest, followed, later, or_rest, put_status
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.worlds.runs import Ended, Ending, Foreign, Live, NotLaunched, RunWorld, Verdict, judge_run
from skipstone_operator.worlds.steps import Delete, Rest, Step
from skipstone_operator.worlds.subjects import Finding
from skipstone_operator.worlds.times import past_time, seconds_since, seconds_until
from skipstone_operator.worlds.worlds import JobWorld


def decide_job(world: JobWorld) -> Step:
    """Choose the one next write for the job."""
    status = world.job.status
    if world.job.deleting:
        return Rest()
    if is_finished(status):
        return decide_finished(world)
    current = status.current_run
    if current is not None and world.run is not None:
        attempt = decide_confirm if current.kind is RunKind.CONFIRM else decide_attempt
        step = attempt(world, world.run)
    else:
        step = decide_idle(world)
    if not isinstance(step, Rest):
        return step
    return trim(world.children, {current.id} if current else ()) or step


def decide_finished(world: JobWorld) -> Step:
    """A job that ended: its leftovers go, and in the end it goes itself if it was told to."""
    job, children = world.job, world.children
    leftover = next((pod for pod in children.pods if pod.live and not pod.deleting), None)
    if leftover is not None:
        return delete_pod(leftover)
    if (step := trim(children, (), keep=world.kept)) is not None:
        return step
    ttl, ended = job.spec.ttl_seconds_after_finished, seconds_since(job.status.completion_time, world.setting.now)
    if ttl is None:
        return Rest()
    if ended is None:
        # A time that somebody took away, or put into the future, would keep the job for ever.
        step = put_status(job, replace(job.status, completion_time=format_time(world.setting.now)))
        return or_rest(step, ttl)
    if ended < ttl:
        return Rest(requeue=Requeue(ttl - ended))
    return Delete(kind=job.kind, namespace=job.meta.namespace, name=job.meta.name, uid=job.meta.uid)


def decide_idle(world: JobWorld) -> Step:
    """No run is intended: say what the job waits for, or intend its next run."""
    job, status, now = world.job, world.job.status, world.setting.now
    if status.attempts == 0 and (bad := validate_spec(job.kind, job.spec)) is not None:
        return or_rest(failed(world, status, bad.reason, bad.message), None)
    if status.confirm is not None:
        return intend_confirm(world)
    if job.spec.suspend:
        paused = replace(status, start_time=None, retry_time=None)
        return or_rest(waiting(world, paused, Reason.SUSPENDED, "spec.suspend is true"), None)
    if deadline_left(world) == 0.0:
        return give_up(world, status, Reason.DEADLINE_EXCEEDED, deadline_message(world))
    if (finding := find_block(world)) is not None:
        return or_rest(waiting(world, status, finding.reason, finding.message), WAIT_POLL)
    if (delay := seconds_until(status.retry_time, now)) > 0:
        step = at_work(world, status, Reason.RETRYING, retry_message(world))
        return or_rest(step, earliest(delay, deadline_left(world)))
    return intend(world)


def intend(world: JobWorld) -> Step:
    """Write the intent of the next attempt, or take up a live pod whose intent was lost."""
    status, now = world.job.status, format_time(world.setting.now)
    plan = plan_run(world)
    if plan is None:
        return Rest(requeue=Requeue(WAIT_POLL))
    live = find_live(world.children, MAIN_KINDS)
    if live is not None:
        current = adopted_intent(live, plan, now)
    else:
        current = plan.intent(next_attempt(world.children, MAIN_KINDS, status.attempts), now)
    intended = replace(
        status,
        current_run=current,
        attempts=max(current.attempt, status.attempts),
        retry_time=None,
        table_uid=table_uid(world),
    )
    message = f"attempt {current.attempt} is about to be launched as run {current.id}"
    return or_rest(at_work(world, intended, Reason.RUN_INTENDED, message), 0.0)


def decide_attempt(world: JobWorld, run: RunWorld) -> Step:
    """An attempt is intended or at work."""
    setting = world.setting
    match judge_run(run, now=setting.now, pending_deadline=setting.timing.pending_deadline):
        case NotLaunched():
            return decide_launch(world, run)
        case Foreign(what):
            message = f"{what} bears the name of this job's run and belongs to something else; delete it"
            return or_rest(waiting(world, world.job.status, Reason.RESOURCE_CONFLICT, message), FOREIGN_POLL)
        case Live() as live:
            return follow(world, run, live)
        case Ended(verdict, pod):
            return clean_executors(run) or conclude(world, run.current, verdict, pod)


def decide_launch(world: JobWorld, run: RunWorld) -> Step:
    """The intent is written and no pod was seen: create what is missing, or give the intent up."""
    status, plan = world.job.status, plan_run(world)
    if world.job.spec.suspend or plan is None or find_block(world) is not None:
        return discard(run) or withdraw(world)
    if is_stale(run.current, plan):
        prompt = is_prompt(run.current, world.setting.now)
        # A pod that came and went unseen has taken the number.
        number = run.current.attempt if prompt else max(run.current.attempt, status.attempts) + 1
        intent = plan.intent(number, format_time(world.setting.now))
        renewed = replace(status, current_run=intent, attempts=max(number, status.attempts), table_uid=table_uid(world))
        message = f"Table or Warehouse changed; attempt {number} is launched anew"
        return discard(run) or or_rest(at_work(world, renewed, Reason.RUN_INTENDED, message), 0.0)
    return launch(run, plan)


def withdraw(world: JobWorld) -> Step:
    """Take back an intent that led to no pod as far as anybody saw. Its number is not given again."""
    free = replace(world.job.status, current_run=None)
    if world.job.spec.suspend:
        return or_rest(waiting(world, free, Reason.SUSPENDED, "spec.suspend is true"), None)
    finding = find_block(world) or Finding(Reason.WAITING_FOR_WAREHOUSE, "the Table or the Warehouse went away")
    return or_rest(waiting(world, free, finding.reason, finding.message), WAIT_POLL)


def follow(world: JobWorld, run: RunWorld, live: Live) -> Step:
    """The pod is there and has not ended: follow it, or stop it."""
    current = followed(run.current, live)
    order = find_stop(world, live)
    if order is not None and not current.stop_reason:
        current = replace(current, stop_reason=order.reason.value, stop_message=order.message)
    status = with_progress(started(world, current), live.pod.underway)
    if current.stop_reason:
        message = f"stopping run {current.id}: {current.stop_message}"
        written = at_work(world, status, read_reason(current.stop_reason), message)
        return written or (Rest(requeue=Requeue(FOREIGN_POLL)) if live.pod.deleting else delete_pod(live.pod))
    if live.pod.deleting:
        message = f"driver pod {live.pod.name} is being deleted"
        return or_rest(at_work(world, status, Reason.DELETING, message), next_look(world, live))
    return or_rest(at_work(world, status, live.reason, live.message), next_look(world, live))


def started(world: JobWorld, current: CurrentRun) -> JobStatus:
    """The status once a pod was seen: the clock of activeDeadlineSeconds runs from here."""
    status, now = world.job.status, world.setting.now
    begun = status.start_time if past_time(status.start_time, now) is not None else format_time(now)
    return replace(status, current_run=current, launched=True, start_time=begun)


def next_look(world: JobWorld, live: Live) -> float | None:
    """When a live pod has to be looked at again although nothing was seen."""
    timing, now = world.setting.timing, world.setting.now
    pending = None
    if live.pod.waits is not None and live.pod.waits.bounded and live.pod.created is not None:
        pending = max(0.0, timing.pending_deadline - (now - live.pod.created).total_seconds())
    return earliest(pending, deadline_left(world), WAIT_POLL)


def find_stop(world: JobWorld, live: Live) -> StopOrder | None:
    """Why a live driver has to go."""
    table = world.place.table
    if world.job.spec.suspend:
        return StopOrder(Reason.SUSPENDED, "spec.suspend is true")
    if deadline_left(world) == 0.0:
        return StopOrder(Reason.DEADLINE_EXCEEDED, deadline_message(world))
    if table is not None and table.deleting:
        return StopOrder(Reason.TABLE_NOT_FOUND, f"Table {table.meta.name!r} is being deleted")
    if (stranger := find_stranger(world)) is not None:
        return StopOrder(stranger.reason, stranger.message)
    if live.overdue:
        return StopOrder(live.reason, live.message)
    return None


def refused(world: JobWorld, refusal: Refused) -> Step:
    """The API server refused a child of the job's run: say so, look again later, and in the end count a failure."""
    timing, status = world.setting.timing, world.job.status
    finding = refusal_finding(refusal)
    if finding.reason is Reason.WAITING_FOR_QUOTA:
        return later(waiting(world, status, finding.reason, finding.message), timing.quota_poll)
    current = status.current_run
    waited = seconds_since(current.start_time, world.setting.now) if current else None
    overdue = waited is not None and waited >= timing.pending_deadline
    if overdue and current is not None and current.kind in MAIN_KINDS:
        verdict = Verdict(ending=Ending.UNKNOWN, reason=finding.reason, message=finding.message)
        return count_failure(world, current, verdict)
    return later(at_work(world, status, finding.reason, finding.message), timing.quota_poll)

"""Confirm runs: before a job is Failed, somebody looks into the table and fences the transaction off.

Called by the job deciders. A confirm run is repeated with back-off until it answers; it never counts. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, find, format_time, read_reason
from skipstone_operator.reconcilers.jobfacts import MAIN_KINDS, WAIT_POLL
from skipstone_operator.reconcilers.jobstatus import at_work, completed, failed, waiting
from skipstone_operator.reconcilers.launch import (
    FOREIGN_POLL,
    clean_executors,
    delete_pod,
    discard,
    find_live,
    is_stale,
    launch,
    next_attempt,
)
from skipstone_operator.reconcilers.requests import RunPlan, find_misfit, plan_confirm_run
from skipstone_operator.reconcilers.statuses import followed, or_rest
from skipstone_operator.resources.common import ConditionStatus, ConfirmState
from skipstone_operator.worlds.runs import Ended, Ending, Foreign, Live, NotLaunched, RunWorld, Verdict, judge_run
from skipstone_operator.worlds.steps import PutStatus, Step
from skipstone_operator.worlds.times import add_seconds, backoff, seconds_until
from skipstone_operator.worlds.worlds import JobWorld


def intend_confirm(world: JobWorld) -> Step:
    """A confirm run is due: intend it when its time has come and nobody may still be writing."""
    status, now = world.job.status, world.setting.now
    confirm = status.confirm or ConfirmState()
    live = find_live(world.children, MAIN_KINDS)
    if live is not None:
        message = f"the confirm run follows when driver pod {live.name} is gone"
        waits = or_rest(at_work(world, status, Reason.CONFIRMING, message), FOREIGN_POLL)
        return waits if live.deleting else delete_pod(live)
    if (delay := seconds_until(confirm.next_time, now)) > 0:
        return or_rest(_still_unknown(world, confirm), delay)
    plan = plan_confirm(world)
    if isinstance(plan, str):
        return or_rest(at_work(world, status, Reason.OUTCOME_UNKNOWN, plan), WAIT_POLL)
    attempt = next_attempt(world.children, (RunKind.CONFIRM,), confirm.attempts)
    intended = replace(
        status, current_run=plan.intent(attempt, format_time(now)), confirm=replace(confirm, attempts=attempt)
    )
    return or_rest(at_work(world, intended, Reason.CONFIRMING, f"confirm run {attempt} is about to be launched"), 0.0)


def _still_unknown(world: JobWorld, confirm: ConfirmState) -> PutStatus | None:
    """What is said while the next confirm run waits, in place of a pass that failed."""
    said = find(world.job.status.conditions, PROGRESSING)
    if said is None or said.status is not ConditionStatus.UNKNOWN:
        return None
    message = f"confirm run {confirm.attempts} did not answer; another follows"
    return at_work(world, world.job.status, Reason.OUTCOME_UNKNOWN, message)


def plan_confirm(world: JobWorld) -> RunPlan | str:
    """The confirm run, or the sentence that says why it cannot be asked for now."""
    place, asked = world.place, world.job.status.table_uid
    if place.table is None or (asked and place.table.meta.uid != asked):
        return "whether the commit landed is not known: the Table that the job was for is gone; delete the job"
    if place.warehouse is None:
        return "whether the commit landed is not known: the Warehouse is gone; create it again or delete the job"
    if (misfit := find_misfit(place.warehouse)) is not None:
        name = place.warehouse.meta.name
        return f"whether the commit landed is not known: correct Warehouse {name!r}: {misfit.message}"
    return plan_confirm_run(world.job, place, place.table, place.warehouse, world.setting)


def decide_confirm(world: JobWorld, run: RunWorld) -> Step:
    """A confirm run is intended or at work."""
    setting = world.setting
    match judge_run(run, now=setting.now, pending_deadline=setting.timing.pending_deadline):
        case NotLaunched():
            return _launch(world, run)
        case Foreign(what):
            message = f"{what} bears the name of this job's run and belongs to something else; delete it"
            return or_rest(waiting(world, world.job.status, Reason.RESOURCE_CONFLICT, message), FOREIGN_POLL)
        case Live() as live:
            return _follow(world, run, live)
        case Ended(verdict, _):
            return clean_executors(run) or _conclude(world, verdict)


def _launch(world: JobWorld, run: RunWorld) -> Step:
    status, plan = world.job.status, plan_confirm(world)
    if isinstance(plan, str):
        free = replace(status, current_run=None)
        return discard(run) or or_rest(at_work(world, free, Reason.OUTCOME_UNKNOWN, plan), WAIT_POLL)
    if is_stale(run.current, plan):
        renewed = replace(status, current_run=plan.intent(run.current.attempt, format_time(world.setting.now)))
        return discard(run) or or_rest(
            at_work(world, renewed, Reason.CONFIRMING, "the Warehouse changed; the confirm run is launched anew"), 0.0
        )
    return launch(run, plan)


def _follow(world: JobWorld, run: RunWorld, live: Live) -> Step:
    current = followed(run.current, live)
    if live.overdue and not current.stop_reason:
        current = replace(current, stop_reason=live.reason.value, stop_message=live.message)
    message = f"confirm run {current.id}: {current.stop_message or live.message}"
    written = at_work(world, replace(world.job.status, current_run=current), Reason.CONFIRMING, message)
    if written is None and current.stop_reason and not live.pod.deleting:
        return delete_pod(live.pod)
    return or_rest(written, WAIT_POLL)


def _conclude(world: JobWorld, verdict: Verdict) -> Step:
    status = world.job.status
    confirm = status.confirm or ConfirmState(reason=Reason.ABORTED.value)
    match verdict.ending:
        case Ending.SUCCEEDED:
            return or_rest(completed(world, status, verdict), 0.0)
        case Ending.ABSENT:
            reason = read_reason(confirm.reason or Reason.ABORTED.value)
            message = f"{confirm.message}; nothing was committed, and nothing will be".lstrip("; ")
            return or_rest(failed(world, status, reason, message), 0.0)
        case Ending.REFUSED if verdict.reason is Reason.ROLLED_BACK:
            message = f"{verdict.message}; before that: {confirm.reason}: {confirm.message}"
            return or_rest(failed(world, status, verdict.reason, message), 0.0)
        case Ending.UNKNOWN | Ending.LOST | Ending.REFUSED:
            # A run that could not even open the table has not answered: the commit may be there.
            return _ask_again(world, confirm, verdict)
        case _:
            assert_never(verdict.ending)


def _ask_again(world: JobWorld, confirm: ConfirmState, verdict: Verdict) -> Step:
    timing, now = world.setting.timing, world.setting.now
    delay = backoff(confirm.attempts, base=timing.backoff_base, cap=timing.backoff_cap)
    asking = replace(confirm, next_time=format_time(add_seconds(now, delay)))
    message = f"confirm run {confirm.attempts} did not answer ({verdict.reason}: {verdict.message}); another follows"
    unknown = replace(world.job.status, current_run=None, confirm=asking)
    return or_rest(at_work(world, unknown, Reason.OUTCOME_UNKNOWN, message), 0.0)

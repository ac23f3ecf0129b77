"""How an attempt of a job ends: Complete, Failed, another attempt, or a confirm run first.

Called by the job deciders when a driver ended. Pure. ``Failed`` is written only when the commit cannot be in the table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from skipstone_core.reasons import Reason

from skipstone_operator.conditions import format_time, shorten
from skipstone_operator.reconcilers.jobs.facts import deadline_left, deadline_message, retry_time
from skipstone_operator.reconcilers.jobs.status import at_work, completed, failed
from skipstone_operator.reconcilers.runs.launch import is_prompt
from skipstone_operator.reconcilers.runs.statuses import or_rest, record_end
from skipstone_operator.resources.common import ConfirmState, CurrentRun
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, Verdict
from skipstone_operator.worlds.steps import Step
from skipstone_operator.worlds.subjects import is_dry_run
from skipstone_operator.worlds.worlds import JobWorld


def conclude(world: JobWorld, current: CurrentRun, verdict: Verdict, pod: PodFacts | None) -> Step:
    """The attempt's driver ended, or its pod vanished."""
    status = end_attempt(world, current, verdict, pod)
    match verdict.ending:
        case Ending.SUCCEEDED:
            return or_rest(completed(world, status, verdict), 0.0)
        case Ending.REFUSED if status.attempts <= 1 and _is_only_pod(current, pod):
            return or_rest(failed(world, status, verdict.reason, verdict.message), 0.0)
        case Ending.REFUSED:
            # An earlier driver ended unseen and may yet commit: only a confirm run can tell, and fence it off.
            return give_up(world, status, verdict.reason, verdict.message)
        case Ending.LOST | Ending.UNKNOWN | Ending.ABSENT:
            return _try_again(world, status, verdict)
        case _:
            assert_never(verdict.ending)


def _is_only_pod(current: CurrentRun, pod: PodFacts | None) -> bool:
    """Whether this pod followed its intent at once, so that no other one can have come and gone unseen before it."""
    return pod is not None and pod.created is not None and is_prompt(current, pod.created)


def _try_again(world: JobWorld, status: JobStatus, verdict: Verdict) -> Step:
    if verdict.reason is Reason.DEADLINE_EXCEEDED or _deadline_passed(world, status):
        return give_up(world, status, Reason.DEADLINE_EXCEEDED, deadline_message(world))
    if verdict.ending is Ending.LOST:
        return _lost(world, status, verdict)
    return _failed_attempt(world, status, verdict)


def _deadline_passed(world: JobWorld, status: JobStatus) -> bool:
    return status.start_time is not None and deadline_left(world) == 0.0


def end_attempt(world: JobWorld, current: CurrentRun, verdict: Verdict, pod: PodFacts | None) -> JobStatus:
    """The status without its current run, which becomes the last one."""
    status, now = world.job.status, world.setting.now
    created = format_time(pod.created) if pod is not None and pod.created is not None else format_time(now)
    return replace(
        status,
        current_run=None,
        last_run=record_end(current, verdict, now),
        launched=True,
        start_time=status.start_time or created,
    )


def _lost(world: JobWorld, status: JobStatus, verdict: Verdict) -> Step:
    lost = status.lost_attempts + 1
    stopped = verdict.reason in (Reason.SUSPENDED, Reason.TABLE_NOT_FOUND)
    again = replace(status, lost_attempts=lost, retry_time=None if stopped else retry_time(world, lost))
    message = f"{verdict.reason}: {verdict.message}; the attempt does not count"
    return or_rest(at_work(world, again, Reason.RETRYING, message), 0.0)


def count_failure(world: JobWorld, current: CurrentRun, verdict: Verdict) -> Step:
    """An attempt failed without a pod that anybody saw: it counts."""
    before = world.job.status
    ended = end_attempt(world, current, verdict, None)
    status = replace(ended, launched=before.launched, start_time=before.start_time)
    return _failed_attempt(world, status, verdict)


def _failed_attempt(world: JobWorld, status: JobStatus, verdict: Verdict) -> Step:
    failures, limit = status.failed_attempts + 1, world.job.spec.backoff_limit
    counted = replace(status, failed_attempts=failures)
    last = f"the last one ended with {verdict.reason}: {verdict.message}"
    if failures > limit:
        message = f"all {failures} attempts failed, {last}"
        return give_up(world, counted, Reason.BACKOFF_LIMIT_EXCEEDED, message)
    again = replace(counted, retry_time=retry_time(world, failures))
    message = f"{failures} of {limit + 1} attempts failed, {last}"
    return or_rest(at_work(world, again, Reason.RETRYING, message), 0.0)


def give_up(world: JobWorld, status: JobStatus, reason: Reason, message: str) -> Step:
    """No attempt follows: Failed if none was ever intended or none commits, else a confirm run decides.

    An intent is enough: its pod may have come, committed and gone while nobody watched.
    """
    if is_dry_run(world.job) or not (status.attempts or status.launched):
        return or_rest(failed(world, status, reason, message), 0.0)
    since = format_time(world.setting.now)
    confirm = ConfirmState(reason=reason.value, message=shorten(message), since=since)
    asking = replace(status, retry_time=None, confirm=confirm)
    return or_rest(
        at_work(world, asking, Reason.CONFIRMING, f"looking whether a commit landed before failing: {message}"), 0.0
    )

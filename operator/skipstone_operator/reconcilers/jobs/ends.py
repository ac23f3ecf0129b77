"""How an attempt of a job ends: Complete, Failed, another attempt, or a confirm run first.

Called by the job deciders when a driver ended. Pure. ``Failed`` is written only when the commit cannot be in the table.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from skipstone_core.reasons import Reason

from skipstone_operator.conditions import format_time, shorten
from skipstone_operator.reconcilers.jobs.facts import deadline_left, deadline_message
from skipstone_operator.reconcilers.jobs.status import at_work, failed
from skipstone_operator.reconcilers.runs.launch import is_prompt
from skipstone_operator.reconcilers.runs.records import RunRecord
from skipstone_operator.reconcilers.runs.statuses import or_rest
from skipstone_operator.resources.common import ConfirmState, CurrentRun
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, Verdict
from skipstone_operator.worlds.steps import Step
from skipstone_operator.worlds.subjects import is_dry_run
from skipstone_operator.worlds.worlds import JobWorld


def is_only_pod(current: CurrentRun, pod: PodFacts | None) -> bool:
    """Return whether this pod followed its intent at once, so that no other can have come and gone unseen before."""
    return pod is not None and pod.created is not None and is_prompt(current, pod.created)


def end_attempt(status: JobStatus, pod: PodFacts | None, now: datetime) -> JobStatus:
    """``status`` after an attempt whose driver ended, or whose pod vanished: the clock of the job has started."""
    created = format_time(pod.created) if pod is not None and pod.created is not None else format_time(now)
    return replace(status, launched=True, start_time=status.start_time or created)


def try_again(world: JobWorld, status: JobStatus, record: RunRecord, verdict: Verdict) -> Step:
    """Another attempt follows, unless time or attempts have run out; ``status`` holds ``record``."""
    late = status.start_time is not None and deadline_left(world) == 0.0
    if verdict.reason is Reason.DEADLINE_EXCEEDED or late:
        return give_up(world, status, Reason.DEADLINE_EXCEEDED, deadline_message(world))
    last = f"the last one ended with {verdict.reason}: {verdict.message}"
    if record.refused_hash:
        message = f"all {record.failures} attempts failed, {last}"
        return give_up(world, status, Reason.BACKOFF_LIMIT_EXCEEDED, message)
    message = f"{record.failures} of {world.job.spec.backoff_limit + 1} attempts failed, {last}"
    if verdict.ending is Ending.LOST:
        message = f"{verdict.reason}: {verdict.message}; the attempt does not count"
    return or_rest(at_work(world, status, Reason.RETRYING, message), 0.0)


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

"""LoadJob and MergeJob: the one next step for one job.

Called by the table's decider, since jobs reconcile under their Table's key. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import FAILED, PROGRESSING, STALLED, Judgement, fails, format_time, holds, is_true
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers.jobs.confirms import confirm_policy
from skipstone_operator.reconcilers.jobs.ends import end_attempt, give_up, is_only_pod, try_again
from skipstone_operator.reconcilers.jobs.facts import (
    MAIN_KINDS,
    WAIT_POLL,
    deadline_left,
    deadline_message,
    find_block,
    find_foreign_owner,
    plan_run,
    retry_message,
    table_uid,
)
from skipstone_operator.reconcilers.jobs.status import completed, failed, is_finished, waiting, with_progress, written
from skipstone_operator.reconcilers.runs.launch import delete_pod, is_awaited, refusal_finding, trim
from skipstone_operator.reconcilers.runs.lifecycle import Policy, decide, decide_refused
from skipstone_operator.reconcilers.runs.records import RecordFields, RetryRule
from skipstone_operator.reconcilers.runs.requests import RunPlan
from skipstone_operator.reconcilers.runs.statuses import judged, or_rest, put_status
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, Live, RunWorld, Verdict
from skipstone_operator.worlds.steps import Delete, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Finding
from skipstone_operator.worlds.times import past_time, seconds_since
from skipstone_operator.worlds.worlds import JobWorld


def decide_job(world: JobWorld) -> Step:
    """Choose the one next write for the job."""
    if world.job.deleting:
        return Rest()
    if is_finished(world.job.status):
        return decide_finished(world)
    return decide(confirm_policy(world)) if is_confirming(world) else decide(attempt_policy(world))


def refused(world: JobWorld, refusal: Refused) -> Step:
    """The API server refused a child of the job's run."""
    if is_confirming(world):
        return decide_refused(confirm_policy(world), refusal)
    return decide_refused(attempt_policy(world), refusal)


def is_confirming(world: JobWorld) -> bool:
    """Return whether a confirm run is due or running, and no attempt follows."""
    status = world.job.status
    return status.confirm is not None if status.current_run is None else status.current_run.kind is RunKind.CONFIRM


def decide_finished(world: JobWorld) -> Step:
    """A job that ended: its leftovers go, and in the end it goes itself if it was told to."""
    job, children = world.job, world.children
    leftover = next((pod for pod in children.pods if pod.live and not pod.deleting), None)
    if leftover is not None:
        return delete_pod(leftover)
    if not is_end_told(world) and (end := tell_end(world)) is not None:
        return end
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


def is_end_told(world: JobWorld) -> bool:
    """Return whether tools that know no kind see the end: of the present spec, which may still change, as Stalled."""
    status = world.job.status
    stalled = is_true(status.conditions, STALLED) == is_true(status.conditions, FAILED)
    return stalled and status.observed_generation == world.job.meta.generation


def tell_end(world: JobWorld) -> PutStatus | None:
    """The end as it was written, summed up for the present generation."""
    return put_status(world.job, judged(world.job.status, world.job, (), world.setting.now))


def attempt_policy(world: JobWorld) -> AttemptPolicy:
    """The attempts of a job."""
    return AttemptPolicy(world=world, setting=world.setting, children=world.children, run=world.run)


@dataclass(frozen=True, kw_only=True)
class AttemptPolicy(Policy[JobStatus]):
    """The attempts of a LoadJob or MergeJob: one commit at most, in its turn, within its limits."""

    kinds = MAIN_KINDS
    noun = "the attempt"
    fields = RecordFields(losses="lost_attempts")
    world: JobWorld

    def plan(self) -> RunPlan | None:
        """The load or merge."""
        return plan_run(self.world)

    def newest(self, plan: RunPlan) -> int:
        """Numbers of attempts are never given twice."""
        return self.world.job.status.attempts

    def rule(self) -> RetryRule:
        """The job says how many attempts may fail."""
        return replace(super().rule(), limit=self.world.job.spec.backoff_limit)

    def retrying(self) -> Judgement | None:
        """What failed last, and how many attempts there are."""
        return holds(PROGRESSING, Reason.RETRYING, retry_message(self.world))

    def idle(self) -> Step | None:
        """Say what the job waits for."""
        world, status = self.world, self.world.job.status
        if status.attempts == 0 and (bad := validate_spec(world.job.kind, world.job.spec)) is not None:
            return or_rest(failed(world, status, bad.reason, bad.message), None)
        if world.job.spec.suspend:
            paused = replace(status, start_time=None, retry_time=None)
            return or_rest(waiting(world, paused, Reason.SUSPENDED, "spec.suspend is true"), None)
        if deadline_left(world) == 0.0:
            return give_up(world, status, Reason.DEADLINE_EXCEEDED, deadline_message(world))
        if (finding := find_block(world)) is not None:
            return or_rest(waiting(world, status, finding.reason, finding.message), WAIT_POLL)
        return None

    def block(self) -> Judgement | None:
        """Suspended, or not its turn any more."""
        suspended = Finding(Reason.SUSPENDED, "spec.suspend is true") if self.world.job.spec.suspend else None
        finding = suspended or find_block(self.world)
        return fails(PROGRESSING, finding.reason, finding.message) if finding is not None else None

    def stop(self) -> Finding | None:
        """Suspended, out of time, or the Table goes away or is another."""
        world, table = self.world, self.world.place.table
        if world.job.spec.suspend:
            return Finding(Reason.SUSPENDED, "spec.suspend is true")
        if deadline_left(world) == 0.0:
            return Finding(Reason.DEADLINE_EXCEEDED, deadline_message(world))
        if table is not None and table.deleting:
            return Finding(Reason.TABLE_NOT_FOUND, f"Table {table.meta.name!r} is being deleted")
        pod, warehouse = self.run.pod if self.run is not None else None, world.place.warehouse
        if pod is not None and pod.kept_by and (warehouse is None or warehouse.meta.uid != pod.warehouse_uid):
            # Nobody else ends a run whose kept driver went with the Warehouse; another one may have its name by now.
            return Finding(Reason.KEPT_DRIVER_BUSY, "the Warehouse of the run is gone, and its kept drivers go with it")
        return find_foreign_owner(world)

    def look(self) -> float | None:
        """The deadline of the job."""
        return deadline_left(self.world)

    def status(self) -> JobStatus:
        """As it is."""
        return self.world.job.status

    def with_intent(self, current: CurrentRun) -> JobStatus:
        """The attempt, whose number is not given again, and the Table that it is for."""
        status = super().with_intent(current)
        return replace(status, attempts=max(current.attempt, status.attempts), table_uid=table_uid(self.world))

    def with_pod(self, current: CurrentRun, live: Live) -> JobStatus:
        """The clock of activeDeadlineSeconds runs from here."""
        status, now = self.status(), self.setting.now
        begun = status.start_time if past_time(status.start_time, now) is not None else format_time(now)
        started = replace(status, current_run=current, launched=True, start_time=begun)
        return with_progress(started, live.pod.underway)

    def show(self, status: JobStatus, progress: Judgement) -> PutStatus | None:
        """Progressing, and Complete and Failed for the same reason."""
        return written(self.world, status, progress)

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """Complete, Failed, another attempt, or a confirm run first."""
        world, record = self.world, self.after(run.current, verdict)
        if verdict.ending is Ending.SUCCEEDED:
            # No attempt follows, and the job tells of all that it took.
            record = replace(record, failures=self.record().failures)
        status = end_attempt(self.fields.lay(self.status(), record), pod, self.setting.now)
        match verdict.ending:
            case Ending.SUCCEEDED:
                return or_rest(completed(world, status, verdict), 0.0)
            case Ending.REFUSED if status.attempts <= 1 and is_only_pod(run.current, pod):
                return or_rest(failed(world, status, verdict.reason, verdict.message), 0.0)
            case Ending.REFUSED:
                # An earlier driver ended unseen and may yet commit: only a confirm run can tell, and fence it off.
                return give_up(world, status, verdict.reason, verdict.message)
            case Ending.LOST | Ending.UNKNOWN | Ending.ABSENT:
                return try_again(world, status, record, verdict)
            case _:
                assert_never(verdict.ending)

    def refused(self, refusal: Refused) -> Step | None:
        """A pod that is refused for too long is a failed attempt; a quota has no deadline."""
        finding, current = refusal_finding(refusal), self.record().current
        waited = seconds_since(current.start_time, self.setting.now) if current is not None else None
        overdue = waited is not None and waited >= self.setting.timing.pending_deadline
        if current is None or not overdue or is_awaited(finding):
            return None
        verdict = Verdict(ending=Ending.UNKNOWN, reason=finding.reason, message=finding.message)
        # Nobody saw a pod of it: no clock starts.
        record = self.after(current, verdict)
        return try_again(self.world, self.fields.lay(self.status(), record), record, verdict)

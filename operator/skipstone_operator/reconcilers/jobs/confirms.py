"""Confirm runs: before a job is Failed, somebody looks into the table and fences the transaction off.

Called by the job deciders. A confirm run is repeated until it answers; it never counts as an attempt. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, Judgement, find, holds, read_reason
from skipstone_operator.reconcilers.jobs.facts import MAIN_KINDS, WAIT_POLL
from skipstone_operator.reconcilers.jobs.status import at_work, completed, failed, waiting, written
from skipstone_operator.reconcilers.runs.launch import FOREIGN_POLL, delete_pod, find_live
from skipstone_operator.reconcilers.runs.lifecycle import Policy, as_phase
from skipstone_operator.reconcilers.runs.records import RunRecord
from skipstone_operator.reconcilers.runs.requests import RunPlan, find_invalid_setting, plan_confirm_run
from skipstone_operator.reconcilers.runs.statuses import earliest, or_rest
from skipstone_operator.resources.common import ConditionStatus, ConfirmState, CurrentRun
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.worlds.nodes import describe_stuck, is_stuck, seconds_to_change
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, RunWorld, Verdict
from skipstone_operator.worlds.steps import PutStatus, Step
from skipstone_operator.worlds.worlds import JobWorld


def confirm_policy(world: JobWorld) -> ConfirmPolicy:
    """The confirm runs of a job."""
    return ConfirmPolicy(world=world, setting=world.setting, children=world.children, run=world.run)


@dataclass(frozen=True, kw_only=True)
class ConfirmPolicy(Policy[JobStatus]):
    """The runs that find out whether the commit of a job landed."""

    kinds = (RunKind.CONFIRM,)
    noun = "the confirm run"
    world: JobWorld

    @property
    def confirm(self) -> ConfirmState:
        """What the status says of confirm runs so far."""
        return self.world.job.status.confirm or ConfirmState(reason=Reason.ABORTED.value)

    def plan(self) -> RunPlan | None:
        """The next look into the table."""
        plan = plan_confirm(self.world)
        return plan if isinstance(plan, RunPlan) else None

    def record(self) -> RunRecord:
        """Attempts and confirm runs have the last run in common, and counts of their own.

        Each confirm run before the one that is intended or running has failed.
        """
        status, confirm = self.status(), self.confirm
        failures = confirm.attempts if status.current_run is None else max(0, confirm.attempts - 1)
        return RunRecord(
            current=status.current_run, last=status.last_run, failures=failures, retry_time=confirm.next_time
        )

    def newest(self, plan: RunPlan) -> int:
        """Confirm runs have numbers of their own."""
        return self.confirm.attempts

    def retrying(self) -> Judgement | None:
        """What is said in place of a pass that failed; what the last confirm run said stays."""
        progressing = find(self.status().conditions, PROGRESSING)
        if progressing is None or progressing.status is not ConditionStatus.UNKNOWN:
            return None
        message = f"confirm run {self.confirm.attempts} did not answer; another follows"
        return holds(PROGRESSING, Reason.OUTCOME_UNKNOWN, message)

    def idle(self) -> Step | None:
        """Wait until nobody may still be writing."""
        live = find_live(self.children, MAIN_KINDS)
        if live is not None:
            return self._await_end(live) if live.deleting else delete_pod(live)
        block = self.block()
        return or_rest(self.show(self.status(), block), WAIT_POLL) if block is not None else None

    def _await_end(self, live: PodFacts) -> Step:
        setting = self.setting
        if is_stuck(live, setting.now):
            step = waiting(self.world, self.status(), Reason.DRIVER_STUCK, describe_stuck(live, setting.timing))
        else:
            message = f"the confirm run follows when driver pod {live.name} is gone"
            step = at_work(self.world, self.status(), Reason.CONFIRMING, message)
        return or_rest(step, earliest(FOREIGN_POLL, seconds_to_change(live, setting.now, setting.timing)))

    def block(self) -> Judgement | None:
        """Nobody is left to ask."""
        plan = plan_confirm(self.world)
        return holds(PROGRESSING, Reason.OUTCOME_UNKNOWN, plan) if isinstance(plan, str) else None

    def status(self) -> JobStatus:
        """As it is."""
        return self.world.job.status

    def with_intent(self, current: CurrentRun) -> JobStatus:
        """The back-off grows with the number."""
        attempts = max(current.attempt, self.confirm.attempts)
        return replace(self.with_run(current), confirm=replace(self.confirm, attempts=attempts))

    def show(self, status: JobStatus, progress: Judgement) -> PutStatus | None:
        """Whatever the run does, the job is being confirmed."""
        known = progress.reason is Reason.OUTCOME_UNKNOWN
        shown = progress if known else as_phase(progress, Reason.CONFIRMING, "confirming whether a commit landed")
        return written(self.world, status, shown)

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """Complete, Failed, or asked again."""
        world, status, confirm = self.world, self.status(), self.confirm
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
                return self._ask_again(run.current, verdict)
            case _:
                assert_never(verdict.ending)

    def _ask_again(self, current: CurrentRun, verdict: Verdict) -> Step:
        asking = replace(self.confirm, next_time=self.after(current, verdict).retry_time)
        message = f"confirm run {asking.attempts} did not answer ({verdict.reason}: {verdict.message}); another follows"
        status = replace(self.with_run(None), confirm=asking)
        return or_rest(at_work(self.world, status, Reason.OUTCOME_UNKNOWN, message), 0.0)


def plan_confirm(world: JobWorld) -> RunPlan | str:
    """The confirm run, or the sentence that says why it cannot be asked for now."""
    place, asked = world.place, world.job.status.table_uid
    if place.table is None or (asked and place.table.meta.uid != asked):
        return "whether the commit landed is not known: the Table that the job was for is gone; delete the job"
    if place.warehouse is None:
        return "whether the commit landed is not known: the Warehouse is gone; create it again or delete the job"
    if (invalid := find_invalid_setting(place.warehouse)) is not None:
        name = place.warehouse.meta.name
        return f"whether the commit landed is not known: correct Warehouse {name!r}: {invalid.message}"
    return plan_confirm_run(world.job, place, place.table, place.warehouse, world.setting)

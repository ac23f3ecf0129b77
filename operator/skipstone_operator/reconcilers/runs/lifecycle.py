"""The life cycle of a run, the same for every kind: intend, launch, follow, stop, conclude, try again.

Each kind brings a ``Policy``: what to plan, when it is due, what keeps the run from starting, why to stop it, what to
show, and what its end means. How often it is tried is told by ``records``. Called by the deciders. Pure: each call
returns the one next step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, Judgement, fails, format_time, holds, read_reason
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers.runs.launch import (
    PATIENCE,
    adopted_intent,
    clean_executors,
    delete_pod,
    discard,
    find_busy_driver,
    find_live,
    is_awaited,
    is_prompt,
    is_stale,
    launch,
    next_attempt,
    refusal_finding,
    trim,
)
from skipstone_operator.reconcilers.runs.records import (
    RecordFields,
    RetryRule,
    RunEnd,
    RunRecord,
    after,
    find_rule,
    last_end,
)
from skipstone_operator.reconcilers.runs.requests import RunPlan
from skipstone_operator.reconcilers.runs.statuses import Status, earliest, followed, later, or_rest
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.nodes import seconds_to_change
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ended, Ending, Foreign, Live, NotLaunched, RunWorld, Verdict, judge_run
from skipstone_operator.worlds.steps import PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Children, Finding, Setting

T = TypeVar("T", bound=Status)

#: Seconds until a run is looked at again although nothing was seen.
POLL = 30.0
#: Seconds until the next look when something that was read is older than the status.
OUTDATED = 0.2
#: What the condition Progressing says of a run that is on its way and well.
UNDERWAY = frozenset({Reason.RUN_INTENDED, Reason.DRIVER_PENDING, Reason.DRIVER_RUNNING, Reason.DELETING})


@dataclass(frozen=True, kw_only=True)
class Policy(ABC, Generic[T]):
    """What one kind of run adds to the life cycle. ``T`` is the status that holds the run.

    ``children`` are those of the owner that belong to runs of these ``kinds``, and may include others of the owner.
    """

    #: The kinds of run that this policy is for.
    kinds: ClassVar[tuple[RunKind, ...]]
    #: The run in a sentence, such as "the check run".
    noun: ClassVar[str]
    #: Where the status holds what is known of these runs.
    fields: ClassVar[RecordFields] = RecordFields()

    setting: Setting
    children: Children
    run: RunWorld | None

    @abstractmethod
    def plan(self) -> RunPlan | None:
        """What the run would be now; None when what it needs is not there."""

    @abstractmethod
    def idle(self) -> Step | None:
        """What to do while no run is due; None when one is."""

    @abstractmethod
    def block(self) -> Judgement | None:
        """Why a run that is intended cannot be launched; None when nothing is in its way."""

    @abstractmethod
    def status(self) -> T:
        """The status with everything that is known now."""

    @abstractmethod
    def show(self, status: T, progress: Judgement) -> PutStatus | None:
        """The write of ``status`` with its conditions; None when it is there already."""

    @abstractmethod
    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """The run ended: write what that means."""

    def record(self) -> RunRecord:
        """What the status knows of these runs."""
        return self.fields.read(self.status())

    def rule(self) -> RetryRule:
        """How runs of these kinds are tried again."""
        return find_rule(self.kinds[0], self.setting.timing)

    def after(
        self, current: CurrentRun, verdict: Verdict, *, ending: Ending | None = None, inputs_hash: str = ""
    ) -> RunRecord:
        """The record once ``current`` ended. ``ending``: how it counts, when that is not as the verdict says.

        ``inputs_hash``: what is remembered as given up should the run be refused; empty: a refusal is tried again.
        """
        end = RunEnd(current=current, verdict=verdict, ending=ending or verdict.ending, inputs_hash=inputs_hash)
        return after(self.record(), end, self.rule(), self.setting.now)

    def newest(self, plan: RunPlan) -> int:
        """The number of the newest attempt that the status knows: attempts are counted for the same inputs."""
        return self.record().attempt_at(plan.inputs_hash)

    def retrying(self) -> Judgement | None:
        """What is said while a failed run waits for the next one; None to leave what is said."""
        return holds(PROGRESSING, Reason.RETRYING, last_end(self.record().last))

    def with_run(self, current: CurrentRun | None) -> T:
        """The status with this current run, or without any."""
        return self.fields.lay_current(self.status(), current)

    def with_intent(self, current: CurrentRun) -> T:
        """The status with the intent of a run."""
        return self.fields.lay_due(self.with_run(current))

    def with_pod(self, current: CurrentRun, live: Live) -> T:
        """The status with a run whose pod is there."""
        return self.with_run(current)

    def stop(self) -> Finding | None:
        """Why a live driver has to go, whatever its pod says."""
        return None

    def look(self) -> float | None:
        """Seconds until a clock of this kind runs out."""
        return None

    def foreign(self, run: RunWorld, message: str) -> Step:
        """Another object has the name of the run. It is never touched and never taken for the run."""
        return or_rest(self.show(self.status(), fails(PROGRESSING, Reason.RESOURCE_CONFLICT, message)), self.pause())

    def refused(self, refusal: Refused) -> Step | None:
        """What this kind does when the API server refuses a child; None to show it and to try again."""
        return None

    def pause(self) -> float:
        """Seconds until the next look."""
        return earliest(POLL, self.look()) or POLL

    @property
    def time(self) -> str:
        """Now, as a status holds it."""
        return format_time(self.setting.now)


def decide(policy: Policy[T]) -> Step:
    """The one next write for the runs of this policy."""
    run = policy.run
    if run is None:
        step = _adopt(policy) or policy.idle() or _wait(policy) or _intend(policy)
    else:
        step = _decide_run(policy, run)
    if not isinstance(step, Rest):
        return step
    return trim(policy.children, () if run is None else (run.current.id,)) or step


def decide_refused(policy: Policy[T], refusal: Refused) -> Step:
    """The API server refused a child of the run: what is only awaited, or what is tried again, is shown."""
    step = policy.refused(refusal)
    if step is not None:
        return step
    finding = refusal_finding(refusal)
    judge = fails if is_awaited(finding) else holds
    progress = judge(PROGRESSING, finding.reason, finding.message)
    return later(policy.show(policy.status(), progress), min(policy.setting.timing.quota_poll, policy.pause()))


def _wait(policy: Policy[T]) -> Step | None:
    """A run is due, and the last one failed too lately."""
    delay = policy.record().wait(policy.setting.now)
    if delay == 0:
        return None
    judgement = policy.retrying()
    step = policy.show(policy.status(), judgement) if judgement is not None else None
    return or_rest(step, earliest(delay, policy.look()))


def _adopt(policy: Policy[T]) -> Step | None:
    """Take up a live pod of the owner whose intent was lost: whether it goes on is judged once it is followed."""
    live = find_live(policy.children, policy.kinds)
    plan = policy.plan() if live is not None else None
    if live is None or plan is None or live.owner_uid != plan.owner.meta.uid:
        return None
    last = policy.record().last
    if last is not None and last.id == live.run_id:
        # The list of pods is older than the status. Followed again, the run would end again and count once more.
        return Rest(requeue=Requeue(OUTDATED))
    current = adopted_intent(live, plan, policy.time)
    progress = holds(PROGRESSING, Reason.RUN_INTENDED, f"driver pod {live.name} is there already; run {current.id}")
    return policy.show(policy.with_intent(current), progress)


def _intend(policy: Policy[T]) -> Step:
    """Write the intent before anything is created."""
    plan = policy.plan()
    if plan is None:
        return Rest(requeue=Requeue(policy.pause()))
    current = plan.intent(next_attempt(policy.children, policy.kinds, policy.newest(plan)), policy.time)
    progress = holds(PROGRESSING, Reason.RUN_INTENDED, f"{policy.noun} is about to be launched as run {current.id}")
    return or_rest(policy.show(policy.with_intent(current), progress), 0.0)


def _decide_run(policy: Policy[T], run: RunWorld) -> Step:
    setting = policy.setting
    match judge_run(run, now=setting.now, timing=setting.timing):
        case NotLaunched():
            return _launch(policy, run)
        case Foreign(what):
            return policy.foreign(
                run, f"{what} has the name that {policy.noun} needs but is owned by something else; delete it"
            )
        case Live() as live:
            return _follow(policy, run, live)
        case Ended(verdict, pod):
            return clean_executors(run) or policy.conclude(run, verdict, pod)


def _launch(policy: Policy[T], run: RunWorld) -> Step:
    """The intent is written and no pod was seen: create what is missing, renew the intent, or take it back."""
    plan, block = policy.plan(), policy.block()
    if block is not None or plan is None:
        gone = fails(PROGRESSING, Reason.WAITING_FOR_WAREHOUSE, "the Table or the Warehouse is gone")
        return discard(run) or or_rest(policy.show(policy.with_run(None), block or gone), policy.pause())
    if is_stale(run.current, plan):
        return discard(run) or _renew(policy, run, plan)
    refused = any(
        each.type == PROGRESSING and each.reason == Reason.POD_REJECTED.value for each in policy.status().conditions
    )
    return launch(run, plan, policy.setting.now, refused=refused)


def _renew(policy: Policy[T], run: RunWorld, plan: RunPlan) -> Step:
    number = run.current.attempt
    if not is_prompt(run.current, policy.setting.now):
        # A pod that came and went unseen has taken the number.
        number = max(number, policy.newest(plan)) + 1
    current = plan.intent(number, policy.time)
    message = f"what {policy.noun} depends on changed; it is about to be launched as run {current.id}"
    return or_rest(policy.show(policy.with_intent(current), holds(PROGRESSING, Reason.RUN_INTENDED, message)), 0.0)


def _follow(policy: Policy[T], run: RunWorld, live: Live) -> Step:
    """The pod is there and has not ended: show how it is. Why it is stopped is written before it is deleted."""
    current = followed(run.current, live)
    order = policy.stop() or (Finding(live.reason, live.message) if live.overdue else None)
    order = order or find_busy_driver(live.pod, policy.setting.now)
    if order is not None and not current.stop_reason:
        current = replace(current, stop_reason=order.reason.value, stop_message=order.message)
    step = policy.show(policy.with_pod(current, live), _progress(current, live))
    if step is None and current.stop_reason and not live.pod.deleting:
        return delete_pod(live.pod)
    now, timing = policy.setting.now, policy.setting.timing
    pending = _pending_left(live.pod, now, PATIENCE if live.pod.kept_by else timing.pending_deadline)
    return or_rest(step, earliest(pending, seconds_to_change(live.pod, now, timing), policy.pause()))


def _progress(current: CurrentRun, live: Live) -> Judgement:
    if live.stuck:
        why = f"run {current.id} is to stop: {current.stop_message}; " if current.stop_reason else ""
        return fails(PROGRESSING, Reason.DRIVER_STUCK, f"{why}{live.message}")
    if current.stop_reason:
        message = f"stopping run {current.id}: {current.stop_message}"
        return holds(PROGRESSING, read_reason(current.stop_reason), message)
    if live.pod.deleting:
        return holds(PROGRESSING, Reason.DELETING, f"driver pod {live.pod.name} is being deleted")
    return holds(PROGRESSING, live.reason, live.message)


def _pending_left(pod: PodFacts, now: datetime, deadline: float) -> float | None:
    """Seconds until a pod that has not started is overdue."""
    if pod.waits is None or not pod.waits.bounded or pod.created is None:
        return None
    left = deadline - (now - pod.created).total_seconds()
    return left if left > 0 else None


def as_phase(progress: Judgement, reason: Reason, prefix: str) -> Judgement:
    """``progress`` as a phase of what the owner does: a run that is well shows ``reason``, trouble keeps its own."""
    if progress.reason not in UNDERWAY:
        return progress
    return replace(progress, reason=reason, message=f"{prefix}: {progress.message}")

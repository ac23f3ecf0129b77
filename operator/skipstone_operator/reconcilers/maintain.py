"""Maintain runs: the policy of the runs that keep a Table as ``spec.maintenance`` asks.

Called by the table's decider while no change of the table is due. A maintain run takes the writer's place when nobody
else wants it, and gives it up when somebody does. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from propcache.api import cached_property
from skipstone_core.contract.reports import StepReport
from skipstone_core.contract.requests import MaintainTask, RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import Judgement
from skipstone_operator.reconcilers.maintenance.due import (
    Due,
    configured,
    find_due,
    find_window,
    in_use_since_ms,
    seconds_to_turn,
    unfinished,
)
from skipstone_operator.reconcilers.maintenance.results import find_steps, made_progress, with_steps
from skipstone_operator.reconcilers.runs.lifecycle import Policy, as_phase
from skipstone_operator.reconcilers.runs.records import RecordFields, RunRecord
from skipstone_operator.reconcilers.runs.requests import RunPlan, plan_maintain_run
from skipstone_operator.reconcilers.runs.statuses import earliest, or_rest
from skipstone_operator.reconcilers.tablestatus import choose_writer, put_written, queue_of, seen
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, RunWorld, Verdict
from skipstone_operator.worlds.steps import PutStatus, Step
from skipstone_operator.worlds.subjects import (
    Finding,
    TableSubject,
    children_of,
    find_table_finding,
    find_warehouse_finding,
)
from skipstone_operator.worlds.times import backoff, seconds_since
from skipstone_operator.worlds.worlds import TableWorld

#: Seconds that a run keeps the place although a job waits, doubling, once runs before it gave way with nothing done.
PATIENCE, PATIENCE_CAP = 30.0, 600.0


@dataclass(frozen=True)
class Calm:
    """What Progressing says of the table while no maintain run is on its way, and when to look again for that."""

    progress: Judgement
    after: float | None


def maintain_policy(world: TableWorld, table: TableSubject, calm: Calm, *, change_due: bool) -> MaintainPolicy:
    """The maintain runs of a table."""
    mine = children_of(world.children, RunKind.MAINTAIN)
    return MaintainPolicy(
        world=world,
        table=table,
        calm=calm,
        change_due=change_due,
        setting=world.setting,
        children=mine,
        run=world.maintain,
    )


@dataclass(frozen=True, kw_only=True)
class MaintainPolicy(Policy[TableStatus]):
    """The runs that compact, expire and clean. ``change_due``: a change of the table waits for the writer's place."""

    kinds = (RunKind.MAINTAIN,)
    noun = "the maintain run"
    fields = RecordFields(
        current="maintain_run",
        last="last_maintain_run",
        failures="failed_maintains",
        retry_time="maintain_retry_time",
    )
    world: TableWorld
    table: TableSubject
    calm: Calm
    change_due: bool

    @cached_property
    def due(self) -> Due:
        """What a run would do now."""
        return find_due(self.world, self.table, self.status())

    def plan(self) -> RunPlan | None:
        """A run of all steps that are due; of all that are configured for a pod whose intent was lost."""
        due = self.due
        task = MaintainTask(
            policy=due.policy,
            steps=due.steps or configured(due.policy),
            spared_owners=unfinished(self.world),
            in_use_since_ms=in_use_since_ms(self.world),
        )
        return plan_maintain_run(self.table, self.world.place, self.setting, task, due.request)

    def record(self) -> RunRecord:
        """A request by hand waits for nothing."""
        record = super().record()
        return replace(record, retry_time=None) if self.due.request else record

    def newest(self, plan: RunPlan) -> int:
        """Numbers go on from run to run."""
        last = self.record().last
        return last.attempt if last is not None else 0

    def retrying(self) -> Judgement | None:
        """The condition Healthy tells of failures."""
        return self.calm.progress

    def idle(self) -> Step | None:
        """Nothing is due, something is in the way, or the writer's place is taken first."""
        status = self.status()
        if self.find_block() is not None:
            return or_rest(self.show(status, self.calm.progress), self.look())
        writer = choose_writer(self.world, self.table, status, change_due=False, maintain_due=True)
        if writer is not None and writer.uid == self.table.meta.uid:
            return None
        return or_rest(self.show(status, self.calm.progress), self.pause())

    def find_block(self) -> Finding | None:
        """Why no run can start now."""
        return next(self._blocks(), None)

    def _blocks(self) -> Iterator[Finding]:
        name, warehouse = self.table.spec.warehouse_ref.name, self.world.place.warehouse
        if not self.due.steps:
            yield Finding(Reason.IDLE, "there is nothing to maintain")
        for finding in (
            find_table_finding(self.table.meta.name, self.table),
            find_warehouse_finding(name, warehouse),
            self._find_waiting(),
            self._find_closed(by_hand=bool(self.due.request)),
        ):
            if finding is not None:
                yield finding

    def _find_waiting(self) -> Finding | None:
        """Who waits for the writer's place."""
        if self.change_due:
            return Finding(Reason.GIVING_WAY, "a change of the table waits for it")
        first = next(iter(queue_of(self.world)), None)
        return Finding(Reason.GIVING_WAY, f"{first.job.kind} {first.job.meta.name} waits for it") if first else None

    def _find_closed(self, *, by_hand: bool) -> Finding | None:
        opening = None if by_hand else find_window(self.world, self.table)
        if opening is None or isinstance(opening, Finding):
            return opening
        closed = opening.closes is None
        return Finding(Reason.WINDOW_CLOSED, "spec.maintenance.window is closed") if closed else None

    def block(self) -> Judgement | None:
        """What Progressing says once the intent is taken back."""
        return self.calm.progress if self.find_block() is not None else None

    def stop(self) -> Finding | None:
        """The policy is gone, somebody waits, or the window has closed."""
        if self.table.spec.maintenance is None:
            return Finding(Reason.MAINTENANCE_OFF, "spec.maintenance was removed")
        waiting = self._find_waiting()
        if waiting is not None and self._patience_left() == 0:
            return waiting
        return self._find_closed(by_hand=bool(self.status().maintain_request))

    def _patience_left(self) -> float:
        """Seconds for which the run may keep others waiting, so that a busy table is maintained too."""
        patience = backoff(self.status().maintains_given_way, base=PATIENCE, cap=PATIENCE_CAP)
        current = self.run.current if self.run is not None else None
        since = None if current is None else current.running_time or current.launch_time or current.start_time
        return max(0.0, patience - (seconds_since(since, self.setting.now) or 0.0))

    def look(self) -> float | None:
        """The window opens or closes, a step or a change becomes due, or patience ends."""
        engaged = self.run is not None or bool(self.due.steps)
        turn = seconds_to_turn(self.world, self.table) if engaged else None
        patience = self._patience_left() if self.run is not None else 0.0
        return earliest(self.calm.after, turn, self.due.wait, patience or None)

    @cached_property
    def _seen(self) -> TableStatus:
        return seen(self.world, self.table)

    def status(self) -> TableStatus:
        """With what runs and indexes told."""
        return self._seen

    def with_run(self, current: CurrentRun | None) -> TableStatus:
        """A run that is taken back leaves no steps, and what was asked by hand is still asked."""
        status = super().with_run(current)
        return status if current is not None else replace(status, maintain_steps=(), maintain_request="")

    def with_intent(self, current: CurrentRun) -> TableStatus:
        """The run with its steps, and the request that it answers."""
        status, plan = super().with_intent(current), self.plan()
        if plan is None or current.inputs_hash != plan.inputs_hash:
            return status
        return replace(status, maintain_steps=self.due.steps, maintain_request=self.due.request)

    def show(self, status: TableStatus, progress: Judgement) -> PutStatus | None:
        """Progressing shows which steps the run is at."""
        names = ", ".join(status.maintain_steps) or "all steps"
        shown = progress if status.maintain_run is None else as_phase(progress, Reason.MAINTAINING, names)
        writer = choose_writer(self.world, self.table, status, change_due=self.change_due)
        return put_written(self.world, self.table, replace(status, writer=writer), shown)

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """What was done is told; what was not is tried again."""
        steps, current = find_steps(verdict, pod), run.current
        ended = with_steps(self.fields.lay_current(self.status(), None), current, verdict, steps, self.setting.now)
        succeeded, ending = verdict.ending is Ending.SUCCEEDED, verdict.ending
        if succeeded and _got_on(self, ended, steps):
            ended = replace(ended, maintains_given_way=0)
        elif (succeeded or ending is Ending.LOST) and current.stop_reason:
            gave_way = current.stop_reason == Reason.GIVING_WAY
            ended, ending = replace(ended, maintains_given_way=ended.maintains_given_way + gave_way), Ending.LOST
        elif succeeded:
            ending = Ending.UNKNOWN
        known = self.fields.lay(ended, self.after(current, verdict, ending=ending))
        return or_rest(self.show(known, self.calm.progress), 0.0)


def _got_on(policy: MaintainPolicy, ended: TableStatus, steps: tuple[StepReport, ...]) -> bool:
    """Return whether the next run may follow at once: what this one has done is not due again, and something is done.

    Else a run that does nothing, or a step that stays due whatever is done, would go on for ever.
    """
    asked = set(policy.status().maintain_steps)
    left = asked & set(find_due(policy.world, policy.table, ended).steps)
    done = {step.step for step in steps if step.is_done}
    return not left or (made_progress(steps) and not left & done)

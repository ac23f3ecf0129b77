"""Table: the one next step for a table, its change runs, its writer and the jobs that write it.

Entry point of keys of kind Table. Pure but for nothing: ``decide`` sees the world, returns a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from propcache.api import cached_property
from skipstone_core.contract.requests import Management, RunKind
from skipstone_core.ids import canonical_hash
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, Judgement, fails, holds
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers import drops
from skipstone_operator.reconcilers.jobs import deciding
from skipstone_operator.reconcilers.jobs.status import is_finished
from skipstone_operator.reconcilers.maintain import Calm, MaintainPolicy, maintain_policy
from skipstone_operator.reconcilers.passes.failures import find_failure, guarded, tell
from skipstone_operator.reconcilers.runs import lifecycle
from skipstone_operator.reconcilers.runs.launch import FOREIGN_POLL, find_live, trim
from skipstone_operator.reconcilers.runs.lifecycle import Policy, decide_refused
from skipstone_operator.reconcilers.runs.records import RecordFields, last_end
from skipstone_operator.reconcilers.runs.requests import DropTarget, RunPlan, plan_table_run
from skipstone_operator.reconcilers.runs.statuses import first_write, or_rest
from skipstone_operator.reconcilers.runs.tables import build_table_ref
from skipstone_operator.reconcilers.tablestatus import (
    choose_writer,
    find_obstacle,
    find_turn,
    live_writers,
    queue_of,
    seen,
    with_observation,
    with_owner,
    with_tally,
    written,
)
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, RunWorld, Verdict
from skipstone_operator.worlds.steps import PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import (
    TableSubject,
    children_of,
    deletes_data,
    find_warehouse_finding,
    is_dry_run,
)
from skipstone_operator.worlds.worlds import JobWorld, TableWorld

KEPT_JOBS = 10
#: What a Table knows of its change runs. Refused is what the inputs, the schema and the problem are together.
CHANGES = RecordFields(refused_hash="failed_inputs_hash")


def decide(world: TableWorld) -> Step:
    """Choose the one next write under a Table's key: runs in progress first, then the table, then those who wait."""
    return first_write(find_steps(world))


def find_steps(world: TableWorld) -> Iterator[Step]:
    """The next step of the table and of each of its jobs, by precedence."""
    queue = queue_of(world)
    turned = tuple(replace(job, turn=find_turn(world, job, queue)) for job in _with_history(world.jobs))
    return _steps(replace(world, jobs=turned))


def _with_history(jobs_: tuple[JobWorld, ...]) -> Iterator[JobWorld]:
    # Pods of every finished job of a busy table would make each LIST slow: only the newest jobs keep theirs.
    ended = sorted((j for j in jobs_ if is_finished(j.job.status)), key=_rank, reverse=True)
    kept = {job.job.meta.uid for job in ended[:KEPT_JOBS]}
    for job in jobs_:
        yield replace(job, kept=not is_finished(job.job.status) or job.job.meta.uid in kept)


def _rank(job: JobWorld) -> tuple[bool, str, str]:
    """Which of the finished jobs keeps its pods: a dry run takes nobody's place."""
    return (not is_dry_run(job.job), job.job.status.completion_time or "", job.job.meta.name)


def _steps(world: TableWorld) -> Iterator[Step]:
    now, table = world.setting.now, world.table
    for job in world.jobs:
        if job.job.status.current_run is not None:
            yield guarded(partial(deciding.decide_job, job), job.job, now)
    if table is not None:
        yield guarded(partial(decide_table, world, table), table, now)
    for job in world.jobs:
        if job.job.status.current_run is None:
            yield guarded(partial(deciding.decide_job, job), job.job, now)
    for broken in world.unreadable:
        yield tell(broken.raw, find_failure(broken.error), now)


def decide_table(world: TableWorld, table: TableSubject) -> Step:
    """The one next write for the Table itself."""
    if table.deleting:
        return drops.decide_drop(drop_world(world, table))
    managed = table.spec.management is Management.MANAGED
    if (step := drops.keep_finalizer(table, wanted=managed and deletes_data(table))) is not None:
        return step
    return _decide_living(world, table)


def _decide_living(world: TableWorld, table: TableSubject) -> Step:
    policy = find_policy(world, table)
    step = lifecycle.decide(policy)
    if isinstance(policy, ChangePolicy) or not isinstance(step, Rest):
        return step
    return trim(children_of(world.children, RunKind.TABLE), ()) or step


def find_policy(world: TableWorld, table: TableSubject) -> ChangePolicy | MaintainPolicy:
    """The runs that the table's own next step is about: a run that is there, then a change, then maintenance."""
    change = change_policy(world, table)
    changing = table.status.current_run is not None or find_live(world.children, (RunKind.TABLE,)) is not None
    maintaining = table.status.maintain_run is not None or find_live(world.children, (RunKind.MAINTAIN,)) is not None
    if changing or not (maintaining or table.spec.maintenance is not None):
        return change
    change_due = change.change is not None and change.change.due
    if change_due and not maintaining:
        return change
    return maintain_policy(world, table, change.calm(), change_due=change_due)


def drop_world(world: TableWorld, table: TableSubject) -> drops.DropWorld:
    """What the deletion of the table has to know."""
    status, identifier, rival = table.status, table.spec.identifier, world.older_claimant
    return drops.DropWorld(
        subject=table,
        setting=world.setting,
        target=DropTarget(owner=table, table=build_table_ref(table)),
        location=status.location or f"{identifier.namespace}.{identifier.name}",
        has_data=bool(status.table_uuid or status.current_run or status.last_run),
        wants_drop=deletes_data(table),
        warehouse=world.place.warehouse,
        claim=world.place.claim,
        run=world.run,
        children=world.children,
        writers=tuple(pod for pod in live_writers(world.pods) if pod.operation != RunKind.DROP),
        claimant=f"Table {rival.meta.namespace}/{rival.meta.name}" if rival is not None and not rival.deleting else "",
    )


@dataclass(frozen=True)
class Change:
    """The change run that a table needs, and whether its time has come."""

    plan: RunPlan
    failure_hash: str
    due: bool


def find_change(world: TableWorld, table: TableSubject, status: TableStatus) -> Change | None:
    """The change run that would bring the table to its spec; None when there is nothing to change or no way to."""
    warehouse = world.place.warehouse
    if table.spec.management is not Management.MANAGED or warehouse is None or find_obstacle(world, table) is not None:
        return None
    if status.applied_generation == table.meta.generation:
        return None
    plan = plan_table_run(table, world.place, warehouse, world.setting)
    known = {"inputs": plan.inputs_hash, "schema": dict(status.column_types), "problem": status.problem}
    failure = canonical_hash(known)
    ready = find_warehouse_finding(table.spec.warehouse_ref.name, warehouse) is None
    record = CHANGES.read(status)
    waited = record.wait(world.setting.now) == 0
    return Change(plan, failure, due=ready and waited and record.refused_hash != failure)


def change_policy(world: TableWorld, table: TableSubject) -> ChangePolicy:
    """The change runs of a table."""
    keeps = table.spec.maintenance is not None or table.status.maintain_run is not None
    mine = children_of(world.children, RunKind.TABLE) if keeps else world.children
    return ChangePolicy(world=world, table=table, setting=world.setting, children=mine, run=world.run)


@dataclass(frozen=True, kw_only=True)
class ChangePolicy(Policy[TableStatus]):
    """The runs that create, adopt or evolve a Managed table."""

    kinds = (RunKind.TABLE,)
    noun = "the table change"
    fields = CHANGES
    world: TableWorld
    table: TableSubject

    @cached_property
    def change(self) -> Change | None:
        """What would bring the table to its spec."""
        return find_change(self.world, self.table, self.status())

    def plan(self) -> RunPlan | None:
        """The change that the spec asks for."""
        return self.change.plan if self.change is not None else None

    def idle(self) -> Step | None:
        """Nothing is to be changed now, or somebody else writes the table."""
        status, change = self.status(), self.change
        if change is None or not change.due:
            calm = self.calm()
            return or_rest(self.show(status, calm.progress), calm.after)
        writer = choose_writer(self.world, self.table, status, change_due=True)
        if writer is not None and writer.uid == self.table.meta.uid:
            return None
        pods = [f"driver pod {pod.name}" for pod in live_writers(self.world.pods)]
        name = writer.name if writer else next(iter(pods), "a run")
        waits = fails(PROGRESSING, Reason.WAITING_FOR_TABLE, f"{name} is writing the table; the change comes next")
        return or_rest(written(self.world, self.table, status, waits, due=True), self.pause())

    def calm(self) -> Calm:
        """What is said while no change run is due."""
        progress = idle_progress(self.world, self.table, self.status(), self.change)
        return Calm(progress, self.record().wait(self.setting.now) or None)

    def block(self) -> Judgement | None:
        """Nothing is to be changed any more, or the Warehouse is not ready."""
        name, warehouse = self.table.spec.warehouse_ref.name, self.world.place.warehouse
        if self.change is not None and find_warehouse_finding(name, warehouse) is None:
            return None
        return idle_progress(self.world, self.table, self.status(), self.change)

    def status(self) -> TableStatus:
        """With what runs and indexes told."""
        return seen(self.world, self.table)

    def show(self, status: TableStatus, progress: Judgement) -> PutStatus | None:
        """Ready and Progressing, and who writes the table."""
        return written(self.world, self.table, status, progress)

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """The spec is applied, refused for good, or tried again."""
        world, table, current = self.world, self.table, run.current
        applied, ended = verdict.ending is Ending.SUCCEEDED, replace(table.status, current_run=None)
        if applied:
            ended = replace(ended, applied_generation=current.generation, applied_hash=current.inputs_hash)
            ended = with_owner(ended, verdict.report)
        observed = with_tally(world, with_observation(world, table, ended, schema_changed=applied))
        # A refusal is remembered with the schema and the problem as this very run told them.
        change = find_change(world, table, observed)
        failure = change.failure_hash if change is not None else ""
        known = self.fields.lay(observed, self.after(current, verdict, inputs_hash=failure))
        progress = idle_progress(world, table, known, find_change(world, table, known))
        return or_rest(written(world, table, known, progress), 0.0)


def idle_progress(world: TableWorld, table: TableSubject, status: TableStatus, change: Change | None) -> Judgement:
    """The condition Progressing while no change run is intended."""
    if change is None or status.failed_inputs_hash == change.failure_hash:
        return fails(PROGRESSING, Reason.IDLE, "there is nothing to change")
    finding = find_warehouse_finding(table.spec.warehouse_ref.name, world.place.warehouse)
    if finding is not None:
        return fails(PROGRESSING, Reason.WAITING_FOR_WAREHOUSE, finding.message)
    return holds(PROGRESSING, Reason.RETRYING, last_end(status.last_run))


def refused(world: TableWorld, owner_uid: str, refusal: Refused) -> Step:
    """The API server refused a child that ``owner_uid`` needs."""
    for job in world.jobs:
        if job.job.meta.uid == owner_uid:
            return deciding.refused(job, refusal)
    table = world.table
    if table is None:
        return Rest(requeue=Requeue(FOREIGN_POLL))
    if table.deleting:
        return drops.refused(drop_world(world, table), refusal)
    return decide_refused(find_policy(world, table), refusal)

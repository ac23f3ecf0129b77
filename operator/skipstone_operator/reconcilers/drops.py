"""Deletion of Tables and SecondaryIndexes whose data goes with them, and every way out of it.

Called by the deciders of both kinds. A finalizer exists only with reclaimPolicy Delete; it is removed when the data
is purged, or when that cannot be done: then the data is kept and an Event says where it is. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, READY, Judgement, fails, holds
from skipstone_operator.labels import FINALIZER
from skipstone_operator.ports import EventType, Refused, Requeue
from skipstone_operator.reconcilers.runs import lifecycle
from skipstone_operator.reconcilers.runs.launch import delete_pod, discard
from skipstone_operator.reconcilers.runs.lifecycle import Policy, as_phase
from skipstone_operator.reconcilers.runs.records import RecordFields, RunRecord, last_end
from skipstone_operator.reconcilers.runs.requests import DropTarget, RunPlan, find_invalid_setting, plan_drop_run
from skipstone_operator.reconcilers.runs.statuses import earliest, event, judged, or_rest, put_status
from skipstone_operator.resources.secondaryindex import SecondaryIndexStatus
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.worlds.nodes import describe_stuck, is_stuck
from skipstone_operator.worlds.pods import PodFacts, Wait
from skipstone_operator.worlds.runs import Ending, RunWorld, Verdict, find_foreign
from skipstone_operator.worlds.steps import PutFinalizers, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import (
    AnySubject,
    Children,
    ClaimFacts,
    IndexSubject,
    Setting,
    TableSubject,
    WarehouseSubject,
)
from skipstone_operator.worlds.times import seconds_since

#: Waits of a driver that end only when somebody acts, and the seconds that a drop gives them.
STUCK = frozenset({Reason.IMAGE_PULL_FAILED, Reason.VOLUME_UNAVAILABLE})
STUCK_GRACE = 60.0
POLL = 5.0


@dataclass(frozen=True, kw_only=True)
class DropWorld:
    """A resource that is being deleted. ``location`` is where its data is, for the Event when it is kept.

    ``has_data``: something may have been written; ``writers``: live pods that still write what is to be dropped;
    ``claimant``: the other resource that the data belongs to now, in words.
    """

    subject: TableSubject | IndexSubject
    setting: Setting
    target: DropTarget
    location: str
    has_data: bool
    wants_drop: bool
    warehouse: WarehouseSubject | None = None
    claim: ClaimFacts | None = None
    run: RunWorld | None = None
    children: Children = field(default_factory=Children)
    writers: tuple[PodFacts, ...] = ()
    claimant: str = ""


def keep_finalizer(subject: AnySubject, *, wanted: bool) -> Step | None:
    """Put our finalizer on a living resource whose data goes with it, or take it off one whose data stays."""
    present = FINALIZER in subject.meta.finalizers
    if present == wanted or (wanted and subject.deleting):
        return None
    others = tuple(name for name in subject.meta.finalizers if name != FINALIZER)
    return PutFinalizers(object=dict(subject.raw), finalizers=(*others, FINALIZER) if wanted else others)


def release(subject: AnySubject, type_: EventType, reason: Reason, note: str) -> Step:
    """Take our finalizer off and say why."""
    others = tuple(name for name in subject.meta.finalizers if name != FINALIZER)
    return PutFinalizers(
        object=dict(subject.raw),
        finalizers=others,
        events=(event(subject, type_, reason, note),),
        requeue=Requeue.never(),
    )


def retain(world: DropWorld, why: str) -> Step:
    """Give the drop up: the data stays, but for what a drop run that is still there may do."""
    run = drop_policy(world).run
    if run is None or run.pod is None or run.pod.terminal or run.pod.waits is not None:
        note = f"the data at {world.location} was kept: {why}"
    else:
        node = f" on node {run.pod.node}" if run.pod.node else ""
        note = f"driver pod {run.pod.name}{node} may still drop the data at {world.location}: {why}"
    return release(world.subject, EventType.WARNING, Reason.DATA_RETAINED, note)


def decide_drop(world: DropWorld) -> Step:
    """Choose the one next write for a resource that is being deleted."""
    if FINALIZER not in world.subject.meta.finalizers:
        return Rest()
    if not world.has_data:
        return keep_finalizer(world.subject, wanted=False) or Rest()
    if (why := find_escape(world) or find_stuck(world)) is not None:
        return retain(world, why)
    return _wait_for_writers(world) if world.writers else lifecycle.decide(drop_policy(world))


def find_escape(world: DropWorld) -> str | None:
    """Why the drop cannot be done, whatever is tried."""
    if not world.wants_drop:
        return "spec.reclaimPolicy is Retain"
    if world.claimant:
        return f"{world.claimant} is older and claims the same table"
    if world.warehouse is None:
        return "the Warehouse is gone"
    if world.warehouse.spec.storage.pvc is not None and world.claim is None:
        return "the PersistentVolumeClaim of the Warehouse is gone"
    waited = seconds_since(world.subject.meta.deletion_timestamp, world.setting.now)
    limit = world.setting.timing.drop_deadline
    if waited is not None and waited >= limit:
        return f"the drop did not finish within {limit:.0f} s{_last_words(world)}"
    return None


def _last_words(world: DropWorld) -> str:
    """What the last drop run said, after what it did not finish."""
    last = world.subject.status.last_run
    return f"; its last run ended with {last.reason}: {last.message}" if last and last.kind is RunKind.DROP else ""


def _left(world: DropWorld) -> float:
    waited = seconds_since(world.subject.meta.deletion_timestamp, world.setting.now) or 0.0
    return max(0.0, world.setting.timing.drop_deadline - waited)


def _wait_for_writers(world: DropWorld) -> Step:
    mine = next((p for p in world.writers if p.owner_uid == world.subject.meta.uid and not p.deleting), None)
    if mine is not None:
        return delete_pod(mine)
    names = ", ".join(sorted(pod.name for pod in world.writers)[:3])
    progress = holds(PROGRESSING, Reason.DELETING, f"waiting for {names} to end before the data is dropped")
    stuck = next((pod for pod in world.writers if is_stuck(pod, world.setting.now)), None)
    if stuck is not None:
        progress = fails(PROGRESSING, Reason.DRIVER_STUCK, describe_stuck(stuck, world.setting.timing))
    return or_rest(_written(world, world.subject.status, progress), min(POLL, _left(world)))


def _written(world: DropWorld, status: TableStatus | SecondaryIndexStatus, progress: Judgement) -> PutStatus | None:
    judgements = [fails(READY, Reason.DELETING, "the resource is being deleted"), progress]
    return put_status(world.subject, judged(status, world.subject, judgements, world.setting.now))


def find_stuck(world: DropWorld) -> str | None:
    """What keeps the driver of the drop from starting and will not go by itself: an image or a claim that is gone."""
    wait = _stuck(world)
    return f"{wait.reason}: {wait.message}" if wait is not None and _grace_left(world) == 0.0 else None


def _stuck(world: DropWorld) -> Wait | None:
    run = drop_policy(world).run
    pod = run.pod if run is not None else None
    if run is None or pod is None or pod.waits is None or find_foreign(run) is not None:
        return None
    return pod.waits if pod.waits.reason in STUCK else None


def _grace_left(world: DropWorld) -> float | None:
    """Seconds until a driver that waits for an image or a claim is given up."""
    pod = world.run.pod if world.run is not None else None
    if pod is None or pod.created is None or _stuck(world) is None:
        return None
    return max(0.0, STUCK_GRACE - (world.setting.now - pod.created).total_seconds())


def drop_policy(world: DropWorld) -> DropPolicy:
    """The drop runs of a deleted resource. A run of another kind that was intended before is none of them."""
    run = world.run if world.run is not None and world.run.current.kind is RunKind.DROP else None
    return DropPolicy(world=world, setting=world.setting, children=world.children, run=run)


@dataclass(frozen=True, kw_only=True)
class DropPolicy(Policy[TableStatus | SecondaryIndexStatus]):
    """The runs that purge the data of a deleted resource."""

    kinds = (RunKind.DROP,)
    noun = "the drop run"
    #: The counts of failures there are those of other runs.
    fields = RecordFields(failures="")
    world: DropWorld

    def plan(self) -> RunPlan | None:
        """The drop, while there is a Warehouse."""
        world, warehouse = self.world, self.world.warehouse
        return None if warehouse is None else plan_drop_run(world.target, warehouse, world.claim, world.setting)

    def record(self) -> RunRecord:
        """What the status says of runs of another kind is not about the drop; each drop that ended has failed."""
        record = super().record()
        last = record.last if record.last is not None and record.last.kind is RunKind.DROP else None
        if last is None:
            return RunRecord(current=record.current)
        return replace(record, failures=last.attempt)

    def newest(self, plan: RunPlan) -> int:
        """Attempts are counted by the last one that ended, and by what is left of others."""
        return self.record().failures

    def idle(self) -> Step | None:
        """Clear away the intent of a run of another kind, or wait for a Warehouse."""
        world = self.world
        if world.run is not None and self.run is None and (step := discard(world.run)) is not None:
            return step
        if (block := self.block()) is not None:
            return or_rest(self.show(self.status(), block), self.pause())
        return None

    def block(self) -> Judgement | None:
        """No pod can be built from the Warehouse."""
        warehouse = self.world.warehouse
        invalid = find_invalid_setting(warehouse) if warehouse is not None else None
        if warehouse is None or invalid is None:
            return None
        message = f"the drop cannot start: correct Warehouse {warehouse.meta.name!r}: {invalid.message}"
        return fails(PROGRESSING, invalid.reason, message)

    def look(self) -> float | None:
        """The deadline of the deletion, and of an image that cannot be pulled."""
        return earliest(_left(self.world), _grace_left(self.world))

    def status(self) -> TableStatus | SecondaryIndexStatus:
        """As it is."""
        return self.world.subject.status

    def show(self, status: TableStatus | SecondaryIndexStatus, progress: Judgement) -> PutStatus | None:
        """Whatever the run does, the resource is being deleted."""
        return _written(self.world, status, as_phase(progress, Reason.DELETING, "dropping the data"))

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """The data is purged, kept, or it is tried again."""
        match verdict.ending:
            case Ending.SUCCEEDED if verdict.reason in (Reason.DATA_RETAINED, Reason.NOT_CREATED_HERE):
                return retain(self.world, verdict.message)
            case Ending.SUCCEEDED:
                note = verdict.message or f"the data at {self.world.location} was purged"
                return release(self.world.subject, EventType.NORMAL, Reason.DATA_DELETED, note)
            case Ending.REFUSED | Ending.ABSENT:
                return retain(self.world, verdict.message)
            case Ending.UNKNOWN | Ending.LOST:
                record = self.after(run.current, verdict)
                again = holds(PROGRESSING, Reason.RETRYING, last_end(record.last))
                return or_rest(self.show(self.fields.lay(self.status(), record), again), 0.0)
            case _:
                assert_never(verdict.ending)

    def refused(self, refusal: Refused) -> Step | None:
        """In a namespace that is being deleted nothing can be created any more."""
        return retain(self.world, "the namespace is being deleted") if refusal.namespace_terminating else None


def refused(world: DropWorld, refusal: Refused) -> Step:
    """The API server refused a child of the drop run."""
    return lifecycle.decide_refused(drop_policy(world), refusal)

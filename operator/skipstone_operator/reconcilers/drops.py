"""Deletion of Tables and SecondaryIndexes whose data goes with them, and every way out of it.

Called by the deciders of both kinds. A finalizer exists only with reclaimPolicy Delete; it is removed when the data
is purged, or when that cannot be done: then the data is kept and an Event says where it is. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, READY, fails, format_time, holds
from skipstone_operator.labels import FINALIZER
from skipstone_operator.ports import EventType, Refused, Requeue
from skipstone_operator.reconcilers.launch import (
    FOREIGN_POLL,
    clean_executors,
    delete_pod,
    discard,
    is_stale,
    launch,
    next_attempt,
)
from skipstone_operator.reconcilers.requests import DropTarget, RunPlan, find_misfit, plan_drop_run
from skipstone_operator.reconcilers.statuses import event, followed, judged, or_rest, put_status, record_end
from skipstone_operator.resources.secondaryindex import SecondaryIndexStatus
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ended, Ending, Foreign, Live, NotLaunched, RunWorld, Verdict, judge_run
from skipstone_operator.worlds.steps import PutFinalizers, Rest, Step
from skipstone_operator.worlds.subjects import (
    AnySubject,
    Children,
    ClaimFacts,
    IndexSubject,
    Setting,
    TableSubject,
    WarehouseSubject,
)
from skipstone_operator.worlds.times import add_seconds, backoff, seconds_since, seconds_until

IMAGE_GRACE = 60.0
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
    """Give the drop up: the data stays."""
    note = f"the data at {world.location} was kept: {why}"
    return release(world.subject, EventType.WARNING, Reason.DATA_RETAINED, note)


def decide_drop(world: DropWorld) -> Step:
    """Choose the one next write for a resource that is being deleted."""
    if FINALIZER not in world.subject.meta.finalizers:
        return Rest()
    if not world.has_data:
        return keep_finalizer(world.subject, wanted=False) or Rest()
    if (why := find_escape(world)) is not None:
        return retain(world, why)
    if world.writers:
        return _wait_for_writers(world)
    warehouse, run = world.warehouse, world.run
    if warehouse is None:
        return retain(world, "the Warehouse is gone")
    if (misfit := find_misfit(warehouse)) is not None and not _is_launched(run):
        message = f"the drop cannot start: correct Warehouse {warehouse.meta.name!r}: {misfit.message}"
        return _progress(world, world.subject.status, message, FOREIGN_POLL)
    plan = plan_drop_run(world.target, warehouse, world.claim, world.setting)
    if run is None or run.current.kind is not RunKind.DROP:
        return _intend(world, plan)
    return _follow_run(world, run, plan)


def find_escape(world: DropWorld) -> str | None:
    """Why the drop cannot be done, whatever is tried."""
    if not world.wants_drop:
        return "spec.reclaimPolicy is Retain"
    if world.claimant:
        return f"{world.claimant} is older and claims the same table"
    if world.warehouse is None:
        return "the Warehouse is gone"
    if world.claim is None:
        return "the PersistentVolumeClaim of the Warehouse is gone"
    waited = seconds_since(world.subject.meta.deletion_timestamp, world.setting.now)
    limit = world.setting.timing.drop_deadline
    if waited is not None and waited >= limit:
        return f"the drop did not finish within {limit:.0f} s"
    return None


def _left(world: DropWorld) -> float:
    waited = seconds_since(world.subject.meta.deletion_timestamp, world.setting.now) or 0.0
    return max(0.0, world.setting.timing.drop_deadline - waited)


def _wait_for_writers(world: DropWorld) -> Step:
    mine = next((p for p in world.writers if p.owner_uid == world.subject.meta.uid and not p.deleting), None)
    if mine is not None:
        return delete_pod(mine)
    names = ", ".join(sorted(pod.name for pod in world.writers)[:3])
    return _progress(world, world.subject.status, f"waiting for {names} to end before the data is dropped", POLL)


def _progress(world: DropWorld, status: TableStatus | SecondaryIndexStatus, message: str, after: float) -> Step:
    judgements = [
        fails(READY, Reason.DELETING, "the resource is being deleted"),
        holds(PROGRESSING, Reason.DELETING, message),
    ]
    new = judged(status, world.subject, judgements, world.setting.now)
    return or_rest(put_status(world.subject, new), min(after, _left(world)))


def _is_launched(run: RunWorld | None) -> bool:
    return run is not None and (run.pod is not None or run.current.launch_time is not None)


def _intend(world: DropWorld, plan: RunPlan) -> Step:
    status, now = world.subject.status, world.setting.now
    if world.run is not None and (step := discard(world.run)) is not None:
        return step
    dropped = status.last_run is not None and status.last_run.kind is RunKind.DROP
    if dropped and (delay := seconds_until(status.retry_time, now)) > 0:
        return Rest(requeue=Requeue(min(delay, _left(world))))
    attempt = next_attempt(world.children, (RunKind.DROP,), 0)
    intended = replace(status, current_run=plan.intent(attempt, format_time(now)), retry_time=None)
    return _progress(world, intended, "the data is about to be dropped", 0.0)


def _follow_run(world: DropWorld, run: RunWorld, plan: RunPlan) -> Step:
    timing = world.setting.timing
    match judge_run(run, now=world.setting.now, pending_deadline=timing.pending_deadline):
        case NotLaunched():
            return _launch(world, run, plan)
        case Foreign(what):
            return _progress(world, world.subject.status, f"{what} is in the way; delete it", FOREIGN_POLL)
        case Live() as live:
            return _follow(world, run, live)
        case Ended(verdict, _):
            return clean_executors(run) or _conclude(world, run, verdict)


def _launch(world: DropWorld, run: RunWorld, plan: RunPlan) -> Step:
    if not is_stale(run.current, plan):
        return launch(run, plan)
    renewed = replace(
        world.subject.status, current_run=plan.intent(run.current.attempt, format_time(world.setting.now))
    )
    return discard(run) or _progress(world, renewed, "the Warehouse changed; the drop is launched anew", 0.0)


def _follow(world: DropWorld, run: RunWorld, live: Live) -> Step:
    created = live.pod.created
    waited = (world.setting.now - created).total_seconds() if created else 0.0
    if live.reason in (Reason.IMAGE_PULL_FAILED, Reason.VOLUME_UNAVAILABLE) and waited >= IMAGE_GRACE:
        return retain(world, f"{live.reason}: {live.message}")
    status = replace(world.subject.status, current_run=followed(run.current, live))
    return _progress(world, status, f"dropping the data: {live.message}", POLL)


def _conclude(world: DropWorld, run: RunWorld, verdict: Verdict) -> Step:
    match verdict.ending:
        case Ending.SUCCEEDED if verdict.reason in (Reason.DATA_RETAINED, Reason.NOT_CREATED_HERE):
            return retain(world, verdict.message)
        case Ending.SUCCEEDED:
            note = verdict.message or f"the data at {world.location} was purged"
            return release(world.subject, EventType.NORMAL, Reason.DATA_DELETED, note)
        case Ending.REFUSED | Ending.ABSENT:
            return retain(world, verdict.message)
        case Ending.UNKNOWN | Ending.LOST:
            return _try_again(world, run, verdict)
        case _:
            assert_never(verdict.ending)


def _try_again(world: DropWorld, run: RunWorld, verdict: Verdict) -> Step:
    timing, now = world.setting.timing, world.setting.now
    delay = backoff(run.current.attempt, base=timing.backoff_base, cap=timing.backoff_cap)
    status = replace(
        world.subject.status,
        current_run=None,
        last_run=record_end(run.current, verdict, now),
        retry_time=format_time(add_seconds(now, delay)),
    )
    return _progress(world, status, f"the drop failed and is tried again: {verdict.reason}: {verdict.message}", delay)


def refused(world: DropWorld, refusal: Refused) -> Step:
    """The API server refused a child of the drop run."""
    if refusal.namespace_terminating:
        return retain(world, "the namespace is being deleted")
    return _progress(world, world.subject.status, f"the drop cannot start: {refusal.message}", POLL)

"""Warehouse: the one next step towards a Warehouse whose catalog and storage are known to work.

Entry point of keys of kind Warehouse; runs the check of each generation and the observe runs. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.requests import CatalogType, RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, READY, Judgement, fails, format_time, holds, read_reason
from skipstone_operator.labels import FINALIZER
from skipstone_operator.ports import EventType, Refused
from skipstone_operator.reconcilers.drops import keep_finalizer, release
from skipstone_operator.reconcilers.launch import (
    FOREIGN_POLL,
    clean_executors,
    delete_pod,
    discard,
    is_stale,
    launch,
    next_attempt,
    refusal_finding,
    trim,
)
from skipstone_operator.reconcilers.observes import decide_observe, refused_observe
from skipstone_operator.reconcilers.requests import effective_image, find_misfit, plan_check_run
from skipstone_operator.reconcilers.statuses import (
    first_write,
    followed,
    judged,
    later,
    or_rest,
    put_status,
    record_end,
)
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.warehouse import WarehouseStatus
from skipstone_operator.worlds.runs import Ended, Ending, Foreign, Live, NotLaunched, RunWorld, Verdict, judge_run
from skipstone_operator.worlds.steps import PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Finding, WarehouseSubject, children_of
from skipstone_operator.worlds.times import add_seconds, backoff, seconds_since, seconds_until
from skipstone_operator.worlds.worlds import WarehouseWorld

MISSING_POLL = 30.0


def decide(world: WarehouseWorld) -> Step:
    """Choose the one next write for the Warehouse."""
    warehouse = world.warehouse
    if warehouse.deleting:
        return decide_deletion(world)
    if (step := keep_finalizer(warehouse, wanted=bool(world.dependants))) is not None:
        return step
    # Both are judged before either is written: one that fails would otherwise be undone by the other, again and again.
    return first_write([decide_check(world), decide_observe(world)])


def decide_deletion(world: WarehouseWorld) -> Step:
    """A deleted Warehouse stays until everything whose data goes with it is gone, or for ten minutes."""
    warehouse, timing = world.warehouse, world.setting.timing
    if FINALIZER not in warehouse.meta.finalizers:
        return Rest()
    names = ", ".join(f"{d.kind} {d.meta.name}" for d in world.dependants[:5])
    waited = seconds_since(warehouse.meta.deletion_timestamp, world.setting.now) or 0.0
    if not world.dependants:
        return keep_finalizer(warehouse, wanted=False) or Rest()
    if waited >= timing.drop_deadline:
        note = f"the Warehouse went before {names}; their data in claim {_claim_name(warehouse)} is kept"
        return release(warehouse, EventType.WARNING, Reason.DATA_RETAINED, note)
    message = f"waiting for the deletion of {names}, whose reclaimPolicy is Delete"
    judgements = (fails(READY, Reason.DELETING, message), holds(PROGRESSING, Reason.DELETING, message))
    status = judged(warehouse.status, warehouse, judgements, world.setting.now)
    return or_rest(put_status(warehouse, status), timing.drop_deadline - waited)


def _claim_name(warehouse: WarehouseSubject) -> str:
    return warehouse.spec.storage.pvc.claim_name


def find_obstacle(world: WarehouseWorld) -> Finding | None:
    """Why no check run can start."""
    warehouse, claim = world.warehouse, world.claim
    if (bad := validate_spec(warehouse.kind, warehouse.spec)) is not None:
        return Finding(bad.reason, bad.message)
    if (misfit := find_misfit(warehouse)) is not None:
        return misfit
    if claim is None:
        name = _claim_name(warehouse)
        message = f"spec.storage.pvc.claimName: there is no PersistentVolumeClaim {name!r} here; create it"
        return Finding(Reason.CLAIM_NOT_FOUND, message)
    if claim.one_pod and warehouse.spec.spark.executor.instances > 0:
        message = (
            f"spec.spark.executor.instances: claim {claim.name!r} is ReadWriteOncePod, so executors could never start "
            "beside their driver; set 0 or use a ReadWriteOnce claim"
        )
        return Finding(Reason.INVALID_SPEC, message)
    if is_sqlite(warehouse) and not claim.one_node:
        message = (
            f"spec.catalog: an SQLite catalog needs all pods on one node, but claim {claim.name!r} is ReadWriteMany; "
            "use a ReadWriteOnce claim or another catalog"
        )
        return Finding(Reason.CATALOG_NEEDS_ONE_NODE, message)
    return None


def is_sqlite(warehouse: WarehouseSubject) -> bool:
    """Whether the catalog is a file in the claim."""
    catalog = warehouse.spec.catalog
    return catalog.type is CatalogType.SQL and (not catalog.uri or catalog.uri.startswith("sqlite"))


def seen(world: WarehouseWorld) -> WarehouseStatus:
    """The status with what needs no run to be known."""
    warehouse, claim = world.warehouse, world.claim
    modes = f" ({', '.join(claim.access_modes)})" if claim is not None else ""
    catalog = warehouse.spec.catalog
    dialect = "" if catalog.type is CatalogType.REST else " (SQLite)" if is_sqlite(warehouse) else " (PostgreSQL)"
    return replace(
        warehouse.status,
        catalog=f"{catalog.type.value}{dialect}",
        storage=f"pvc/{_claim_name(warehouse)}{modes}"[:255],
        tables=len(world.tables),
        effective_image=effective_image(warehouse, world.setting.defaults),
    )


def is_checked(warehouse: WarehouseSubject, status: WarehouseStatus) -> bool:
    """Whether a check run succeeded at the present generation."""
    return status.checked_generation == warehouse.meta.generation


def judge_ready(world: WarehouseWorld, status: WarehouseStatus, wait: Finding | None = None) -> Judgement:
    """The condition Ready; ``wait`` is why the check run has not started."""
    if (obstacle := find_obstacle(world)) is not None:
        return fails(READY, obstacle.reason, obstacle.message)
    if is_checked(world.warehouse, status):
        return holds(READY, Reason.CHECKED, "catalog and storage answered")
    last = status.last_run
    if wait is not None:
        return fails(READY, wait.reason, wait.message)
    if last is not None and last.generation == world.warehouse.meta.generation and last.reason:
        reason = read_reason(last.reason)
        return fails(READY, Reason.CHECK_FAILED if reason is Reason.DRIVER_FAILED else reason, last.message)
    return fails(READY, Reason.CHECK_PENDING, "the check run has not finished")


def written(
    world: WarehouseWorld, status: WarehouseStatus, progress: Judgement, wait: Finding | None = None
) -> PutStatus | None:
    """The status write with all conditions, if anything changed."""
    warehouse = world.warehouse
    new = judged(status, warehouse, (judge_ready(world, status, wait), progress), world.setting.now)
    return put_status(warehouse, new)


def decide_check(world: WarehouseWorld) -> Step:
    """The one next write for the check run of this generation."""
    current = world.warehouse.status.current_run
    run = world.check if current is not None else None
    step = decide_run(world, run) if run is not None else decide_idle(world)
    if not isinstance(step, Rest):
        return step
    mine = children_of(world.children, RunKind.CHECK)
    return trim(mine, {current.id} if current else ()) or step


def decide_idle(world: WarehouseWorld) -> Step:
    """No check run is intended: intend one for a new generation, or again after a failure."""
    warehouse, status, now = world.warehouse, seen(world), world.setting.now
    if find_obstacle(world) is not None:
        # What is checked is no longer there: it is checked anew when it comes back.
        unchecked = replace(status, checked_generation=0)
        return or_rest(written(world, unchecked, fails(PROGRESSING, Reason.IDLE)), MISSING_POLL)
    if is_checked(warehouse, status):
        return or_rest(written(world, status, fails(PROGRESSING, Reason.IDLE, "there is nothing to do")), None)
    last = status.last_run
    again = last is not None and last.generation == warehouse.meta.generation
    if again and (delay := seconds_until(status.retry_time, now)) > 0:
        return or_rest(written(world, status, holds(PROGRESSING, Reason.RETRYING, "the check is tried again")), delay)
    plan = plan_check_run(warehouse, world.claim, world.setting)
    mine = children_of(world.children, RunKind.CHECK)
    known = last.attempt if last is not None and last.inputs_hash == plan.inputs_hash else 0
    intent = plan.intent(next_attempt(mine, (RunKind.CHECK,), known), format_time(now))
    progress = holds(PROGRESSING, Reason.RUN_INTENDED, "the check run is about to be launched")
    return or_rest(written(world, replace(status, current_run=intent, retry_time=None), progress), 0.0)


def decide_run(world: WarehouseWorld, run: RunWorld) -> Step:
    """The check run is intended or at work."""
    setting = world.setting
    match judge_run(run, now=setting.now, pending_deadline=setting.timing.pending_deadline):
        case NotLaunched():
            return decide_launch(world, run)
        case Foreign(what):
            message = f"{what} bears the name of this Warehouse's run and belongs to something else; delete it"
            progress = fails(PROGRESSING, Reason.RESOURCE_CONFLICT, message)
            return or_rest(written(world, seen(world), progress), FOREIGN_POLL)
        case Live() as live:
            return follow(world, run, live)
        case Ended(verdict, _):
            return clean_executors(run) or conclude(world, run, verdict)


def decide_launch(world: WarehouseWorld, run: RunWorld) -> Step:
    """The intent is written and no pod was seen."""
    status = seen(world)
    if find_obstacle(world) is not None:
        free = replace(status, current_run=None, checked_generation=0)
        return discard(run) or or_rest(written(world, free, fails(PROGRESSING, Reason.IDLE)), MISSING_POLL)
    plan = plan_check_run(world.warehouse, world.claim, world.setting)
    if is_stale(run.current, plan):
        intent = plan.intent(run.current.attempt, format_time(world.setting.now))
        progress = holds(PROGRESSING, Reason.RUN_INTENDED, "the Warehouse changed; the check is launched anew")
        return discard(run) or or_rest(written(world, replace(status, current_run=intent), progress), 0.0)
    return launch(run, plan)


def follow(world: WarehouseWorld, run: RunWorld, live: Live) -> Step:
    """The check pod is there and has not ended."""
    current = followed(run.current, live)
    if live.overdue and not current.stop_reason:
        current = replace(current, stop_reason=live.reason.value, stop_message=live.message)
    ordinary = live.reason in (Reason.DRIVER_PENDING, Reason.DRIVER_RUNNING)
    wait = None if ordinary else Finding(live.reason, live.message)
    progress = holds(PROGRESSING, live.reason, live.message)
    step = written(world, replace(seen(world), current_run=current), progress, wait)
    if step is None and current.stop_reason and not live.pod.deleting:
        return delete_pod(live.pod)
    return or_rest(step, FOREIGN_POLL)


def conclude(world: WarehouseWorld, run: RunWorld, verdict: Verdict) -> Step:
    """The check ended: good for this generation, or tried again and again while catalog or storage fail."""
    now, timing = world.setting.now, world.setting.timing
    ended = replace(
        seen(world),
        current_run=None,
        last_run=record_end(run.current, verdict, now),
        check_time=format_time(now),
        checked_hash=run.current.inputs_hash,
    )
    if verdict.ending is Ending.SUCCEEDED:
        good = replace(ended, checked_generation=run.current.generation, failed_attempts=0, retry_time=None)
        return or_rest(written(world, good, fails(PROGRESSING, Reason.IDLE, "there is nothing to do")), 0.0)
    failures = ended.failed_attempts + 1
    delay = backoff(failures, base=timing.backoff_base, cap=timing.check_retry_cap)
    retry = format_time(add_seconds(now, delay))
    bad = replace(ended, checked_generation=0, failed_attempts=failures, retry_time=retry)
    return or_rest(written(world, bad, holds(PROGRESSING, Reason.RETRYING, "the check is tried again")), 0.0)


def refused(world: WarehouseWorld, operation: str, refusal: Refused) -> Step:
    """The API server refused a child of a run of the Warehouse."""
    poll = world.setting.timing.quota_poll
    if operation != RunKind.CHECK:
        return refused_observe(world, refusal)
    finding = refusal_finding(refusal)
    progress = holds(PROGRESSING, finding.reason, finding.message)
    return later(written(world, seen(world), progress, finding), poll)

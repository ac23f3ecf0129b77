"""Warehouse: the one next step towards a Warehouse whose catalog and storage are known to work.

Entry point of keys of kind Warehouse; runs the check of each generation and the observe runs. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from skipstone_core.contract.requests import CatalogType, RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, READY, Judgement, fails, format_time, holds, read_reason
from skipstone_operator.labels import FINALIZER
from skipstone_operator.ports import EventType, Refused
from skipstone_operator.reconcilers.drops import keep_finalizer, release
from skipstone_operator.reconcilers.keeping.deciding import decide_keeping, end_orphan
from skipstone_operator.reconcilers.keeping.deciding import refused as kept_driver_refused
from skipstone_operator.reconcilers.observes import find_trouble, observe_policy
from skipstone_operator.reconcilers.planning.deciding import decide_planning
from skipstone_operator.reconcilers.runs import lifecycle
from skipstone_operator.reconcilers.runs.lifecycle import UNDERWAY, Policy, decide_refused
from skipstone_operator.reconcilers.runs.records import RunRecord, last_end
from skipstone_operator.reconcilers.runs.requests import RunPlan, effective_image, find_invalid_setting, plan_check_run
from skipstone_operator.reconcilers.runs.statuses import first_write, judged, or_rest, put_status
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.storage import place_text
from skipstone_operator.resources.warehouse import WarehouseStatus
from skipstone_operator.worlds.keeping import KEEP_OPERATION
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, RunWorld, Verdict
from skipstone_operator.worlds.steps import PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import ClaimFacts, Finding, WarehouseSubject, children_of
from skipstone_operator.worlds.times import seconds_since
from skipstone_operator.worlds.worlds import WarehouseWorld

MISSING_POLL = 30.0
NOTHING_TO_DO = fails(PROGRESSING, Reason.IDLE, "there is nothing to do")
#: Reasons of Progressing that say nothing of what keeps the check from its end.
ORDINARY = UNDERWAY | {Reason.IDLE, Reason.RETRYING}


def decide(world: WarehouseWorld) -> Step:
    """Choose the one next write for the Warehouse."""
    warehouse = world.warehouse
    if warehouse.deleting:
        return end_orphan(world) or decide_deletion(world)
    if (step := keep_finalizer(warehouse, wanted=bool(world.dependants))) is not None:
        return step
    # All are judged before one is written: one that fails would otherwise be undone by another, again and again.
    return first_write(
        [
            lifecycle.decide(check_policy(world)),
            lifecycle.decide(observe_policy(world)),
            decide_planning(world, find_own_obstacle(warehouse, world.claim)),
            decide_keeping(world, find_own_obstacle(warehouse, world.claim)),
        ]
    )


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
        note = f"the Warehouse went before {names}; their data in {place_text(warehouse.spec.storage)} is kept"
        return release(warehouse, EventType.WARNING, Reason.DATA_RETAINED, note)
    message = f"waiting for the deletion of {names}, whose reclaimPolicy is Delete"
    judgements = (fails(READY, Reason.DELETING, message), holds(PROGRESSING, Reason.DELETING, message))
    status = judged(warehouse.status, warehouse, judgements, world.setting.now)
    # The deletion of an index wakes its Table, which may be gone by then, and not the Warehouse.
    return or_rest(put_status(warehouse, status), min(MISSING_POLL, timing.drop_deadline - waited))


def find_obstacle(world: WarehouseWorld) -> Finding | None:
    """Why no check run can start."""
    return find_own_obstacle(world.warehouse, world.claim) or _location_obstacle(world)


def find_own_obstacle(warehouse: WarehouseSubject, claim: ClaimFacts | None) -> Finding | None:
    """Why nothing can start that uses the Warehouse's own catalog and storage."""
    if (bad := validate_spec(warehouse.kind, warehouse.spec)) is not None:
        return Finding(bad.reason, bad.message)
    return find_invalid_setting(warehouse) or _claim_obstacle(warehouse, claim)


def _claim_obstacle(warehouse: WarehouseSubject, claim: ClaimFacts | None) -> Finding | None:
    pvc = warehouse.spec.storage.pvc
    if pvc is None:
        return None
    if claim is None:
        message = f"spec.storage.pvc.claimName: there is no PersistentVolumeClaim {pvc.claim_name!r} here; create it"
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


def _location_obstacle(world: WarehouseWorld) -> Finding | None:
    is_spread = world.warehouse.spec.spark.executor.instances > 0 and not (world.claim and world.claim.one_node)
    for claim in world.location_claims:
        field = f"spec.sourceLocations[{claim.location}].pvc.claimName"
        if claim.facts is None:
            message = (
                f"{field}: there is no PersistentVolumeClaim {claim.name!r} here; create it or remove the location"
            )
            return Finding(Reason.CLAIM_NOT_FOUND, message)
        if is_spread and not claim.facts.many_read:
            message = (
                f"{field}: executors on several nodes cannot read from claim {claim.name!r}, which is "
                f"{', '.join(claim.facts.access_modes)}; use a ReadWriteMany or ReadOnlyMany claim, or set "
                "spec.spark.executor.instances to 0"
            )
            return Finding(Reason.INVALID_SPEC, message)
    return None


def is_sqlite(warehouse: WarehouseSubject) -> bool:
    """Return whether the catalog is a file in the claim."""
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
        storage=f"{place_text(warehouse.spec.storage)}{modes}"[:255],
        tables=len(world.tables),
        effective_image=effective_image(warehouse, world.setting.defaults),
    )


def is_checked(warehouse: WarehouseSubject, status: WarehouseStatus) -> bool:
    """Return whether a check run succeeded at the present generation."""
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


def check_policy(world: WarehouseWorld) -> CheckPolicy:
    """The check runs of a Warehouse."""
    mine = children_of(world.children, RunKind.CHECK)
    run = world.check if world.warehouse.status.current_run is not None else None
    return CheckPolicy(world=world, setting=world.setting, children=mine, run=run)


@dataclass(frozen=True, kw_only=True)
class CheckPolicy(Policy[WarehouseStatus]):
    """The runs that try catalog and storage, once for each generation that they answer."""

    kinds = (RunKind.CHECK,)
    noun = "the check run"
    world: WarehouseWorld

    def plan(self) -> RunPlan | None:
        """The check of this generation."""
        return plan_check_run(self.world.warehouse, self.world.claim, self.setting)

    def record(self) -> RunRecord:
        """What failed for another generation is not waited for."""
        record, generation = super().record(), self.world.warehouse.meta.generation
        waits = record.last is not None and record.last.generation == generation
        return record if waits else replace(record, retry_time=None)

    def idle(self) -> Step | None:
        """Something is in the way, or this generation is checked."""
        world, status = self.world, self.status()
        if (block := self.block()) is not None:
            return or_rest(self.show(self.with_run(None), block), MISSING_POLL)
        if is_checked(world.warehouse, status):
            return or_rest(self.show(status, find_trouble(world) or NOTHING_TO_DO), None)
        return None

    def block(self) -> Judgement | None:
        """Ready says what is in the way."""
        return fails(PROGRESSING, Reason.IDLE) if find_obstacle(self.world) is not None else None

    def status(self) -> WarehouseStatus:
        """With what needs no run to be known."""
        return seen(self.world)

    def with_run(self, current: CurrentRun | None) -> WarehouseStatus:
        """What is no longer there is checked again when it comes back."""
        status = replace(self.status(), current_run=current)
        return status if find_obstacle(self.world) is None else replace(status, checked_generation=0)

    def show(self, status: WarehouseStatus, progress: Judgement) -> PutStatus | None:
        """Ready says what keeps the check from its end."""
        ordinary = progress.reason in ORDINARY
        return written(self.world, status, progress, None if ordinary else Finding(progress.reason, progress.message))

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """Good for this generation, or tried again and again while catalog or storage fail."""
        world, current, now = self.world, run.current, self.setting.now
        seen_now = replace(self.status(), check_time=format_time(now), checked_hash=current.inputs_hash)
        ended = self.fields.lay(seen_now, self.after(current, verdict))
        if verdict.ending is Ending.SUCCEEDED:
            good = replace(ended, checked_generation=current.generation)
            return or_rest(written(world, good, NOTHING_TO_DO), 0.0)
        again = holds(PROGRESSING, Reason.RETRYING, last_end(ended.last_run))
        return or_rest(written(world, replace(ended, checked_generation=0), again), 0.0)


def refused(world: WarehouseWorld, operation: str, refusal: Refused) -> Step:
    """The API server refused a child of a run of the Warehouse, or a kept driver."""
    if operation == KEEP_OPERATION:
        return kept_driver_refused(world, refusal)
    if operation != RunKind.CHECK:
        return decide_refused(observe_policy(world), refusal)
    return decide_refused(check_policy(world), refusal)

"""The one next step towards the kept drivers that a Warehouse asks for.

A driver is deleted only while it has no run, so what changes is drained; a run whose driver is gone is ended in that
driver's name, and its own resource decides on the next attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from skipstone_operator.conditions import WARM_DRIVERS_READY, fails
from skipstone_operator.manifests.keeping import KeptPod, build_kept_driver, kept_driver_hash, kept_driver_name
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers.keeping.judging import (
    count_wanted,
    find_claim_obstacle,
    judge_drivers,
    judge_refusal,
    keep_silent,
    tell,
)
from skipstone_operator.reconcilers.runs.launch import delete_pod
from skipstone_operator.reconcilers.runs.placing import plan_kept_pod
from skipstone_operator.reconcilers.runs.statuses import later, or_rest
from skipstone_operator.resources.keeping.spec import WarmDriversSpec
from skipstone_operator.worlds.keeping import KeptDriver, KeptRun
from skipstone_operator.worlds.steps import Create, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Finding
from skipstone_operator.worlds.worlds import WarehouseWorld

#: Seconds until what others have to change is looked at again.
POLL = 30.0
#: Seconds until the runs of the Warehouse are counted again while more drivers may be kept.
DEMAND_POLL = 5.0
#: A driver that failed is started again after this time.
RESTART = timedelta(seconds=30)
#: Of a run's pod whose driver is gone. A node that loses a pod writes a reason too: the attempt does not count.
LOST_REASON = "KeptDriverLost"


def decide_keeping(world: WarehouseWorld, obstacle: Finding | None) -> Step:
    """The next write for the kept drivers; ``obstacle`` is what is wrong with the Warehouse itself."""
    if (ended := end_orphan(world)) is not None:
        return ended
    spec = world.warehouse.spec.warm_drivers
    if spec is None:
        return _remove(world)
    if (finding := obstacle or find_claim_obstacle(world)) is not None:
        judgement = fails(WARM_DRIVERS_READY, finding.reason, finding.message)
        return _delete_idle(world, world.kept.drivers) or or_rest(tell(world, judgement), POLL)
    kept = plan_kept_pod(world.warehouse, world.claim, world.setting.defaults)
    wanted = count_wanted(world, spec)
    if world.warehouse.status.warm_drivers is None:
        # The status names them before the first one is made, so that one which is left behind is found.
        return or_rest(tell(world, judge_drivers(world, wanted), wanted), DEMAND_POLL)
    return (
        _delete_idle(world, _unfit(world, spec, kept))
        or _create(world, spec, kept, wanted)
        or or_rest(tell(world, judge_drivers(world, wanted), wanted), _poll_of(world, spec))
    )


def refused(world: WarehouseWorld, refusal: Refused) -> Step:
    """The API server refused the pod of a driver: the condition quotes it, and it is tried again; runs start cold."""
    pause = world.setting.timing.quota_poll
    return later(tell(world, judge_refusal(refusal)), pause)


def _remove(world: WarehouseWorld) -> Step:
    """Delete every driver once it has no run; then forget them."""
    if (step := _delete_idle(world, world.kept.drivers)) is not None:
        return step
    if world.kept.drivers or world.kept.runs:
        return Rest(requeue=Requeue(DEMAND_POLL))
    return or_rest(keep_silent(world), None)


def end_orphan(world: WarehouseWorld) -> PutStatus | None:
    """End the next run whose driver is gone; also of a Warehouse that is being deleted, for nobody else does it."""
    return next(iter(_end_orphans(world)), None)


def _end_orphans(world: WarehouseWorld) -> Iterable[PutStatus]:
    """End what was assigned to a driver that is gone, as a node's controller does for a pod of a lost node."""
    now, timing = world.setting.now, world.setting.timing
    by_uid = {driver.pod.uid: driver for driver in world.kept.drivers}
    for run in world.kept.runs:
        driver = by_uid.get(run.pod.kept_by)
        if driver is None or driver.is_lost(now, timing):
            yield PutStatus(object=dict(run.raw), status=_ended(run, driver))


def _ended(run: KeptRun, driver: KeptDriver | None) -> dict[str, object]:
    """The status of a run that ended with its driver: a run in progress ends as the driver's container did."""
    status = {**(run.raw.get("status") or {}), "phase": "Failed"}
    container = next(iter(status.get("containerStatuses") or ()), None)
    # One that ended by itself had no run in progress: what its last status says never began.
    crashed = driver is not None and driver.pod.exit_code not in (None, 0) and not driver.pod.disrupted
    if driver is None or container is None or not crashed or driver.pod.deleting:
        return {**status, "reason": LOST_REASON, "message": f"the kept driver of run {run.pod.run_id} is gone"}
    begun = (container.get("state") or {}).get("running") or {}
    end = {**begun, "exitCode": driver.pod.exit_code, "reason": driver.pod.end_reason or "Error"}
    state = {"terminated": {**end, "message": f"the kept driver {driver.name} ended: {driver.pod.text}"}}
    return {**status, "containerStatuses": [{**container, "ready": False, "started": False, "state": state}]}


def _unfit(world: WarehouseWorld, spec: WarmDriversSpec, kept: KeptPod) -> Iterable[KeptDriver]:
    """The drivers that go: those of another manifest, those that have ended, those beyond the maximum."""
    wanted_hash = kept_driver_hash(kept)
    names = {kept_driver_name(world.warehouse.meta.uid, number): number for number in range(spec.max)}
    for driver in world.kept.drivers:
        number = names.get(driver.name)
        if driver.pod.terminal:
            if _may_restart(driver, world.setting.now):
                yield driver
        elif number is None or driver.hash != wanted_hash or driver.idle_seconds != _idle_of(spec, number):
            yield driver


def _idle_of(spec: WarmDriversSpec, number: int) -> int | None:
    return None if number < spec.min else spec.idle_seconds


def _may_restart(driver: KeptDriver, now: datetime) -> bool:
    ended = driver.pod.ended or driver.pod.created
    return driver.pod.succeeded or driver.pod.disrupted or ended is None or now - ended >= RESTART


def _delete_idle(world: WarehouseWorld, drivers: Iterable[KeptDriver]) -> Step | None:
    """Delete the next of ``drivers`` that has no run."""
    idle = (driver for driver in drivers if not driver.pod.deleting and not world.kept.runs_of(driver))
    uid = world.warehouse.meta.uid
    return next((replace(delete_pod(driver.pod), warehouse_uid=uid) for driver in idle), None)


def _create(world: WarehouseWorld, spec: WarmDriversSpec, kept: KeptPod, wanted: int) -> Step | None:
    """Create the next driver that is missing, under the first name that is free."""
    taken = {driver.name for driver in world.kept.drivers}
    alive = [driver for driver in world.kept.drivers if not driver.pod.terminal and not driver.pod.deleting]
    if len(alive) >= wanted:
        return None
    for number in range(spec.max):
        if kept_driver_name(world.warehouse.meta.uid, number) not in taken:
            pod = build_kept_driver(kept, number, _idle_of(spec, number))
            return Create(object=pod, grounds=(world.warehouse.raw,))
    return None


def _poll_of(world: WarehouseWorld, spec: WarmDriversSpec) -> float:
    """Seconds until the next look."""
    is_moving = spec.max > spec.min or any(driver.pod.terminal for driver in world.kept.drivers)
    return DEMAND_POLL if is_moving else POLL

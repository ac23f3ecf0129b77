"""The condition WarmDriversReady, what the status tells of kept drivers, and how many are wanted.

Called by ``deciding``. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from skipstone_core.reasons import Reason

from skipstone_operator.conditions import WARM_DRIVERS_READY, Judgement, fails, holds, without
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers.runs.statuses import judged, put_status
from skipstone_operator.resources.keeping.spec import WarmDriversSpec
from skipstone_operator.resources.keeping.status import WarmDriversStatus
from skipstone_operator.worlds.steps import PutStatus
from skipstone_operator.worlds.subjects import Finding
from skipstone_operator.worlds.worlds import WarehouseWorld


def count_wanted(world: WarehouseWorld, spec: WarmDriversSpec) -> int:
    """One driver for each job that runs, within the bounds; the last one stays for a while after the last job."""
    kept = world.kept
    since = None if kept.last_end is None else world.setting.now - kept.last_end
    recent = since is not None and since < timedelta(seconds=spec.idle_seconds)
    demand = max(len(kept.runs) + kept.cold, int(recent))
    return min(max(demand, spec.min), spec.max)


def find_claim_obstacle(world: WarehouseWorld) -> Finding | None:
    """Why no driver can be kept beside the runs of the Warehouse."""
    if not world.setting.defaults.keeps_drivers:
        message = "spec.warmDrivers: skipstone local starts a process for each run and keeps none; remove warmDrivers"
        return Finding(Reason.INVALID_SPEC, message)
    if world.claim is None or not world.claim.one_pod:
        return None
    message = (
        f"spec.warmDrivers: claim {world.claim.name!r} is ReadWriteOncePod, so a kept driver would keep every other "
        "run from it; use a ReadWriteOnce or ReadWriteMany claim"
    )
    return Finding(Reason.INVALID_SPEC, message)


def judge_drivers(world: WarehouseWorld, wanted: int) -> Judgement:
    """The condition as the drivers are."""
    ready = _count_ready(world)
    counted = f"{ready} of {wanted} kept drivers take runs"
    failed = next((driver for driver in world.kept.drivers if driver.pod.terminal and not driver.pod.succeeded), None)
    if ready >= wanted:
        return holds(WARM_DRIVERS_READY, Reason.KEPT_DRIVERS_READY, counted)
    judge = holds if ready else fails
    if failed is not None:
        last = next(reversed(failed.pod.text.strip().splitlines()), "no message")
        message = f"{counted}; pod {failed.name} ended with {failed.pod.end_reason or 'Error'}: {last}"
        return judge(WARM_DRIVERS_READY, Reason.KEPT_DRIVERS_FAILED, message)
    waits = next((d.pod.waits for d in world.kept.drivers if d.pod.waits is not None), None)
    why = f": {waits.message}" if waits is not None else ""
    return judge(WARM_DRIVERS_READY, Reason.KEPT_DRIVERS_PENDING, f"{counted}{why}")


def judge_refusal(refusal: Refused) -> Judgement:
    """The condition when the API server refused the pod of a driver."""
    reason = Reason.WAITING_FOR_QUOTA if refusal.by_quota else Reason.POD_REJECTED
    message = f"runs start in pods of their own, because the API server refused a kept driver: {refusal.message}"
    return fails(WARM_DRIVERS_READY, reason, message)


def tell(world: WarehouseWorld, judgement: Judgement, wanted: int = 0) -> PutStatus | None:
    """The write that says ``judgement``, with the drivers as they are; None when the status says so already."""
    warehouse, ready = world.warehouse, _count_ready(world)
    status = WarmDriversStatus(wanted=wanted, ready=ready, summary=f"{ready}/{wanted}")
    judged_status = judged(warehouse.status, warehouse, (judgement,), world.setting.now)
    return put_status(warehouse, replace(judged_status, warm_drivers=status))


def keep_silent(world: WarehouseWorld) -> PutStatus | None:
    """The write that takes what was told of kept drivers back; None when nothing was."""
    warehouse = world.warehouse
    conditions = without(warehouse.status.conditions, WARM_DRIVERS_READY)
    status = replace(warehouse.status, warm_drivers=None, conditions=conditions)
    if status == warehouse.status:
        return None
    return put_status(warehouse, judged(status, warehouse, (), world.setting.now))


def _count_ready(world: WarehouseWorld) -> int:
    return sum(driver.takes_runs for driver in world.kept.drivers)

"""The condition PlanningReady, and what the status tells of the server.

Called by ``deciding``. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    PLANNING_READY,
    Judgement,
    fails,
    find,
    format_time,
    holds,
    without,
)
from skipstone_operator.manifests.planning import server_name, server_url
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers.planning.rollouts import Rollout, read_rollout
from skipstone_operator.reconcilers.runs.statuses import judged, put_status
from skipstone_operator.resources.planning.spec import replicas_of
from skipstone_operator.resources.planning.status import PlanningStatus
from skipstone_operator.worlds.steps import PutStatus
from skipstone_operator.worlds.subjects import ClaimFacts, Finding, ServerObject
from skipstone_operator.worlds.times import add_seconds, seconds_until
from skipstone_operator.worlds.worlds import WarehouseWorld

#: Seconds until an object that the API server refused is tried again.
RETRY_SECONDS = 30.0


def tell(world: WarehouseWorld, judgement: Judgement, retry_after: float | None = None) -> PutStatus | None:
    """The write that says ``judgement``, with the replicas as they are; None when the status says so already."""
    warehouse, planning = world.warehouse, world.warehouse.spec.planning
    if planning is None:
        raise ValueError("a Warehouse without planning has no server to tell of")
    rollout = find_rollout(world)
    status = PlanningStatus(
        url=server_url(warehouse.meta.name, warehouse.meta.namespace),
        replicas=replicas_of(planning, warehouse.spec.catalog),
        ready_replicas=rollout.ready if rollout is not None else 0,
        retry_time=None if retry_after is None else format_time(add_seconds(world.setting.now, retry_after)),
    )
    judged_status = judged(warehouse.status, warehouse, (judgement,), world.setting.now)
    return put_status(warehouse, replace(judged_status, planning=status))


def keep_silent(world: WarehouseWorld) -> PutStatus | None:
    """The write that takes what was told of a server back; None when nothing was."""
    warehouse = world.warehouse
    status = replace(warehouse.status, planning=None, conditions=without(warehouse.status.conditions, PLANNING_READY))
    if status == warehouse.status:
        return None
    return put_status(warehouse, judged(status, warehouse, (), world.setting.now))


def find_rollout(world: WarehouseWorld) -> Rollout | None:
    """How far the replicas are; None without a Deployment of this Warehouse."""
    deployment = world.server.objects.get("Deployment")
    if deployment is None or not deployment.is_owned_by(world.warehouse.meta.uid):
        return None
    return read_rollout(deployment.raw)


def judge_rollout(world: WarehouseWorld) -> Judgement:
    """The condition once every object is as it is declared."""
    rollout, name = find_rollout(world), server_name(world.warehouse.meta.name)
    if rollout is None:
        return fails(PLANNING_READY, Reason.REPLICAS_PENDING, "the planning server is being made")
    counted = f"{rollout.ready} of {rollout.wanted} replicas of the planning server are ready"
    if rollout.complete:
        return holds(PLANNING_READY, Reason.SERVING, counted)
    trouble = f": {rollout.trouble}" if rollout.trouble else ""
    message = f"{counted}{trouble}; see the pods of Deployment {name!r}"
    reason = Reason.REPLICAS_FAILED if rollout.failed else Reason.REPLICAS_PENDING
    return (holds if rollout.ready else fails)(PLANNING_READY, reason, message)


def judge_refusal(kind: str, name: str, refusal: Refused) -> Judgement:
    """The condition when the API server refused an object."""
    reason = Reason.WAITING_FOR_QUOTA if refusal.by_quota else Reason.SERVER_REFUSED
    return fails(PLANNING_READY, reason, f"the API server refused {kind} {name!r}: {refusal.message}")


def judge_foreign_owner(foreign: ServerObject) -> Judgement:
    """The condition when an object of the server's name belongs to somebody else."""
    message = (
        f"{foreign.kind} {foreign.name!r} exists and does not belong to this Warehouse: delete it, or give the "
        "Warehouse another name"
    )
    return fails(PLANNING_READY, Reason.RESOURCE_CONFLICT, message)


def find_claim_obstacle(claim: ClaimFacts | None) -> Finding | None:
    """Why no server can run beside the runs of the Warehouse."""
    if claim is None or not claim.one_pod:
        return None
    message = (
        f"spec.planning: claim {claim.name!r} is ReadWriteOncePod, so the server would keep every run from it; use a "
        "ReadWriteOnce or ReadWriteMany claim"
    )
    return Finding(Reason.INVALID_SPEC, message)


def seconds_to_retry(world: WarehouseWorld) -> float:
    """How long a refused object is left alone; a changed spec is tried at once."""
    status, condition = world.warehouse.status, find(world.warehouse.status.conditions, PLANNING_READY)
    if condition is None or condition.observed_generation != world.warehouse.meta.generation:
        return 0.0
    return seconds_until(status.planning.retry_time if status.planning else None, world.setting.now)

"""Carrying out a step: one write, then the Events and measures that belong to it.

Called by ``reconcile``. Thinks nothing: what to write was decided; only a name that is taken is looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import chain, repeat
from typing import assert_never

from skipstone_core.contract.keeping import kept_driver_uid

from skipstone_operator import labels
from skipstone_operator.ports import (
    DEAD_NODE,
    Conflict,
    Created,
    Deleted,
    Exists,
    Gone,
    JsonObject,
    Ports,
    Refused,
    Requeue,
    UpdateAnswer,
    Updated,
)
from skipstone_operator.reconcilers.passes.measures import publish_measures
from skipstone_operator.worlds.keeping import can_take, read_kept_drivers
from skipstone_operator.worlds.nodes import describe_stuck, is_on_dead_node, settle
from skipstone_operator.worlds.pods import read_pod
from skipstone_operator.worlds.steps import Apply, Create, Delete, PutFinalizers, PutStatus, Rest, Slots, Step
from skipstone_operator.worlds.subjects import Raw

CONFLICT_DELAY = 0.2
#: A pass that has read for longer than this reads again what a new driver rests on.
LATE = timedelta(seconds=1)
#: What tells that nobody has written to an object, and that it is still declared as it was, whatever its status says.
WHOLE = ("resourceVersion",)
DECLARED = ("uid", "generation", "deletionTimestamp")


async def perform(step: Step, ports: Ports) -> Requeue | Refused:
    """Write what ``step`` asks for. A refusal comes back as such: the decider has to answer it."""
    match step:
        case Rest():
            return step.requeue
        case PutStatus():
            answer = await ports.kube.replace_status({**step.object, "status": dict(step.status)})
            return await _after_update(step, answer, ports)
        case PutFinalizers():
            metadata = {**step.object["metadata"], "finalizers": list(step.finalizers)}
            return await _after_update(step, await ports.kube.replace({**step.object, "metadata": metadata}), ports)
        case Create():
            return await _create(step, ports)
        case Apply():
            return await _apply(step, ports)
        case Delete():
            return await _delete(step, ports)
        case _:
            assert_never(step)


async def put_shown(step: PutStatus, ports: Ports) -> bool:
    """PUT a status, with its Events; whether it landed."""
    answer = await ports.kube.replace_status({**step.object, "status": dict(step.status)})
    if not isinstance(answer, Updated):
        return False
    await _after_update(step, answer, ports)
    return True


async def _after_update(
    step: PutStatus | PutFinalizers | Apply, answer: UpdateAnswer, ports: Ports
) -> Requeue | Refused:
    match answer:
        case Updated():
            for record in step.events if not isinstance(step, Apply) else ():
                await ports.events.publish(record)
            if isinstance(step, PutStatus):
                publish_measures(step.object, step.status, ports.meter)
            return step.requeue
        case Conflict():
            return Requeue(CONFLICT_DELAY)
        case Gone():
            return Requeue.now()
        case Refused():
            return answer
        case _:
            assert_never(answer)


async def _create(step: Create, ports: Ports) -> Requeue | Refused:
    if step.slots is None:
        return await _create_on(step, ports)
    # Counting and creating may not interleave with those of another key of the same Warehouse.
    async with ports.slots[step.slots.warehouse_uid]:
        return await _create_on(step, ports)


async def _create_on(step: Create, ports: Ports) -> Requeue | Refused:
    """Create what is asked for while there is room for it and what the decision rests on is as it was."""
    if step.slots is not None:
        pods = await _list_live(step.object["metadata"]["namespace"], step.slots.warehouse_uid, ports)
        if (full := _find_full(pods, step.slots, ports)) is not None:
            return full
        driver = kept_driver_uid(step.object)
        if driver and not can_take(read_kept_drivers(pods), driver, ports.clock.now()):
            # It ended or was filled since it was chosen: the next pass chooses again.
            return Requeue(CONFLICT_DELAY)
    # Last of all, for counting takes time too.
    if not await _stands(step.grounds, ports):
        return Requeue.now()
    return await _create_now(step, ports)


async def _stands(grounds: Sequence[Raw], ports: Ports) -> bool:
    """Return whether the API server has the owner as the decision knows it, and the rest if it was read too long ago.

    Users suspend and delete an owner at any time; and a pass waits for as long as others hold the lock.
    """
    kube = ports.reading.kube if ports.reading is not None else ports.kube
    for known, names in zip(grounds, chain([WHOLE], repeat(DECLARED)), strict=False):
        current = await kube.get(known["kind"], known["metadata"]["namespace"], known["metadata"]["name"])
        if current is None or any(current["metadata"].get(name) != known["metadata"].get(name) for name in names):
            return False
        if ports.reading is not None and ports.clock.now() <= ports.reading.begun + LATE:
            break
    return True


async def _list_live(namespace: str, warehouse_uid: str, ports: Ports) -> tuple[JsonObject, ...]:
    """The driver pods of a Warehouse as the API server has them now, without those that succeeded."""
    selector = {
        labels.MANAGED_BY_LABEL: labels.MANAGED_BY,
        labels.ROLE_LABEL: labels.DRIVER_ROLE,
        labels.WAREHOUSE_UID_LABEL: warehouse_uid,
    }
    return await ports.kube.list("Pod", namespace, labels=selector, fields={"status.phase!": "Succeeded"})


def _find_full(pods: Sequence[JsonObject], slots: Slots, ports: Ports) -> Refused | None:
    now = ports.clock.now()
    facts = [settle(read_pod(pod), now, ports.timing) for pod in pods]
    if slots.one_node and (holder := next(filter(is_on_dead_node, facts), None)) is not None:
        message = (
            f"the Warehouse's claim is held on a node that does not answer: {describe_stuck(holder, ports.timing)}"
        )
        return Refused(status=409, reason=DEAD_NODE, message=message)
    live = sum(1 for pod in facts if pod.live and pod.operation in slots.operations)
    if slots.limit is None or live < slots.limit:
        return None
    message = f"exceeded quota: {live} runs of the Warehouse are running, {slots.bound}"
    return Refused(status=403, reason="Forbidden", message=message)


async def _apply(step: Apply, ports: Ports) -> Requeue | Refused:
    for needed in step.beforehand:
        # One that is there is as good: its name says what it belongs to.
        if isinstance(answer := await ports.kube.create(dict(needed)), Refused):
            return answer
    if "resourceVersion" in step.object["metadata"]:
        return await _after_update(step, await ports.kube.replace(step.object), ports)
    return await _create_now(step, ports)


async def _create_now(step: Create | Apply, ports: Ports) -> Requeue | Refused:
    answer = await ports.kube.create(step.object)
    match answer:
        case Created():
            return step.requeue
        case Exists():
            # The next pass reads the object and takes it for ours only if owner and run fit.
            return step.requeue
        case Refused():
            return answer
        case _:
            assert_never(answer)


async def _delete(step: Delete, ports: Ports) -> Requeue | Refused:
    if not step.warehouse_uid:
        return await _delete_now(step, ports)
    # Runs are assigned under the same lock, and only to a driver that is not being deleted.
    async with ports.slots[step.warehouse_uid]:
        pods = await _list_live(step.namespace, step.warehouse_uid, ports)
        if read_kept_drivers(pods).runs_by(step.uid):
            return Requeue(CONFLICT_DELAY)
        return await _delete_now(step, ports)


async def _delete_now(step: Delete, ports: Ports) -> Requeue | Refused:
    answer = await ports.kube.delete(step.kind, step.namespace, step.name, uid=step.uid)
    match answer:
        case Deleted() | Gone():
            return step.requeue
        case Conflict():
            return Requeue(CONFLICT_DELAY)
        case Refused():
            return answer
        case _:
            assert_never(answer)


def owner_uid_of(obj: JsonObject) -> str:
    """The uid of the owner whose child ``obj`` is to be."""
    references: list[JsonObject] = obj["metadata"].get("ownerReferences") or [{}]
    return str(references[0].get("uid", ""))

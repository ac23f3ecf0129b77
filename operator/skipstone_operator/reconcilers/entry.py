"""The entry point of every key: gather, decide, perform.

Called by the loop; raises what the API adapter raises, which the loop answers by backing off.
"""

from __future__ import annotations

from collections.abc import Callable

from skipstone_operator import labels
from skipstone_operator.ports import AccessDenied, Key, Ports, Refused, Requeue
from skipstone_operator.reconcilers import index, schedule, table, warehouse
from skipstone_operator.reconcilers.glance import glance
from skipstone_operator.reconcilers.passes.failures import WriteRefused, tell_failure
from skipstone_operator.reconcilers.passes.farewell import let_go
from skipstone_operator.reconcilers.passes.gather import gather_index, gather_schedule, gather_table, gather_warehouse
from skipstone_operator.reconcilers.passes.perform import owner_uid_of, perform
from skipstone_operator.reconcilers.passes.showing import show
from skipstone_operator.reconcilers.runs.statuses import earliest, first_write
from skipstone_operator.worlds.steps import Create, PutFinalizers, PutStatus, Step

Answer = Callable[[Create, Refused], Step]


async def reconcile(key: Key, ports: Ports) -> Requeue:
    """Make the next write for ``key``, beside statuses that only show something; says when to look at it again.

    Unknown kinds are nobody's business.

    What goes wrong is told in the conditions of the resources concerned, and raised for the loop to back off.
    """
    try:
        return await _reconcile_readable(key, ports)
    except Exception as error:
        if not isinstance(error, OSError) or isinstance(error, AccessDenied):
            await tell_failure(key, ports, error)
        raise


async def _reconcile_readable(key: Key, ports: Ports) -> Requeue:
    if (rest := await glance(key, ports)) is not None:
        return rest
    try:
        return await _reconcile_kind(key, ports)
    except AccessDenied as denied:
        return await let_go(key, ports, denied)


async def _reconcile_kind(key: Key, ports: Ports) -> Requeue:
    match key.kind:
        case "Table":
            return await _reconcile_table(key, ports)
        case "SecondaryIndex":
            return await _reconcile_index(key, ports)
        case "Warehouse":
            return await _reconcile_warehouse(key, ports)
        case "MergeSchedule":
            return await _reconcile_schedule(key, ports)
        case _:
            return Requeue.never()


async def _reconcile_table(key: Key, ports: Ports) -> Requeue:
    world = await gather_table(key, ports)

    def answer(step: Create, refusal: Refused) -> Step:
        return table.refused(world, owner_uid_of(step.object), refusal)

    shown = await show(table.find_steps(world), ports)
    outcome = await _carry_out(first_write(shown.left), ports, answer)
    return Requeue(earliest(outcome.after, *shown.delays))


async def _reconcile_index(key: Key, ports: Ports) -> Requeue:
    world = await gather_index(key, ports)
    if world is None:
        return Requeue.never()

    def answer(_: Create, refusal: Refused) -> Step:
        return index.refused(world, refusal)

    return await _carry_out(index.decide(world), ports, answer)


async def _reconcile_warehouse(key: Key, ports: Ports) -> Requeue:
    world = await gather_warehouse(key, ports)
    if world is None:
        return Requeue.never()

    def answer(step: Create, refusal: Refused) -> Step:
        return warehouse.refused(world, step.object["metadata"]["labels"][labels.OPERATION_LABEL], refusal)

    return await _carry_out(warehouse.decide(world), ports, answer)


async def _reconcile_schedule(key: Key, ports: Ports) -> Requeue:
    world = await gather_schedule(key, ports)
    if world is None:
        return Requeue.never()

    def answer(_: Create, refusal: Refused) -> Step:
        return schedule.refused(world, refusal)

    return await _carry_out(schedule.decide(world), ports, answer)


async def _carry_out(step: Step, ports: Ports, answer: Answer) -> Requeue:
    outcome = await perform(step, ports)
    if isinstance(outcome, Refused) and isinstance(step, Create):
        # Nothing was created, so saying why is still the only write of this pass.
        step = answer(step, outcome)
        outcome = await perform(step, ports)
    if isinstance(outcome, Refused):
        message = f"the API server refused {type(step).__name__}: {outcome.status} {outcome.message}"
        raise WriteRefused(message, step.object if isinstance(step, PutStatus | PutFinalizers) else None)
    return outcome

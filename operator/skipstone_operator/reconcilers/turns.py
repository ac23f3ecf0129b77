"""What is to be done for a key: the world is gathered, its decider asked.

Called by ``cachedpass`` with the cache and by ``entry`` with the API server. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skipstone_operator import labels
from skipstone_operator.ports import Key, Ports, Refused
from skipstone_operator.reconcilers import index, schedule, table, warehouse
from skipstone_operator.reconcilers.passes.gather import gather_index, gather_schedule, gather_table, gather_warehouse
from skipstone_operator.reconcilers.passes.perform import owner_uid_of
from skipstone_operator.reconcilers.planning import deciding
from skipstone_operator.worlds.steps import Apply, Create, Step


@dataclass(frozen=True)
class Turn:
    """The steps under one key by precedence, and what is done when the API server refuses to create a child."""

    steps: tuple[Step, ...]
    refused: Callable[[Create | Apply, Refused], Step]


async def find_turn(key: Key, ports: Ports) -> Turn | None:
    """What is to be done for ``key``; None when it is gone, or of a kind that is nobody's business."""
    match key.kind:
        case "Table":
            return await _of_table(key, ports)
        case "SecondaryIndex":
            return await _of_index(key, ports)
        case "Warehouse":
            return await _of_warehouse(key, ports)
        case "MergeSchedule":
            return await _of_schedule(key, ports)
        case _:
            return None


async def _of_table(key: Key, ports: Ports) -> Turn:
    world = await gather_table(key, ports)
    return Turn(
        tuple(table.find_steps(world)),
        lambda step, refusal: table.refused(world, owner_uid_of(step.object), refusal),
    )


async def _of_index(key: Key, ports: Ports) -> Turn | None:
    world = await gather_index(key, ports)
    if world is None:
        return None
    return Turn((index.decide(world),), lambda _, refusal: index.refused(world, refusal))


async def _of_warehouse(key: Key, ports: Ports) -> Turn | None:
    world = await gather_warehouse(key, ports)
    if world is None:
        return None
    return Turn(
        (warehouse.decide(world),),
        lambda step, refusal: (
            deciding.refused(world, step, refusal)
            if isinstance(step, Apply)
            else warehouse.refused(world, step.object["metadata"]["labels"][labels.OPERATION_LABEL], refusal)
        ),
    )


async def _of_schedule(key: Key, ports: Ports) -> Turn | None:
    world = await gather_schedule(key, ports)
    if world is None:
        return None
    return Turn((schedule.decide(world),), lambda _, refusal: schedule.refused(world, refusal))

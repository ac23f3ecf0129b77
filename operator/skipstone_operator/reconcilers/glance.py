"""A glance: what a pass would do by the cache, and what of it may be done on the cache's word.

Called by the entry before a pass reads the API server. Nothing to write is believed, and so is a status that only says
what is seen, for its resourceVersion proves that the object is the one that was judged. Whatever starts, ends, adopts,
stops or deletes something, and whatever takes back a condition that others rely on, is decided again on what the API
server has now.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from skipstone_operator.ports import Key, KubeApi, Ports, Requeue
from skipstone_operator.reconcilers import index, schedule, table, warehouse
from skipstone_operator.reconcilers.passes.gather import gather_index, gather_schedule, gather_table, gather_warehouse
from skipstone_operator.reconcilers.passes.showing import show, takes_back
from skipstone_operator.reconcilers.runs.statuses import earliest, first_write
from skipstone_operator.worlds.steps import Rest, Step

logger = logging.getLogger(__name__)


async def glance(key: Key, ports: Ports) -> Requeue | None:
    """When to look again if nothing is left to do for ``key``; None when the API server has to be read."""
    if ports.cached is None:
        return None
    try:
        if await _is_deleting(key, ports.cached):
            # Its namespace may go away with it, and with the namespace the right to hear of anything in it.
            return None
        steps = await _find_steps(key, replace(ports, kube=ports.cached))
    except Exception as error:  # noqa: BLE001 - the pass that reads the API server meets it again, and tells it
        logger.debug("no glance: %s", error, extra={"key": str(key)})
        return None
    if any(takes_back(step) for step in steps):
        return None
    shown = await show(steps, ports)
    if not all(isinstance(step, Rest) for step in shown.left):
        return None
    return Requeue(earliest(first_write(shown.left).requeue.after, *shown.delays))


async def _is_deleting(key: Key, kube: KubeApi) -> bool:
    found = await kube.get(key.kind, key.namespace, key.name)
    return found is not None and "deletionTimestamp" in found["metadata"]


async def _find_steps(key: Key, ports: Ports) -> list[Step]:
    match key.kind:
        case "Table":
            return list(table.find_steps(await gather_table(key, ports)))
        case "SecondaryIndex":
            found = await gather_index(key, ports)
            return [] if found is None else [index.decide(found)]
        case "Warehouse":
            lake = await gather_warehouse(key, ports)
            return [] if lake is None else [warehouse.decide(lake)]
        case "MergeSchedule":
            timetable = await gather_schedule(key, ports)
            return [] if timetable is None else [schedule.decide(timetable)]
        case _:
            return []

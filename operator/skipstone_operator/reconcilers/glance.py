"""A glance: what a pass would do by the cache, and what of it may be done on the cache's word.

Called by the entry before a pass reads the API server. Nothing to write is believed, and so is a status that only says
what is seen (``sightings``), for its resourceVersion proves that the object is the one that was judged. Whatever
starts, adopts, stops or deletes something, and whatever takes back a condition that others rely on, is decided again on
what the API server has now.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from skipstone_operator.ports import Key, KubeApi, Ports, Requeue
from skipstone_operator.reconcilers.passes.perform import put_shown
from skipstone_operator.reconcilers.passes.showing import is_saying, show, takes_back
from skipstone_operator.reconcilers.passes.sightings import is_seen
from skipstone_operator.reconcilers.runs.statuses import earliest, first_write
from skipstone_operator.reconcilers.turns import find_turn
from skipstone_operator.worlds.steps import PutStatus, Rest, Step

logger = logging.getLogger(__name__)


async def glance(key: Key, ports: Ports) -> Requeue | None:
    """When to look again if nothing is left to do for ``key``; None when the API server has to be read."""
    if ports.cached is None:
        return None
    try:
        if await _is_deleting(key, ports.cached):
            # Its namespace may go away with it, and with the namespace the right to hear of anything in it.
            return None
        turn = await find_turn(key, replace(ports, kube=ports.cached))
    except Exception as error:  # noqa: BLE001 - the pass that reads the API server meets it again, and tells it
        logger.debug("no glance: %s", error, extra={"key": str(key)})
        return None
    steps = turn.steps if turn is not None else ()
    if any(takes_back(step) for step in steps) or not all(isinstance(step, Rest) or is_seen(step) for step in steps):
        return None
    if (telling := next((step for step in steps if isinstance(step, PutStatus) and not is_saying(step)), None)) is None:
        return await _say(steps, ports)
    # What else is to be said may change with it.
    return Requeue.now() if await put_shown(telling, ports) else None


async def _say(steps: Iterable[Step], ports: Ports) -> Requeue | None:
    shown = await show(steps, ports)
    if not all(isinstance(step, Rest) for step in shown.left):
        return None
    return Requeue(earliest(first_write(shown.left).requeue.after, *shown.delays))


async def _is_deleting(key: Key, kube: KubeApi) -> bool:
    found = await kube.get(key.kind, key.namespace, key.name)
    return found is not None and "deletionTimestamp" in found["metadata"]

"""A pass over cached objects: decides from the watch cache and performs only the steps that are safe on late data.

Called by ``entry`` before a pass reads the API server. Two results are safe: no step at all, and a status that only
reports what was seen (``cachesafe``), because its resourceVersion proves which object was judged. A step that starts,
adopts, stops or deletes something, or withdraws a condition that others rely on, is decided again by a pass over the
API server's objects.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from skipstone_operator.ports import Key, Ports, Requeue
from skipstone_operator.reconcilers.passes.cachesafe import is_cache_safe
from skipstone_operator.reconcilers.passes.perform import put_shown
from skipstone_operator.reconcilers.passes.showing import is_saying, show, takes_back
from skipstone_operator.reconcilers.runs.statuses import earliest, first_write
from skipstone_operator.reconcilers.turns import find_turn
from skipstone_operator.worlds.steps import PutStatus, Rest, Step

logger = logging.getLogger(__name__)


async def cached_pass(key: Key, ports: Ports) -> Requeue | None:
    """Return when to look at ``key`` again, or None if a pass has to read the API server."""
    if ports.cached is None:
        return None
    try:
        obj = await ports.cached.get(key.kind, key.namespace, key.name)
        if obj is not None and "deletionTimestamp" in obj["metadata"]:
            # Its namespace may go away with it, and with the namespace the right to hear of anything in it.
            return None
        turn = await find_turn(key, replace(ports, kube=ports.cached))
    except Exception as error:  # noqa: BLE001 - the pass that reads the API server meets and reports it
        logger.debug("no cached pass: %s", error, extra={"key": str(key)})
        return None
    steps = turn.steps if turn is not None else ()
    if any(takes_back(step) for step in steps):
        return None
    if not all(isinstance(step, Rest) or is_cache_safe(step) for step in steps):
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

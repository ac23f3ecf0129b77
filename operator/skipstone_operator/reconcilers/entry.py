"""The entry point of every key: gather, decide, perform, as long as one write follows from the other.

Called by the loop; raises what the API adapter raises, which the loop answers by backing off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from skipstone_operator.memory import Memory
from skipstone_operator.ports import AccessDenied, Key, Ports, Reading, Refused, Requeue
from skipstone_operator.reconcilers.cachedpass import cached_pass
from skipstone_operator.reconcilers.passes.failures import WriteRefused, tell_failure
from skipstone_operator.reconcilers.passes.passview import PassView
from skipstone_operator.reconcilers.passes.perform import perform
from skipstone_operator.reconcilers.passes.showing import is_saying, show
from skipstone_operator.reconcilers.passes.termination import let_go
from skipstone_operator.reconcilers.runs.statuses import earliest, first_write
from skipstone_operator.reconcilers.turns import Turn, find_turn
from skipstone_operator.worlds.steps import Apply, Create, PutFinalizers, PutStatus, Step

#: Writes of one pass that do something. What is left comes with the next one, after other keys.
MAX_WRITES = 12
#: For so long a pass goes on from what it has read.
FRESH = timedelta(seconds=10)


async def reconcile(key: Key, ports: Ports) -> Requeue:
    """Make the next writes for ``key``; says when to look at it again.

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
    if (rest := await cached_pass(key, ports)) is not None:
        return rest
    try:
        return await _act(key, ports)
    except AccessDenied as denied:
        return await let_go(key, ports, denied)


@dataclass(frozen=True)
class _Round:
    """One write of a pass. ``statuses`` only show something, as they were decided with it."""

    outcome: Requeue
    statuses: tuple[Step, ...]


async def _act(key: Key, ports: Ports) -> Requeue:
    """One write after the other, each decided on the objects read and the writes before it, then the shown statuses.

    The pass ends with a write that does not ask for another at once, or that is not known to have landed.
    """
    view, reading = PassView(ports.kube), Reading(ports.kube, ports.clock.now())
    # What is read now is of no use to any other pass.
    viewed = replace(ports, kube=view, reading=reading, memory=Memory())
    for _ in range(MAX_WRITES):
        view.landed = False
        turn = await find_turn(key, viewed)
        if turn is None:
            return Requeue.never()
        made = await _make_write(turn, viewed)
        if made.outcome.after != 0.0 or not view.landed or ports.clock.now() > reading.begun + FRESH:
            break
    return await _say(made, viewed)


async def _make_write(turn: Turn, ports: Ports) -> _Round:
    statuses = tuple(filter(is_saying, turn.steps))
    step = first_write(step for step in turn.steps if not is_saying(step))
    try:
        return _Round(await _carry_out(step, turn, ports), statuses)
    except Exception:
        # What can be told is told, however often the write fails.
        await show(statuses, ports)
        raise


async def _say(made: _Round, ports: Ports) -> Requeue:
    shown = await show(made.statuses, ports)
    # What did not land is written on its own, to answer why.
    left = await _perform(first_write(shown.left), ports)
    return Requeue(earliest(made.outcome.after, left.after, *shown.delays))


async def _carry_out(step: Step, turn: Turn, ports: Ports) -> Requeue:
    outcome = await perform(step, ports)
    if isinstance(outcome, Refused) and isinstance(step, Create | Apply):
        # Nothing was written, so saying why is still the only write of this round.
        return await _perform(turn.refused(step, outcome), ports)
    return _unless_refused(step, outcome)


async def _perform(step: Step, ports: Ports) -> Requeue:
    return _unless_refused(step, await perform(step, ports))


def _unless_refused(step: Step, outcome: Requeue | Refused) -> Requeue:
    if isinstance(outcome, Refused):
        message = f"the API server refused {type(step).__name__}: {outcome.status} {outcome.message}"
        raise WriteRefused(message, step.object if isinstance(step, PutStatus | PutFinalizers) else None)
    return outcome

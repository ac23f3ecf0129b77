"""Statuses that only show what is seen: one pass writes all of them, so that nobody waits behind others to be told.

Called by the entry before the one write that does something. Such a status depends on no other write of its pass and no
write depends on it; its resourceVersion proves that the object is the one that was judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from skipstone_operator.conditions import HEALTHY, PROGRESSING, SUMMARIES
from skipstone_operator.ports import Ports
from skipstone_operator.reconcilers.passes.perform import put_shown
from skipstone_operator.worlds.steps import PutStatus, Step
from skipstone_operator.worlds.subjects import Raw

#: Statuses that one pass shows. A Table with more jobs than that takes more passes.
MAX_SHOWN = 100
#: Fields of a status that say what is seen and on which nothing is built.
SHOWN = frozenset({"conditions", "reason", "observedGeneration"})
#: Conditions that only tell what is going on, though they hold.
UNPROMISED = frozenset({PROGRESSING, HEALTHY}) | SUMMARIES


@dataclass(frozen=True)
class Shown:
    """What is left to do, and when those that were shown want to be looked at again."""

    left: tuple[Step, ...]
    delays: tuple[float | None, ...]


async def show(steps: Iterable[Step], ports: Ports) -> Shown:
    """Write the statuses that only show something, up to a bound.

    What did not land is left: the write that is made on its own answers a conflict and a refusal.
    """
    left: list[Step] = []
    delays: list[float | None] = []
    for step in steps:
        full = len(delays) >= MAX_SHOWN
        if not full and isinstance(step, PutStatus) and only_shows(step) and await put_shown(step, ports):
            delays.append(step.requeue.after)
        else:
            left.append(step)
    return Shown(tuple(left), tuple(delays))


def is_saying(step: Step) -> bool:
    """Return whether the step does nothing but to say what is seen."""
    return isinstance(step, PutStatus) and only_shows(step)


def only_shows(step: PutStatus) -> bool:
    """Return whether the status says what is seen and changes nothing that a decision is built on."""
    old: Raw = step.object.get("status") or {}
    return changes(old, step.status) <= SHOWN and promises(step.status) <= promises(old)


def takes_back(step: Step) -> bool:
    """Return whether the step is a status that no longer says what others rely on."""
    return isinstance(step, PutStatus) and not promises(step.object.get("status") or {}) <= promises(step.status)


def changes(old: Raw, new: Raw) -> set[str]:
    """The fields that ``new`` says otherwise than ``old``."""
    # A field that is absent and one that is empty say the same.
    return {name for name in (*old, *new) if (old.get(name) or None) != (new.get(name) or None)}


def promises(status: Raw) -> set[tuple[str, object]]:
    """What others rely on: conditions that hold, and the generation for which they do."""
    listed: Iterable[object] = status.get("conditions") or ()
    conditions = [each for each in listed if isinstance(each, Mapping)]
    holding = {str(each.get("type")) for each in conditions if each.get("status") == "True"} - UNPROMISED
    return {(type_, status.get("observedGeneration")) for type_ in holding}

"""What the annotation by which users ask for maintenance says: a mark that is new each time, and perhaps steps.

The operator reads it, the command line writes it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from skipstone_core.maintenance.policies import MaintenanceStep

_STEPS = {step.value.lower(): step for step in MaintenanceStep}


def maintain_request(mark: str, steps: Iterable[MaintenanceStep] = ()) -> str:
    """The value that asks for ``steps``, or for all: ``Compaction,Snapshots/MARK``, or the mark alone."""
    chosen = set(steps)
    names = ",".join(step.value for step in MaintenanceStep if step in chosen)
    return f"{names}/{mark}" if names else mark


def find_asked_steps(value: str) -> tuple[MaintenanceStep, ...]:
    """The steps that the value names, in order; all of them for a value that does not begin with names of steps."""
    names, slash, _ = value.partition("/")
    steps = [_STEPS.get(name.strip().lower()) for name in names.split(",")]
    if not slash or None in steps:
        return tuple(MaintenanceStep)
    return tuple(step for step in MaintenanceStep if step in steps)

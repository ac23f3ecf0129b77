"""What the status of a Warehouse tells of its kept drivers.

Imported by the Warehouse and by reconcilers. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from skipstone_operator.resources.rules.markers import Doc


@dataclass(frozen=True, kw_only=True)
class WarmDriversStatus:
    """How many drivers are kept, and how many of them take runs."""

    wanted: Annotated[int, Doc("Drivers that are wanted now.", minimum=0)] = 0
    ready: Annotated[int, Doc("Drivers that take runs.", minimum=0)] = 0
    summary: Annotated[str, Doc("Drivers that take runs, of those that are wanted.", max_length=32)] = ""

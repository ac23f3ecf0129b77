"""What the status of a Warehouse tells of its planning server.

Imported by the Warehouse and by reconcilers. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from skipstone_operator.resources.rules.markers import Doc, time_text


@dataclass(frozen=True, kw_only=True)
class PlanningStatus:
    """Where the server is, and how much of it is ready."""

    url: Annotated[
        str, Doc("Address of the server inside the cluster: the catalog uri of clients.", max_length=255)
    ] = ""
    replicas: Annotated[int, Doc("Replicas that are wanted.", minimum=0)] = 0
    ready_replicas: Annotated[int, Doc("Replicas that are ready.", minimum=0)] = 0
    retry_time: Annotated[
        str | None, time_text("The earliest time of the next attempt to write an object that the API server refused.")
    ] = None

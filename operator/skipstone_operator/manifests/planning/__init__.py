"""Manifests of a Warehouse's planning server, as plain dicts.

Reconcilers call ``build_server``; everything here is pure: no API, clock, randomness or logging.
"""

from __future__ import annotations

from skipstone_operator.manifests.planning.deployment import ServerPod
from skipstone_operator.manifests.planning.names import PLANNING_KINDS, server_name, server_url
from skipstone_operator.manifests.planning.server import PlanningServer, build_seal, build_server

__all__ = [
    "PLANNING_KINDS",
    "PlanningServer",
    "ServerPod",
    "build_seal",
    "build_server",
    "server_name",
    "server_url",
]

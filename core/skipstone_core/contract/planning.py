"""What the server that plans scans is told at its start.

The operator writes PlanningSettings into a ConfigMap; the server reads it. Credentials come from the environment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.codec import decode, encode
from skipstone_core.contract import CONTRACT_VERSION
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import ContractViolation

#: Where the server listens, and what probes and scrapes ask for.
PLANNING_PORT = 8181
HEALTHY_PATH, READY_PATH, METRICS_PATH = "/healthz", "/readyz", "/metrics"
#: Environment variables: the file with the settings, the tokens that open the front of an Sql catalog (several are
#: separated by blanks), and the key that seals tokens of pages.
SETTINGS_VARIABLE = "SKIPSTONE_PLANNING_SETTINGS"
TOKENS_VARIABLE = "SKIPSTONE_PLANNING_TOKENS"
SEAL_VARIABLE = "SKIPSTONE_PLANNING_SEAL"
#: Another port to listen at; 0 for any that is free.
PORT_VARIABLE = "SKIPSTONE_PLANNING_PORT"


class PlanningMode(StrEnum):
    """Whether clients let the server plan unless they say otherwise, or only when they ask for it."""

    OPT_IN = "OptIn"
    DEFAULT = "Default"


class PlanningVerify(StrEnum):
    """Which answers are compared with a plan that uses no index."""

    OFF = "Off"
    SAMPLE = "Sample"


@dataclass(frozen=True, kw_only=True)
class PlanningSettings:
    """How to serve one Warehouse. ``concurrent_plans``: at once in one replica, others wait or get 503."""

    warehouse: WarehouseRef
    mode: PlanningMode = PlanningMode.OPT_IN
    verify: PlanningVerify = PlanningVerify.OFF
    allow_plaintext_tokens: bool = False
    upstream_timeout_seconds: int = 30
    plan_timeout_seconds: int = 60
    concurrent_plans: int = 8
    files_per_page: int = 10_000
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        """The text that goes into the ConfigMap."""
        return json.dumps(encode(self), sort_keys=True, indent=1)

    @staticmethod
    def from_json(text: str) -> PlanningSettings:
        """Read settings; raises ContractViolation for another version (naming both) or an unreadable field."""
        raw = json.loads(text)
        version = raw.get("version") if isinstance(raw, dict) else None
        if version != CONTRACT_VERSION:
            raise ContractViolation(f"the settings have version {version}, this image reads version {CONTRACT_VERSION}")
        return decode(PlanningSettings, raw)

"""What of Iceberg's REST protocol this server speaks: endpoints, the mode of planning, and that it only reads.

Must not know a catalog.
"""

from __future__ import annotations

from typing import Final

from skipstone_core.contract.planning import PlanningMode

from skipstone.serving.answers import UNSUPPORTED, Refused
from skipstone.serving.names import Route, Target

_READS: Final = ("GET", "HEAD")
MODE: Final = "scan-planning-mode"
SERVER_MODE: Final = "server"
_PREFIX = "/v1/{prefix}/namespaces"
_TABLE = f"{_PREFIX}/{{namespace}}/tables/{{table}}"
#: What this server answers by itself, in the exact words of the protocol.
PLANNING_ENDPOINTS: Final = (
    f"POST {_TABLE}/plan",
    f"GET {_TABLE}/plan/{{plan-id}}",
    f"DELETE {_TABLE}/plan/{{plan-id}}",
    f"POST {_TABLE}/tasks",
)
#: What reads: of a catalog that does not say what it answers.
READING_ENDPOINTS: Final = (
    f"GET {_PREFIX}",
    f"GET {_PREFIX}/{{namespace}}",
    f"HEAD {_PREFIX}/{{namespace}}",
    f"GET {_PREFIX}/{{namespace}}/tables",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
)
REPORTS: Final = f"POST {_TABLE}/metrics"


def mode_defaults(mode: PlanningMode) -> dict[str, str]:
    """Return the settings that clients take unless their users choose others."""
    return {MODE: SERVER_MODE} if mode is PlanningMode.DEFAULT else {}


def require_reading(method: str, target: Target, posted: frozenset[Route] = frozenset()) -> None:
    """Raise Refused (406) for a request that is not known to leave everything as it is."""
    if method in _READS or (method == "POST" and target.route in posted):
        return
    message = (
        "this server plans scans and changes nothing: write through a catalog of your engine "
        "whose uri is the address of the catalog itself"
    )
    raise Refused(406, UNSUPPORTED, message)

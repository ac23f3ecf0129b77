"""The catalog's configuration as clients of this server get it: it reads, it plans, and it is at this address.

Must not ask the catalog.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import from_json
from skipstone_core.contract.planning import PlanningMode

from skipstone.serving.answers import unavailable
from skipstone.serving.protocol import MODE, PLANNING_ENDPOINTS, READING_ENDPOINTS, REPORTS, mode_defaults

#: Properties that lead clients to another address than the one that they were given.
_LEADING_AWAY: Final = frozenset({"uri", MODE})


def planned_config(body: bytes, mode: PlanningMode) -> dict[str, Any]:
    """The answer to ``/v1/config`` made of the catalog's own. Raises Refused (503) when that is none."""
    try:
        config = from_json(body)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise unavailable("the catalog's configuration is not a JSON object: check spec.catalog.uri")
    return {
        **config,
        "defaults": {**_kept(config.get("defaults")), **mode_defaults(mode)},
        "overrides": _kept(config.get("overrides")),
        "endpoints": _endpoints(config.get("endpoints")),
    }


def _kept(properties: object) -> dict[str, Any]:
    known = properties if isinstance(properties, dict) else {}
    return {name: value for name, value in known.items() if name not in _LEADING_AWAY}


def _endpoints(endpoints: object) -> list[str]:
    listed = (
        [str(endpoint) for endpoint in endpoints]
        if isinstance(endpoints, list) and endpoints
        else [*READING_ENDPOINTS, REPORTS]
    )
    reading = [path for path in listed if path.startswith(("GET ", "HEAD ")) or path == REPORTS]
    return [path for path in reading if path not in PLANNING_ENDPOINTS] + list(PLANNING_ENDPOINTS)

"""Keeps credentials, of the environment and those that catalogs vend, out of everything that people read.

Used where reports and log lines leave the process. Values are replaced wherever they occur, whoever wrote them there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

from skipstone_core.ids import CATALOG_VARIABLES, SOURCE_VARIABLES, STORE_VARIABLES

PREFIXES = (
    CATALOG_VARIABLES,
    STORE_VARIABLES,
    "SKIPSTONE_LOCATION_",
    SOURCE_VARIABLES,
    "SKIPSTONE_PLANNING_SEAL",
    "AWS_",
)
#: Names of settings that hold no secret, though they come from the Secret of the Warehouse.
_SETTINGS = (f"{CATALOG_VARIABLES}USER", "AWS_REGION", "AWS_DEFAULT_REGION")
_PUBLIC = frozenset(prefix + name for prefix in ("", SOURCE_VARIABLES) for name in _SETTINGS)
#: Shorter values would replace parts of words.
_SHORTEST = 4
MASK = "***"
#: Credentials that this process was told, the newest last.
_told: dict[str, None] = {}
_MOST_TOLD = 1000


def keep_secret(*values: str) -> None:
    """Show none of ``values`` from now on."""
    for value in values:
        _told.pop(value, None)
        _told[value] = None
    while len(_told) > _MOST_TOLD:
        del _told[next(iter(_told))]


def scrubbed(text: str, environment: Mapping[str, str] | None = None) -> str:
    """``text`` without the credentials that ``environment`` (the process's own when None) holds or that were told."""
    for value in _values(os.environ if environment is None else environment):
        text = text.replace(value, MASK)
    return text


def _values(environment: Mapping[str, str]) -> list[str]:
    """Each credential, and as it is written in addresses; the longest first."""
    given = [
        part
        for name, value in environment.items()
        if name.startswith(PREFIXES) and name not in _PUBLIC and len(value) >= _SHORTEST
        for part in (value, *(value.split(":", 1) if name.endswith("_CREDENTIAL") else ()))
    ]
    known = {
        form
        for part in (*given, *tuple(_told))
        if len(part) >= _SHORTEST
        for form in (part, quote(part, safe=""), quote_plus(part))
    }
    return sorted(known, key=len, reverse=True)


class ScrubbingFormatter(logging.Formatter):
    """Formats as usual, tracebacks included, without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        """The line that is logged."""
        return scrubbed(super().format(record))

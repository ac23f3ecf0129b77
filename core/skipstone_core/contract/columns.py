"""What a source's columns may do to a table: part of what the operator asks of the data plane.

Imported by ``requests`` and by who makes or reads these. Data only.
"""

from __future__ import annotations

from enum import StrEnum


class UnknownColumns(StrEnum):
    """What a load or merge does about source columns that the table does not have and nothing uses."""

    IGNORE = "Ignore"
    REFUSE = "Refuse"
    ADD = "Add"


class MatchNames(StrEnum):
    """Whether names of columns that differ in case only are the same."""

    EXACT = "Exact"
    IGNORE_CASE = "IgnoreCase"

"""The columns of tables and sources: what a source's may do to a table, and by which a table is partitioned and sorted.

Imported by ``requests`` and by who makes or reads these. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class PartitionFieldSpec:
    """One partition field. ``width`` is for the transforms bucket and truncate only."""

    column: str
    transform: str
    width: int | None = None


@dataclass(frozen=True, kw_only=True)
class SortFieldSpec:
    """One field of the sort order. Nulls first when ascending, last when descending, unless said otherwise."""

    column: str
    direction: str = "Ascending"
    nulls: str | None = None

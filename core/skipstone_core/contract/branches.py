"""The branch of a table that a load or merge writes, as requests carry it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MissingBranch(StrEnum):
    """What a load or merge does about a branch that the table does not have."""

    REFUSE = "Refuse"
    CREATE = "Create"


@dataclass(frozen=True, kw_only=True)
class BranchSpec:
    """The branch of a table that a load or merge writes; main has none. ``if_missing``: of the branch."""

    name: str
    if_missing: MissingBranch = MissingBranch.REFUSE

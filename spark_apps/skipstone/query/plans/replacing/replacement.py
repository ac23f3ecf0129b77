"""What stands in the place of a relation: rows, staged files, entries of an index, or the relation without conditions.

Made by ``substitution``. Must not know how these are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skipstone.compat.catalyst import LocalRelation
from skipstone.query.plans import cost
from skipstone.query.plans.analysis.uses import Key
from skipstone.query.plans.replacing.indexscan import StagedEntries
from skipstone.query.plans.replacing.staging import StagedScan


@dataclass(frozen=True, eq=False)
class Replacement:
    """The parts that replace a relation: rows that the driver read, staged files, and staged entries of an index.

    ``is_held_back``: it stays, and Spark moves no condition to it.
    """

    rows: LocalRelation | None
    staged: StagedScan | None
    entries: StagedEntries | None = None
    is_held_back: bool = False

    @property
    def is_local(self) -> bool:
        """Return whether the driver has read all of it."""
        return self.staged is None and self.entries is None and not self.is_held_back

    @property
    def is_few(self) -> bool:
        """Return whether the driver has read all of it, and that is little."""
        return self.is_local and self.rows is not None and self.rows.data().size() <= cost.ONE_TASK_ROWS

    @property
    def is_united(self) -> bool:
        """Return whether it is of several parts."""
        return sum(part is not None for part in (self.rows, self.staged, self.entries)) > 1

    @property
    def lacks_columns(self) -> bool:
        """Return whether columns that the query does not use may hold anything."""
        return self.rows is not None or self.entries is not None


Replacements = Mapping[Key, Replacement]

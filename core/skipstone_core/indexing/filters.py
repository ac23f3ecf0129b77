"""Whether asking the bloom filters of data files pays, for merges and for queries.

Used by the funnel of merges and by the query planner. Must not know how a filter is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_core.indexing.use import OPEN_BYTES, WORTHWHILE_PART, ReadCost

#: What finding the filters of a file costs: its footer, which is read at the same time as those of many others.
FIND_BYTES = OPEN_BYTES // 4
#: What asking for one key costs, as bytes that could be read in that time.
ASK_BYTES = 5
#: Files that are looked at first and next, to see what the filters of the others tell.
FIRST_FILES, NEXT_FILES = 2, 14
#: Filters that files pass so often without any key are of no use.
PASSED_ANYWAY = 0.9
#: Reading so little takes no longer than finding out whether it could be left out.
LITTLE_BYTES = 4 * OPEN_BYTES


def pass_rate(rate: float, keys: int) -> float:
    """How often a file without any of ``keys`` passes filters that say yes in vain at ``rate`` for each of them."""
    return 1.0 if rate >= 1 else -math.expm1(keys * math.log1p(-rate))


@dataclass(frozen=True)
class FilterCost:
    """The cost of asking filters: files whose footers are read, bytes of filters, and how often a key is looked up."""

    files: int = 0
    bytes: int = 0
    asked: int = 0

    @property
    def weight(self) -> int:
        """All of it as bytes."""
        return self.files * FIND_BYTES + self.bytes + self.asked * ASK_BYTES

    def __add__(self, other: FilterCost) -> FilterCost:
        """The cost of both."""
        return FilterCost(self.files + other.files, self.bytes + other.bytes, self.asked + other.asked)

    def __str__(self) -> str:
        """For explain and for messages."""
        return f"{self.bytes:,} bytes in {self.files:,} files"


NO_COST = FilterCost()


def is_little(candidates: ReadCost) -> bool:
    """Return whether reading the candidates takes no longer than finding out what their filters say."""
    return candidates.weight <= LITTLE_BYTES


def may_pay(cost: FilterCost, saves: ReadCost, dropped: float = 1.0) -> bool:
    """Return whether asking filters is worth it when the part ``dropped`` of what it may save is saved."""
    return cost.weight <= WORTHWHILE_PART * dropped * saves.weight


def errs_too_often(passes: Sequence[float]) -> bool:
    """Return whether files without any key pass their filters nearly always, however many were looked at."""
    return bool(passes) and min(passes) >= PASSED_ANYWAY

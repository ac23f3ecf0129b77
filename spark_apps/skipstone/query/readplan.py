"""What a planned read is: options, the files, row groups and rows to read, and what was said of each index.

Made by the planner; ``read``, explain and the Spark plan rewrite take it. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from skipstone_core.contract.reports import MAX_LISTED_SEGMENTS
from skipstone_core.indexing.filters import FilterCost
from skipstone_core.indexing.hints import NO_HINT, IndexHint
from skipstone_core.indexing.use import PAGE_ROWS, USUAL_LIMITS, CostLimits, NotUsed, ReadCost
from skipstone_core.language.predicates import Predicate

from skipstone.caches import CacheCounts
from skipstone.indexes.asking.answers import IndexAnswer
from skipstone.indexes.found import IndexHeads
from skipstone.tables.filesets import FileSet


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read. ``snapshot_id`` None: the current snapshot. ``index_namespace``: where index tables are, when not
    beside the table. ``by_position`` False: the reader takes whole row groups, so few hits in all of them are no gain;
    ``whole_files``: it takes nothing less than files; ``most_rows``: how many single rows it takes at most, None: any
    number. ``reads``: the columns that are read when they are known already, whoever reads them; None: all. ``heads``:
    what is known of the indexes of the catalog; None: the catalog is asked. ``limits``: by which it is judged what pays
    off. ``hint``: which indexes are used whatever they cost, if the table has one of them.
    """

    snapshot_id: int | None = None
    index_namespace: str | None = None
    use_indexes: bool = True
    by_position: bool = True
    whole_files: bool = False
    most_rows: int | None = None
    reads: tuple[str, ...] | None = None
    heads: IndexHeads | None = None
    limits: CostLimits = USUAL_LIMITS
    hint: IndexHint = NO_HINT


@dataclass(frozen=True)
class Funnel:
    """How many files were left after each stage."""

    total: int
    min_max: int
    read: int


@dataclass(frozen=True)
class IndexUse:
    """One index of the table: how much it covers, whether it was used, and if not, why (code and sentence).

    ``cost``: what was read of an index that was used, or is by the one that answers. ``alone``: what a read by this
    index alone costs at least, as far as it was weighed: the index, and the files that it does not cover.
    """

    name: str
    segments: int
    missing_segments: tuple[int, ...]
    used: bool
    reason: str
    is_broken: bool = False
    code: NotUsed | None = None
    cost: ReadCost | None = None
    alone: ReadCost | None = None

    def text(self) -> str:
        """One line for explain."""
        synced = self.segments - len(self.missing_segments)
        lag = ", ".join(str(segment) for segment in self.missing_segments[:MAX_LISTED_SEGMENTS])
        verb = f"used, reading {self.cost}" if self.used else f"not used: {self.code}, {self.reason}"
        return f"index {self.name}: {verb}; {synced}/{self.segments} segments" + (f", missing {lag}" if lag else "")


@dataclass(frozen=True)
class FilterUse:
    """The use of bloom filters: files that were asked, files that were left out, what was read, and why not more."""

    asked: int
    dropped: int
    cost: FilterCost
    code: NotUsed | None = None
    reason: str = ""

    def text(self) -> str:
        """One line for explain."""
        if self.code is not None:
            return f"bloom filters: not used: {self.code}, {self.reason}"
        return f"bloom filters: {self.dropped} of {self.asked} files left out, reading {self.cost}"


def _weight(cost: ReadCost) -> str:
    return f"{cost.weight:,} ({cost})"


@dataclass(frozen=True, eq=False)
class FileCosts:
    """What reads without an index cost. ``sizes``: bytes of the columns in each file; ``whole``: of all files,
    ``min_max``: of those that are left after min/max. ``is_forced``: whether indexes are used whatever they cost.
    """

    sizes: npt.NDArray[np.int64]
    whole: ReadCost
    min_max: ReadCost
    is_forced: bool = False


@dataclass(frozen=True)
class ReadPlan:
    """The files to read, ascending; ``row_groups`` by ordinal, files that it does not name are read whole.

    ``positions``: of files with few hits, the rows that may match, ascending. ``answer``: files whose rows an index
    holds; all of them are among ``ordinals``, so a reader that cannot take answers is right without. ``no_index``: why
    no index was considered at all. ``filters``: what bloom filters did, when they were considered; ``filtered``: files
    whose row groups they told, not an index. ``at_least``: so many rows match, or more, as far as an index tells.
    ``unknown``: names of a hint that no index has. ``costs``: of the other ways to read.
    """

    files: FileSet
    predicate: Predicate | None
    ordinals: tuple[int, ...]
    row_groups: dict[int, tuple[int, ...]]
    funnel: Funnel
    indexes: tuple[IndexUse, ...]
    positions: Mapping[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    answer: IndexAnswer | None = None
    no_index: NotUsed | None = None
    caches: tuple[CacheCounts, ...] = ()
    filters: FilterUse | None = None
    filtered: frozenset[int] = frozenset()
    at_least: int = 0
    unknown: tuple[str, ...] = ()
    costs: FileCosts | None = None

    @property
    def answered(self) -> frozenset[int]:
        """The files whose rows the answer holds."""
        return frozenset(self.answer.ordinals.tolist()) if self.answer is not None else frozenset()

    def text(self, *, is_followed: bool = True) -> str:
        """The plan for people. ``is_followed``: whether it is read so, and not as Spark reads it."""
        condition = self.predicate.text if self.predicate else "everything"
        counts = f"files: {self.funnel.total} total, {self.funnel.min_max} after min/max, {self.funnel.read} read"
        caches = "caches: " + "; ".join(counts.text() for counts in self.caches)
        uses = (use.text() for use in self.indexes)
        costs = self._compared(is_followed=is_followed)
        return "\n".join([f"read {condition}", counts, *self._how(), *uses, *costs, caches])

    def part_of(self, ordinal: int) -> float:
        """The part of a file that is decoded: pages with hits, or row groups with hits."""
        if ordinal in self.positions:
            records = int(self.files.files["records"][ordinal].as_py())
            return min(1.0, len(self.positions[ordinal]) * PAGE_ROWS / max(1, records))
        if ordinal in self.row_groups:
            return min(1.0, len(self.row_groups[ordinal]) / max(1, int(self.files.row_group_counts[ordinal])))
        return 1.0

    def _compared(self, *, is_followed: bool) -> list[str]:
        """The cost of the plan and of the other ways to read, a line each, in the units of the rules of cost."""
        if self.costs is None or not any(use.alone for use in self.indexes):
            return []
        used = [use for use in self.indexes if use.used]
        files = [ordinal for ordinal in self.ordinals if ordinal not in self.answered]
        rest = ReadCost(len(files), int(sum(self.costs.sizes[ordinal] * self.part_of(ordinal) for ordinal in files)))
        total = sum((use.cost for use in used if use.cost), rest)
        chosen = f", chosen: {self._why(total, self.costs)}" if is_followed else ""
        lines = [f"cost of {' and '.join(use.name for use in used)}: {_weight(total)}{chosen}"] if used else []
        lines += [
            f"cost of {use.name} alone: at least {_weight(use.alone)}"
            for use in self.indexes
            if use.alone is not None and used != [use]
        ]
        chosen = ", chosen: no index pays off" if is_followed and not used else ""
        return [*lines, f"cost of min/max alone: {_weight(self.costs.min_max)}{chosen}"]

    @staticmethod
    def _why(cost: ReadCost, costs: FileCosts) -> str:
        """Why indexes are used that make the plan cost ``cost``."""
        if costs.is_forced:
            return "a hint names it"
        return "it pays off" if cost.weight <= costs.min_max.weight else "an index this small is always read"

    def _how(self) -> list[str]:
        lines = []
        if self.answer is not None:
            lines.append(f"from the index alone: {len(self.answer.ordinals)} files, by {self.answer.name}")
        if self.positions:
            rows = sum(len(positions) for positions in self.positions.values())
            lines.append(f"by position: {rows} rows in {len(self.positions)} files")
        if self.filters is not None:
            lines.append(self.filters.text())
        if self.unknown:
            lines.append(f"hint: the table has no index {' or '.join(self.unknown)}")
        if self.no_index is not None:
            lines.append(f"no index: {self.no_index}, {self.no_index.sentence}")
        return lines

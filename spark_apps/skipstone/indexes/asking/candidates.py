"""The files that may match by their bounds, weighed: what reading some of them costs, and whether hits narrow them.

Used by lookup and the query planner. Must not read anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from skipstone_core.indexing.use import ReadCost, are_few, is_narrow

from skipstone.indexes.asking.hits import IndexHits

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WeighedFiles:
    """One element per file of the FileSet: whether it may match, bytes, rows, row groups (0: not known).

    ``by_position``: whether the reader can take single rows.
    """

    mask: npt.NDArray[np.bool_]
    sizes: Int64s
    records: Int64s
    row_groups: Int64s
    by_position: bool = True

    def cost(self, among: npt.NDArray[np.bool_]) -> ReadCost:
        """What reading the candidates among some files costs."""
        chosen = self.mask & among
        return ReadCost(int(chosen.sum()), int(self.sizes[chosen].sum()))

    def without(self, ordinals: Int64s) -> WeighedFiles:
        """The others."""
        mask = self.mask.copy()
        mask[ordinals] = False
        return replace(self, mask=mask)

    def hit_cost(self, hits: IndexHits) -> ReadCost:
        """What reading the row groups with hits costs; files of unknown row groups count whole."""
        ordinals, groups = np.unique(hits.ordinals[self.mask[hits.ordinals]], return_counts=True)
        part = np.minimum(1.0, groups / np.maximum(1, self.row_groups[ordinals]))
        return ReadCost(len(ordinals), int((self.sizes[ordinals] * part).sum()))

    def are_narrowed_by(self, hits: IndexHits) -> bool:
        """Whether reading the hits, or by position when they are few, is less than reading what is covered."""
        covered = self.mask & hits.covered
        if hits.is_empty or is_narrow(self.hit_cost(hits).bytes, int(self.sizes[covered].sum())):
            return True
        return (
            self.by_position
            and hits.rows is not None
            and are_few(len(hits.rows.keys), int(self.records[covered].sum()))
        )

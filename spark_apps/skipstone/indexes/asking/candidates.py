"""The files that may match by their bounds, weighed: what reading some of them costs, and whether hits narrow them.

Used by lookup and the query planner. Must not read anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from skipstone_core.indexing.use import (
    PAGE_ROWS,
    SAMPLED_PART,
    USUAL_LIMITS,
    CostLimits,
    ReadCost,
    Sampled,
    are_few,
    is_driver_faster,
    is_narrow,
    is_worth_a_job,
    narrow_part,
)

from skipstone.indexes.asking.hits import POSITION_BITS, IndexHits
from skipstone.parallel import CORES

Int64s = npt.NDArray[np.int64]
_POSITION = (1 << POSITION_BITS) - 1


@dataclass(frozen=True)
class WeighedFiles:
    """One element per file of the FileSet: whether it may match, bytes that are read of it, rows, row groups (0: not
    known).

    ``by_position``: whether the reader can take single rows; ``most_rows``: how many at most, None: any number.
    ``page_rows``: rows in a page of a file, of which no part is decoded alone. ``whole_files``: the reader takes
    nothing less than a file; each counts as one row group then. ``limits``: by which it is judged what pays off.
    """

    mask: npt.NDArray[np.bool_]
    sizes: Int64s
    records: Int64s
    row_groups: Int64s
    by_position: bool = True
    most_rows: int | None = None
    page_rows: int = PAGE_ROWS
    whole_files: bool = False
    limits: CostLimits = USUAL_LIMITS

    def cost(self, among: npt.NDArray[np.bool_]) -> ReadCost:
        """Return the cost of reading the candidates among some files."""
        chosen = self.mask & among
        return ReadCost(int(chosen.sum()), int(self.sizes[chosen].sum()))

    def without(self, ordinals: Int64s) -> WeighedFiles:
        """The others."""
        mask = self.mask.copy()
        mask[ordinals] = False
        return replace(self, mask=mask)

    def hit_cost(self, hits: IndexHits) -> ReadCost:
        """Return the cost of reading the row groups with hits; files of unknown row groups count whole."""
        ordinals, groups = np.unique(hits.ordinals[self.mask[hits.ordinals]], return_counts=True)
        part = np.minimum(1.0, groups / np.maximum(1, self.row_groups[ordinals]))
        return ReadCost(len(ordinals), int((self.sizes[ordinals] * part).sum()))

    def are_narrowed_by(self, hits: IndexHits, weighed: int | None = None) -> bool:
        """Return whether reading the hits, by position in files with few, takes less than reading all covered files.

        ``weighed``: bytes of covered files by which it is judged what is left out; None: all that ``hits`` cover.
        """
        covered = int(self.sizes[self.mask & hits.covered].sum())
        judged = covered if weighed is None else weighed
        return hits.is_empty or is_narrow(judged - (covered - self._read_whole(hits)), judged, self.limits)

    def are_narrowed_so_far(self, hits: IndexHits) -> bool:
        """Return whether ``hits``, maybe not all yet, narrow what is covered: too many are not read row by row."""
        too_many = self.most_rows is not None and len(hits.rows.keys) > self.most_rows
        return (replace(self, by_position=False) if too_many else self).are_narrowed_by(hits)

    def will_be_everywhere(self, samples: tuple[IndexHits, IndexHits], times: float) -> bool:
        """Return whether ``times`` as many keys as those of both samples will hit nearly all covered pages.

        Also if they will hit nearly all files, of which tasks do not decode single pages, and too many pages for the
        driver. False if so little is covered that the driver reads it at once.
        """
        covered = self.mask & samples[0].covered
        whole = self.cost(covered)
        if self.limits.is_forced or not is_worth_a_job(whole):
            return False
        count = int(np.maximum(1, -(-self.records[covered] // self.page_rows)).sum())
        pages = _expected_part(self._pages_of(samples[0]), self._pages_of(samples[1]), count, times)
        if pages > SAMPLED_PART or self.most_rows is None:
            return pages > SAMPLED_PART
        hit = [np.unique(hits.rows.ordinals[self.mask[hits.rows.ordinals]]) for hits in samples]
        files = _expected_part(hit[0], hit[1], whole.files, times)
        by_driver = ReadCost(int(files * whole.files), int(pages * whole.bytes))
        # tasks have as many cores as this process at least
        return files > narrow_part(self.limits) and not is_driver_faster(by_driver, whole, task_cores=CORES)

    def _pages_of(self, hits: IndexHits) -> Int64s:
        """The first row of each page with hits, sorted unique; a row group of too many hits counts as one page."""
        rows = hits.rows.keys[self.mask[hits.rows.ordinals]]
        return np.unique(rows - (rows & _POSITION) % self.page_rows)

    def _read_whole(self, hits: IndexHits) -> int:
        """Bytes of row groups with hits, in files in which these are not few."""
        if not self.by_position:
            return self.hit_cost(hits).bytes
        ordinals, counts = (column.tolist() for column in np.unique(hits.rows.ordinals, return_counts=True))
        few = [n for n, count in zip(ordinals, counts, strict=True) if are_few(count, int(self.records[n]))]
        return self.without(np.array(few, np.int64)).hit_cost(hits).bytes


def _expected_part(first: Int64s, second: Int64s, count: int, times: float) -> float:
    """The part of so many pages or files that will be hit; ``first``, ``second``: those that two samples hit."""
    both = len(np.intersect1d(first, second, assume_unique=True))
    return Sampled(len(first), len(second), both, count).expected_part(times)

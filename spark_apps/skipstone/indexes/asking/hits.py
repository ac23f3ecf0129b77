"""What indexes say of a condition: hits as arrays of row groups and rows, and how AND and OR combine them.

Made by lookup, read by the query planner. A file that is not covered is never without hits: nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

#: A location is a file's ordinal, then its row group in the low bits.
ROW_GROUP_BITS = 32
#: A row is a file's ordinal, then its position in the low bits.
POSITION_BITS = 40
#: More hits than these are remembered by row group only.
MAX_ROWS = 1 << 20


@dataclass(frozen=True)
class HitRows:
    """Single rows: ``keys`` sorted unique (ordinal << 40 | position) and the row group of each."""

    keys: Int64s
    groups: Int64s

    @property
    def locations(self) -> Int64s:
        """Their locations, sorted unique."""
        return np.unique(self.ordinals << ROW_GROUP_BITS | self.groups)

    @property
    def ordinals(self) -> Int64s:
        """The file of each."""
        return self.keys >> POSITION_BITS

    def where(self, chosen: npt.NDArray[np.bool_]) -> HitRows:
        """Some of them."""
        return HitRows(self.keys[chosen], self.groups[chosen])


@dataclass(frozen=True)
class IndexHits:
    """What indexes say of a condition, for one FileSet.

    ``covered``: one boolean per file. ``locations``: sorted unique (ordinal << 32 | row group), of covered files only.
    ``rows``: every single hit, None when they are too many or not known.
    """

    covered: npt.NDArray[np.bool_]
    locations: Int64s
    rows: HitRows | None = None

    @property
    def ordinals(self) -> Int64s:
        """Files with a hit, ascending, one per location."""
        return self.locations >> ROW_GROUP_BITS

    @property
    def is_empty(self) -> bool:
        """Whether there is no hit at all."""
        return len(self.locations) == 0

    @property
    def left(self) -> npt.NDArray[np.bool_]:
        """One boolean per file: whether it has a hit or is not covered."""
        mask = ~self.covered
        mask[self.ordinals] = True
        return mask


def split_by_file(keys: Int64s, bits: int) -> Iterator[tuple[int, Int64s]]:
    """Sorted locations or rows by file: its ordinal and what the low ``bits`` hold."""
    ordinals, first = np.unique(keys >> bits, return_index=True)
    parts = np.split(keys & ((1 << bits) - 1), first[1:])
    return zip(ordinals.tolist(), parts, strict=False)


def no_hits(covered: npt.NDArray[np.bool_]) -> IndexHits:
    """Covered files without any hit."""
    nothing = np.empty(0, np.int64)
    return IndexHits(covered, nothing, HitRows(nothing, nothing))


class HitCollector:
    """Collects the hits of one index."""

    def __init__(self, covered: npt.NDArray[np.bool_]) -> None:
        """``covered``: one boolean per file."""
        self._covered = covered
        self._locations: list[Int64s] = []
        self._rows: list[HitRows] | None = []
        self.count = 0

    def add(self, ordinals: Int64s, groups: Int64s, positions: Int64s) -> None:
        """Take hits in no order; duplicates do no harm."""
        self.count += len(ordinals)
        if self._rows is not None and self.count > MAX_ROWS:
            self._locations.extend(rows.locations for rows in self._rows)
            self._rows = None
        if self._rows is None:
            self._locations.append(np.unique(ordinals << ROW_GROUP_BITS | groups))
        else:
            self._rows.append(HitRows(ordinals << POSITION_BITS | positions, groups))

    def hits(self) -> IndexHits:
        """All of them."""
        if self._rows is None:
            return IndexHits(self._covered, np.unique(np.concatenate(self._locations)))
        if not self._rows:
            return no_hits(self._covered)
        rows = _merged(self._rows)
        return IndexHits(self._covered, rows.locations, rows)


def both(a: IndexHits, b: IndexHits) -> IndexHits:
    """Hits of a conjunction: a file known to one side only follows that side."""
    covered = a.covered | b.covered
    if a.rows is not None and b.rows is not None:
        rows = _common_rows(a, a.rows, b, b.rows)
        return IndexHits(covered, rows.locations, rows)
    if a.rows is None and b.rows is not None:
        a, b = b, a
    only_a, only_b = a.locations[~b.covered[a.ordinals]], b.locations[~a.covered[b.ordinals]]
    common = np.intersect1d(a.locations, b.locations, assume_unique=True)
    locations = np.sort(np.concatenate([only_a, only_b, common]))
    if a.rows is None or len(only_b):
        return IndexHits(covered, locations)
    rows = a.rows.where(np.isin(a.rows.ordinals << ROW_GROUP_BITS | a.rows.groups, locations))
    return IndexHits(covered, rows.locations, rows)


def _common_rows(a: IndexHits, rows_a: HitRows, b: IndexHits, rows_b: HitRows) -> HitRows:
    only_a, only_b = rows_a.where(~b.covered[rows_a.ordinals]), rows_b.where(~a.covered[rows_b.ordinals])
    common = rows_a.where(np.isin(rows_a.keys, rows_b.keys, assume_unique=True))
    return _merged([only_a, only_b, common])


def either(a: IndexHits, b: IndexHits) -> IndexHits:
    """Hits of a disjunction: only files known to both sides are known."""
    covered = a.covered & b.covered
    locations = np.union1d(a.locations, b.locations)
    found = IndexHits(covered, locations[covered[locations >> ROW_GROUP_BITS]])
    if a.rows is None or b.rows is None:
        return found
    rows = _merged([a.rows, b.rows])
    return replace(found, rows=rows.where(covered[rows.ordinals]))


def _merged(parts: list[HitRows]) -> HitRows:
    keys, first = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
    return HitRows(keys, np.concatenate([part.groups for part in parts])[first])

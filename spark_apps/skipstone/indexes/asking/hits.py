"""What indexes say of a condition: hits as arrays of row groups and rows, and how AND and OR combine them.

Made by lookup, read by the query planner. A file that is not covered is never without hits: nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

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

    def where(self, chosen: Mask) -> HitRows:
        """Some of them."""
        return HitRows(self.keys[chosen], self.groups[chosen])


_NOTHING = np.empty(0, np.int64)
_NO_ROWS = HitRows(_NOTHING, _NOTHING)


@dataclass(frozen=True)
class IndexHits:
    """The hits of indexes for a condition, in one FileSet.

    ``covered``: one boolean per file. ``locations``: sorted unique (ordinal << 32 | row group), of covered files only.
    ``counted``: the covered files of which ``rows`` holds every single hit; of the others they are too many.
    """

    covered: Mask
    locations: Int64s
    counted: Mask
    rows: HitRows

    @property
    def ordinals(self) -> Int64s:
        """Files with a hit, ascending, one per location."""
        return self.locations >> ROW_GROUP_BITS

    @property
    def is_empty(self) -> bool:
        """Return whether there is no hit at all."""
        return len(self.locations) == 0

    @property
    def left(self) -> Mask:
        """One boolean per file: whether it has a hit or is not covered."""
        mask = ~self.covered
        mask[self.ordinals] = True
        return mask


def split_by_file(keys: Int64s, bits: int) -> Iterator[tuple[int, Int64s]]:
    """Sorted locations or rows by file: its ordinal and what the low ``bits`` hold."""
    ordinals, first = np.unique(keys >> bits, return_index=True)
    parts = np.split(keys & ((1 << bits) - 1), first[1:])
    return zip(ordinals.tolist(), parts, strict=False)


def no_hits(covered: Mask) -> IndexHits:
    """Covered files without any hit."""
    return counted_hits(covered, _NO_ROWS)


def counted_hits(covered: Mask, rows: HitRows) -> IndexHits:
    """Covered files of which all hits are known."""
    return IndexHits(covered, rows.locations, covered, rows)


class HitCollector:
    """Collects the hits of one index."""

    def __init__(self, covered: Mask) -> None:
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
            none = np.zeros_like(self._covered)
            return IndexHits(self._covered, np.unique(np.concatenate(self._locations)), none, _NO_ROWS)
        return counted_hits(self._covered, _merged(self._rows)) if self._rows else no_hits(self._covered)


def both(a: IndexHits, b: IndexHits) -> IndexHits:
    """Hits of a conjunction: a file known to one side only follows that side."""
    covered, counted = a.covered | b.covered, a.counted | b.counted
    rows = _merged([_rows_with(a, b), _rows_with(b, a)])
    only_a, only_b = a.locations[~b.covered[a.ordinals]], b.locations[~a.covered[b.ordinals]]
    common = np.intersect1d(a.locations, b.locations, assume_unique=True)
    locations = np.concatenate([only_a, only_b, common])
    uncounted = locations[~counted[locations >> ROW_GROUP_BITS]]
    return IndexHits(covered, np.union1d(uncounted, rows.locations), counted, rows)


def _rows_with(hits: IndexHits, other: IndexHits) -> HitRows:
    """The rows of ``hits`` that ``other`` does not leave out, by its row groups where it does not know its rows."""
    ordinals, rows = hits.rows.ordinals, hits.rows
    by_group = np.isin(ordinals << ROW_GROUP_BITS | rows.groups, other.locations)
    by_row = np.isin(rows.keys, other.rows.keys, assume_unique=True)
    return rows.where(~other.covered[ordinals] | np.where(other.counted[ordinals], by_row, by_group))


def either(a: IndexHits, b: IndexHits) -> IndexHits:
    """Hits of a disjunction: only files known to both sides are known."""
    covered, counted = a.covered & b.covered, a.counted & b.counted
    locations = np.union1d(a.locations, b.locations)
    rows = _merged([a.rows, b.rows])
    return IndexHits(
        covered, locations[covered[locations >> ROW_GROUP_BITS]], counted, rows.where(counted[rows.ordinals])
    )


def _merged(parts: list[HitRows]) -> HitRows:
    keys, first = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
    return HitRows(keys, np.concatenate([part.groups for part in parts])[first])

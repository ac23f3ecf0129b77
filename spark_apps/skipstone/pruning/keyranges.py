"""Key-range search by arrays: the slice of the sorted source keys that lies within each file's bounds.

The array form of the core's scalar definition, for a million files and a million keys on one core.
Called by the funnel, by tasks that search one source slice, and by the commit guard. "May hold", never "holds".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.kernels.canonical import Int64s, null_rows
from skipstone.kernels.sortedkeys import SortedKeys

Mask = npt.NDArray[np.bool_]
#: How many (file, key) pairs of composite keys are looked at one by one before a file simply stays a candidate.
EXACT_PAIRS = 20_000_000
_CHUNK_PAIRS = 2_000_000
#: From how many files it is told which key column is the most selective.
SAMPLED_FILES = 10_000


@dataclass(frozen=True)
class FileRanges:
    """Bounds of one key column, one element per file, canonical; null is unknown. ``empty``: files with nulls only."""

    lower: pa.Array
    upper: pa.Array
    empty: Mask

    @property
    def unknown(self) -> Mask:
        """Files whose bounds cannot be trusted: one is missing or they are inverted."""
        missing = null_rows([self.lower, self.upper])
        inverted = pc.fill_null(pc.greater(self.lower, self.upper), fill_value=False)
        return np.asarray(missing | inverted.to_numpy(zero_copy_only=False), dtype=bool)

    def take(self, files: Int64s) -> FileRanges:
        """Those of some files, in the order given."""
        rows = pa.array(files)
        return FileRanges(self.lower.take(rows), self.upper.take(rows), self.empty[files])


@dataclass(frozen=True)
class KeyRangeHits:
    """Candidate files, ascending, each with its half-open slice of the source rows that were searched."""

    files: Int64s
    start: Int64s
    stop: Int64s


@dataclass(frozen=True)
class _Column:
    """Slices of one column's sorted keys per file; ``order``: source row of each sorted key, None when the same."""

    rows: int
    order: Int64s | None
    start: Int64s
    stop: Int64s


def find_candidates(ranges: Sequence[FileRanges], keys: Sequence[pa.Array]) -> KeyRangeHits:
    """Files that may hold one of the keys: some source row lies within the file's bounds in every key column.

    ``ranges`` and ``keys`` run in parallel, one per key column; ``keys`` are canonical, without nulls, and the rows
    are sorted by the first column. Slices are over these rows.
    """
    columns = [_search(ranges[0], keys[0], is_sorted=True)]
    columns += [_search(*pair, is_sorted=False) for pair in zip(ranges[1:], keys[1:], strict=True)]
    alive = np.logical_and.reduce([column.start < column.stop for column in columns])
    if len(columns) > 1:
        alive[alive] = _holds_row(columns, np.flatnonzero(alive))
    files = np.flatnonzero(alive)
    return KeyRangeHits(files, columns[0].start[files], columns[0].stop[files])


def order_keys(ranges: Sequence[FileRanges]) -> tuple[int, ...]:
    """Key columns from the most to the least selective: by how many files' ranges a file's range overlaps."""
    if len(ranges) == 1:
        return (0,)
    count = len(ranges[0].empty)
    sample = np.linspace(0, count - 1, min(count, SAMPLED_FILES), dtype=np.int64)
    overlaps = [_mean_overlap(key_ranges.take(sample)) for key_ranges in ranges]
    return tuple(sorted(range(len(ranges)), key=lambda i: (overlaps[i], i)))


def _search(ranges: FileRanges, keys: pa.Array, *, is_sorted: bool) -> _Column:
    order = None
    if not is_sorted:
        order = np.asarray(pc.sort_indices(keys).to_numpy(), dtype=np.int64)
        keys = keys.take(pa.array(order))
    start, stop = SortedKeys(keys).slices(ranges.lower, ranges.upper)
    unknown = ranges.unknown
    start[unknown], stop[unknown] = 0, len(keys)
    stop[ranges.empty] = start[ranges.empty]
    return _Column(len(keys), order, start, stop)


def _holds_row(columns: Sequence[_Column], files: Int64s) -> Mask:
    """Of ``files``, which have one source row within all their slices. Beyond the budget: all of them."""
    lengths = np.stack([column.stop[files] - column.start[files] for column in columns])
    best, length = lengths.argmin(axis=0), lengths.min(axis=0)
    holds = np.ones(len(files), dtype=bool)
    cheap_first = np.argsort(length, kind="stable")
    affordable = cheap_first[np.cumsum(length[cheap_first]) <= EXACT_PAIRS]
    ranks = [_ranks(column) for column in columns]
    for number, column in enumerate(columns):
        mine = affordable[best[affordable] == number]
        for part in _chunks(mine, length[mine]):
            holds[part] = _check(columns, ranks, column, files[part])
    return holds


def _check(columns: Sequence[_Column], ranks: Sequence[Int64s], by: _Column, files: Int64s) -> Mask:
    """Look at every source row in the files' slices of column ``by``."""
    lengths = by.stop[files] - by.start[files]
    ends = np.cumsum(lengths)
    sorted_at = np.arange(ends[-1]) + np.repeat(by.start[files] - (ends - lengths), lengths)
    rows = sorted_at if by.order is None else by.order[sorted_at]
    inside = np.ones(len(rows), dtype=bool)
    for column, rank in zip(columns, ranks, strict=True):
        if column is not by:
            place = rank[rows]
            inside &= (place >= np.repeat(column.start[files], lengths)) & (
                place < np.repeat(column.stop[files], lengths)
            )
    return np.logical_or.reduceat(inside, ends - lengths)


def _ranks(column: _Column) -> Int64s:
    """The sorted position of each source row's key."""
    if column.order is None:
        return np.arange(column.rows, dtype=np.int64)
    ranks = np.empty(len(column.order), dtype=np.int64)
    ranks[column.order] = np.arange(len(column.order))
    return ranks


def _chunks(files: Int64s, lengths: Int64s) -> list[Int64s]:
    """Cut ``files`` so that each part looks at a bounded number of rows."""
    if not len(files):
        return []
    part = np.cumsum(lengths) // _CHUNK_PAIRS
    return np.split(files, np.flatnonzero(np.diff(part)) + 1)


def _mean_overlap(ranges: FileRanges) -> float:
    known = ranges.take(np.flatnonzero(~ranges.unknown & ~ranges.empty))
    if not len(known.empty):
        return float("inf")
    lower, upper = (SortedKeys(bounds.take(pc.sort_indices(bounds))) for bounds in (known.lower, known.upper))
    begun = lower.slices(known.upper, known.upper)[1].sum()
    ended = upper.slices(known.lower, known.lower)[0].sum()
    return float((begun - ended) / len(known.empty) + ranges.unknown.sum())

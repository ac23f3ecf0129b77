"""The prune funnel: stages that turn candidate files into fewer candidate files, with counts.

Called by merge runs. A stage may drop a file only when it can prove that no source key is in it; a stage that does
not pay is left out and says why. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from skipstone_core.merges import BoundKey, FunnelStage

from skipstone.pruning.keyranges import FileRanges, Hits, find_candidates
from skipstone.rewrite.canonical import Int64s
from skipstone.rewrite.changes import ChangeSlice, SlicePart, read_keys

NULL_KEYS = "nullKeys"
KEY_RANGES = "keyRanges"
EXACT_JOIN = "exactJoin"


@dataclass(frozen=True)
class Candidates:
    """Candidate files with what of the source each may hold: one row per file and source slice, ordered by file.

    "Not pruned" is the explicit full list (``every_file``), never an empty one.
    """

    files: Int64s
    slices: Int64s
    start: Int64s
    stop: Int64s

    @property
    def distinct(self) -> Int64s:
        """The files, each once, ascending."""
        return np.unique(self.files)

    def parts(self) -> dict[int, tuple[SlicePart, ...]]:
        """What of the source each file needs."""
        found: dict[int, list[SlicePart]] = {}
        for file, number, start, stop in zip(*(c.tolist() for c in self._columns()), strict=True):
            found.setdefault(file, []).append(SlicePart(number, start, stop))
        return {file: tuple(parts) for file, parts in found.items()}

    def _columns(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        return self.files, self.slices, self.start, self.stop


class Stage(Protocol):
    """One stage. ``name`` appears in report, status and snapshot summary."""

    @property
    def name(self) -> str:
        """What the stage is called."""

    def prune(self, candidates: Candidates) -> Candidates:
        """A subset of ``candidates`` (of its rows, or of the source slices in them) that loses no match."""


def every_file(count: int, slices: Sequence[ChangeSlice]) -> Candidates:
    """All of ``count`` files with all keyed rows of all slices."""
    keyed = [(number, one.keyed) for number, one in enumerate(slices) if one.keyed]
    files = np.repeat(np.arange(count, dtype=np.int64), len(keyed))
    numbers = np.tile(np.array([number for number, _ in keyed], dtype=np.int64), count)
    stops = np.tile(np.array([rows for _, rows in keyed], dtype=np.int64), count)
    return Candidates(files, numbers, np.zeros(len(files), dtype=np.int64), stops)


def run_funnel(
    stages: Sequence[Stage], count: int, slices: Sequence[ChangeSlice]
) -> tuple[Candidates, list[FunnelStage]]:
    """Run ``stages`` over all of ``count`` files. Source rows with a null key are gone from the start."""
    candidates = every_file(count, slices)
    counts = [FunnelStage(name=NULL_KEYS, files_in=count, files_out=len(candidates.distinct))]
    for stage in stages:
        before = counts[-1].files_out
        candidates = stage.prune(candidates)
        counts.append(FunnelStage(name=stage.name, files_in=before, files_out=len(candidates.distinct)))
    return candidates, counts


#: Searches slices for candidates, in the driver or in executors: one Hits per slice, in order.
SliceSearch = Callable[[Sequence[FileRanges], Sequence[ChangeSlice], Sequence[BoundKey]], list[Hits]]


@dataclass(frozen=True)
class KeyRangeStage:
    """Keeps files whose bounds hold a source key in every key column, each with its slice of the source.

    ``ranges`` and ``keys`` run in parallel, in the order by which slices are sorted.
    """

    ranges: Sequence[FileRanges]
    keys: Sequence[BoundKey]
    slices: Sequence[ChangeSlice]
    search: SliceSearch

    @property
    def name(self) -> str:
        """What the stage is called."""
        return KEY_RANGES

    def prune(self, candidates: Candidates) -> Candidates:
        """Drop what no key can touch and narrow the slices of the rest."""
        hits = self.search(self.ranges, self.slices, self.keys)
        numbers = [np.full(len(one.files), number, dtype=np.int64) for number, one in enumerate(hits)]
        found = Candidates(
            np.concatenate([_NOTHING, *(one.files for one in hits)]),
            np.concatenate([_NOTHING, *numbers]),
            np.concatenate([_NOTHING, *(one.start for one in hits)]),
            np.concatenate([_NOTHING, *(one.stop for one in hits)]),
        )
        return _ordered(found, np.isin(found.files, candidates.distinct))


_NOTHING = np.empty(0, dtype=np.int64)


def search_here(ranges: Sequence[FileRanges], slices: Sequence[ChangeSlice], keys: Sequence[BoundKey]) -> list[Hits]:
    """Search slice by slice in this process; memory is bounded by one slice's keys."""
    return [search_slice(ranges, one, keys) for one in slices]


def search_slice(ranges: Sequence[FileRanges], one: ChangeSlice, keys: Sequence[BoundKey]) -> Hits:
    """Candidates for the keys of one slice."""
    if not one.keyed:
        return Hits(_NOTHING, _NOTHING, _NOTHING)
    columns: list[pa.Array] = read_keys(one, keys)
    return find_candidates(ranges, columns)


def _ordered(candidates: Candidates, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Candidates:
    order = np.lexsort((candidates.slices, candidates.files))
    order = order[kept[order]]
    return Candidates(
        candidates.files[order], candidates.slices[order], candidates.start[order], candidates.stop[order]
    )

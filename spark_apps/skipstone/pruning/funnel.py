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

from skipstone.pruning.keyranges import FileRanges, Hits, Mask, find_candidates
from skipstone.rewrite.canonical import Int64s
from skipstone.rewrite.changes import ChangeSlice, SlicePart, read_keys

NULL_KEYS = "nullKeys"
KEY_RANGES = "keyRanges"
EXACT_JOIN = "exactJoin"


@dataclass(frozen=True)
class Pieces:
    """Which source rows a file may hold: one row per file and source slice, ordered by file."""

    files: Int64s
    slices: Int64s
    start: Int64s
    stop: Int64s


@dataclass(frozen=True)
class Candidates:
    """Candidate files, each once, ascending, with what of the source each may hold.

    ``pieces`` None: every keyed row of every slice. "Not pruned" is the full list of files, never an empty one.
    """

    files: Int64s
    pieces: Pieces | None = None

    def parts(self, slices: Sequence[ChangeSlice]) -> dict[int, tuple[SlicePart, ...]]:
        """What of the source each file needs; nothing for files that no source row can match."""
        if self.pieces is None:
            whole = tuple(SlicePart(number, 0, one.keyed) for number, one in enumerate(slices) if one.keyed)
            return dict.fromkeys(self.files.tolist(), whole)
        one, found = self.pieces, dict[int, list[SlicePart]]()
        columns = (column.tolist() for column in (one.files, one.slices, one.start, one.stop))
        for file, number, start, stop in zip(*columns, strict=True):
            found.setdefault(file, []).append(SlicePart(number, start, stop))
        return {file: tuple(found.get(file, ())) for file in self.files.tolist()}


class Stage(Protocol):
    """One stage. ``name`` appears in report, status and snapshot summary."""

    @property
    def name(self) -> str:
        """What the stage is called."""

    def prune(self, candidates: Candidates) -> Candidates:
        """A subset of ``candidates`` (of files, or of the source rows they may hold) that loses no match."""


def run_funnel(
    stages: Sequence[Stage], count: int, slices: Sequence[ChangeSlice]
) -> tuple[Candidates, list[FunnelStage]]:
    """Run ``stages`` over all of ``count`` files. Source rows with a null key are gone from the start."""
    keyed = any(one.keyed for one in slices)
    candidates = Candidates(np.arange(count if keyed else 0, dtype=np.int64))
    counts = [FunnelStage(name=NULL_KEYS, files_in=count, files_out=len(candidates.files))]
    for stage in stages:
        before = len(candidates.files)
        candidates = stage.prune(candidates)
        counts.append(FunnelStage(name=stage.name, files_in=before, files_out=len(candidates.files)))
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
        found = Pieces(
            np.concatenate([_NOTHING, *(one.files for one in hits)]),
            np.concatenate([_NOTHING, *numbers]),
            np.concatenate([_NOTHING, *(one.start for one in hits)]),
            np.concatenate([_NOTHING, *(one.stop for one in hits)]),
        )
        kept = _ordered(found, np.isin(found.files, candidates.files))
        return Candidates(np.unique(kept.files), kept)


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


def _ordered(pieces: Pieces, kept: Mask) -> Pieces:
    order = np.lexsort((pieces.slices, pieces.files))
    order = order[kept[order]]
    return Pieces(pieces.files[order], pieces.slices[order], pieces.start[order], pieces.stop[order])

"""Stages that judge files by their column statistics: key ranges, and the condition on target rows.

Called by merge runs and the commit guard. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from skipstone_core.funnel import LeftOut, PruneStage
from skipstone_core.language.predicates import Predicate
from skipstone_core.merging.merges import BoundKey

from skipstone.indexes.keytests import Maybe, is_tested_whole, plan_test
from skipstone.indexes.ranges import bounds_columns, files_that_may_match
from skipstone.kernels.canonical import canonical
from skipstone.kernels.changes import ChangeSlice, read_keys
from skipstone.pruning.funnel import Candidates, Narrowed, Pieces, SliceRunner, StageRefusal, run_here
from skipstone.pruning.keyfields import key_field
from skipstone.pruning.keyranges import FileRanges, KeyRangeHits, find_candidates
from skipstone.tables.filesets import FileSet

_NOTHING = np.empty(0, dtype=np.int64)


def file_ranges(files: FileSet, keys: Sequence[BoundKey]) -> list[FileRanges]:
    """Canonical bounds of every file for each of ``keys``, in their order."""
    return [_ranges(files, key) for key in keys]


def _ranges(files: FileSet, key: BoundKey) -> FileRanges:
    bounds = files.bounds(key_field(files.schema, key).field_id)
    only_nulls = pc.fill_null(pc.equal(bounds.null_count, bounds.value_count), fill_value=False)
    return FileRanges(
        canonical(bounds.lower, key.type),
        canonical(bounds.upper, key.type),
        np.asarray(only_nulls.to_numpy(zero_copy_only=False), dtype=bool),
    )


@dataclass(frozen=True)
class SliceSearch:
    """Searches one slice for the files that may hold a key of it; ``ranges`` and ``keys`` run in parallel."""

    ranges: Sequence[FileRanges]
    keys: Sequence[BoundKey]

    def __call__(self, change_slice: ChangeSlice) -> KeyRangeHits:
        """Files are numbered as in ``ranges``."""
        if not change_slice.keyed:
            return KeyRangeHits(_NOTHING, _NOTHING, _NOTHING)
        return find_candidates(self.ranges, read_keys(change_slice, self.keys))


@dataclass(frozen=True)
class KeyRangeStage:
    """Keeps files whose bounds hold a source key in every key column, each with its slice of the source.

    ``ranges`` gives the bounds of all files for each of ``keys``; keys come in the order by which slices are sorted.
    It pays whenever some file has bounds: it also bounds what of the source a task has to hold.
    """

    ranges: Callable[[], Sequence[FileRanges]]
    keys: Sequence[BoundKey]
    slices: Sequence[ChangeSlice]
    run: SliceRunner = run_here

    @property
    def name(self) -> PruneStage:
        """Return the name of the stage."""
        return PruneStage.KEY_RANGES

    def prune(self, candidates: Candidates) -> Candidates | StageRefusal:
        """Drop what no key can touch and narrow the slices of the rest."""
        ranges = [_of_candidates(key_ranges, candidates) for key_ranges in self.ranges()]
        if all((key_ranges.unknown & ~key_ranges.empty).all() for key_ranges in ranges):
            return StageRefusal(LeftOut.BOUNDS_UNKNOWN, "no candidate file has bounds of a key column")
        hits = self.run(SliceSearch(ranges, self.keys), self.slices)
        pieces = _pieces(hits, candidates)
        return Candidates(np.unique(pieces.files), pieces)


def _of_candidates(ranges: FileRanges, candidates: Candidates) -> FileRanges:
    return ranges if len(candidates.files) == len(ranges.empty) else ranges.take(candidates.files)


def _pieces(hits: Sequence[KeyRangeHits], candidates: Candidates) -> Pieces:
    """Hits of all slices by file; a file's slices keep their order."""
    numbers = [np.full(len(hit.files), number, dtype=np.int64) for number, hit in enumerate(hits)]
    pieces = Pieces(
        candidates.files[np.concatenate([_NOTHING, *(hit.files for hit in hits)])],
        np.concatenate([_NOTHING, *numbers]),
        np.concatenate([_NOTHING, *(hit.start for hit in hits)]),
        np.concatenate([_NOTHING, *(hit.stop for hit in hits)]),
    )
    if len(hits) < 2:
        return pieces
    order = np.argsort(pieces.files, kind="stable")
    return Pieces(pieces.files[order], pieces.slices[order], pieces.start[order], pieces.stop[order])


@dataclass(frozen=True)
class TargetWhereStage:
    """Keeps files whose bounds can satisfy the condition on target rows. It reads nothing, so it always pays."""

    where: Predicate | None
    files: FileSet

    @property
    def name(self) -> PruneStage:
        """Return the name of the stage."""
        return PruneStage.TARGET_WHERE

    def prune(self, candidates: Candidates) -> Candidates | Narrowed | StageRefusal:
        """Drop files in which no row can satisfy the condition."""
        if self.where is None:
            return StageRefusal(LeftOut.NO_TARGET_WHERE)
        test = plan_test(self.where.root, self.files.schema, side="target")
        if isinstance(test, Maybe):
            return StageRefusal(
                LeftOut.BOUNDS_UNKNOWN, f"bounds cannot judge {self.where.shown}, each row is judged by it"
            )
        mask = files_that_may_match(test, self.files, bounds_columns(self.files.schema))
        left = candidates.among(np.flatnonzero(mask))
        if is_tested_whole(self.where.root, self.files.schema, side="target"):
            return left
        return Narrowed(left, "bounds judge a part of it, and the rows of these files are judged by all of it")

"""The prune funnel: stages that turn candidate files into fewer candidate files, with counts.

Called by merge runs. A stage may drop a file only when it can prove that no row in it matches a source key; a stage
that does not pay is left out and says why. Must not read data files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from skipstone_core.funnel import NULL_KEYS, FunnelStage, LeftOut, PruneStage

from skipstone.kernels.canonical import Int64s
from skipstone.kernels.changes import ChangeSlice, SlicePart

Answer = TypeVar("Answer")


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

    def among(self, files: Int64s) -> Candidates:
        """Those that are in ``files``, too."""
        kept = self.files[np.isin(self.files, files)]
        if self.pieces is None:
            return Candidates(kept)
        mine = np.isin(self.pieces.files, kept)
        pieces = self.pieces
        return Candidates(kept, Pieces(pieces.files[mine], pieces.slices[mine], pieces.start[mine], pieces.stop[mine]))

    def parts(self, slices: Sequence[ChangeSlice]) -> dict[int, tuple[SlicePart, ...]]:
        """Return the parts of the source that each file needs; none for files that no source row can match."""
        if self.pieces is None:
            whole = tuple(
                SlicePart(number, 0, change_slice.keyed)
                for number, change_slice in enumerate(slices)
                if change_slice.keyed
            )
            return dict.fromkeys(self.files.tolist(), whole)
        pieces, by_file = self.pieces, dict[int, list[SlicePart]]()
        columns = (column.tolist() for column in (pieces.files, pieces.slices, pieces.start, pieces.stop))
        for file, number, start, stop in zip(*columns, strict=True):
            by_file.setdefault(file, []).append(SlicePart(number, start, stop))
        return {file: tuple(by_file.get(file, ())) for file in self.files.tolist()}


@dataclass(frozen=True)
class StageRefusal:
    """Why a stage does not run: a code, and a sentence without a full stop."""

    code: LeftOut
    message: str = ""


@dataclass(frozen=True)
class Narrowed:
    """Fewer candidates, with how a stage found them: a sentence without a full stop."""

    candidates: Candidates
    message: str


class Stage(Protocol):
    """One stage. ``name`` appears in report, status and snapshot summary, and in the spec to switch it off."""

    @property
    def name(self) -> PruneStage:
        """Return the name of the stage."""

    def prune(self, candidates: Candidates) -> Candidates | Narrowed | StageRefusal:
        """A subset of ``candidates`` (of files, or of the source rows they may hold) that loses no match.

        Or why it cannot find one, or not at a cost that pays.
        """


class SliceRunner(Protocol):
    """Runs a question over source slices, in this process or in executors; ``ask`` is picklable."""

    def __call__(self, ask: Callable[[ChangeSlice], Answer], slices: Sequence[ChangeSlice]) -> list[Answer]:
        """One answer per slice, in order."""


def run_here(ask: Callable[[ChangeSlice], Answer], slices: Sequence[ChangeSlice]) -> list[Answer]:
    """Slice by slice in this process; memory is bounded by one slice's keys."""
    return [ask(change_slice) for change_slice in slices]


def run_funnel(
    stages: Sequence[Stage], count: int, slices: Sequence[ChangeSlice], off: Mapping[PruneStage, str] | None = None
) -> tuple[Candidates, list[FunnelStage]]:
    """Run ``stages`` over all of ``count`` files. Source rows with a null key are gone from the start.

    ``off``: stages to leave out, with what says so.
    """
    keyed = any(change_slice.keyed for change_slice in slices)
    candidates = Candidates(np.arange(count if keyed else 0, dtype=np.int64))
    counts = [FunnelStage(name=NULL_KEYS, files_in=count, files_out=len(candidates.files))]
    for stage in stages:
        started, before = time.monotonic(), len(candidates.files)
        answer = _answer(stage, candidates, off or {})
        counted = FunnelStage(name=stage.name, files_in=before, files_out=before)
        if isinstance(answer, StageRefusal):
            counted = replace(counted, left_out=answer.code, message=answer.message)
        else:
            candidates = answer.candidates
            counted = replace(counted, message=answer.message)
        spent = round(1000 * (time.monotonic() - started))
        counts.append(replace(counted, files_out=len(candidates.files), ms=spent))
    return candidates, counts


def _answer(stage: Stage, candidates: Candidates, off: Mapping[PruneStage, str]) -> Narrowed | StageRefusal:
    if stage.name in off:
        return StageRefusal(LeftOut.SWITCHED_OFF, off[stage.name])
    if not len(candidates.files):
        return StageRefusal(LeftOut.NOTHING_LEFT)
    answer = stage.prune(candidates)
    return Narrowed(answer, "") if isinstance(answer, Candidates) else answer

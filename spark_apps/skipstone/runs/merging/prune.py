"""The middle of a merge run: which files a source key can touch, and which of them another writer touched.

Called by the merge run. Orders the stages of the funnel and says where they search. Must not read data files but for
the commit guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from skipstone_core.funnel import FunnelStage, PruneStage

from skipstone.files.reader import describe_files
from skipstone.indexes.found import find_indexes
from skipstone.kernels.changes import ChangeSlice
from skipstone.kernels.merging import FileWork, concerns_merge
from skipstone.pruning.bloom import BloomStage
from skipstone.pruning.by_source import join_by_source
from skipstone.pruning.funnel import Candidates, SliceRunner, Stage, run_funnel, run_here
from skipstone.pruning.keyindex import FindIndexes, KeyIndexStage
from skipstone.pruning.partitions import PartitionStage
from skipstone.pruning.statistics import KeyRangeStage, TargetWhereStage, file_ranges
from skipstone.runs.merging.source import Changes
from skipstone.tables.filesets import FileSet
from skipstone.tasks.runner import Tasks

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class PruneSite:
    """Where and how a merge prunes. ``off``: stages to leave out, with what says so."""

    run: SliceRunner = run_here
    off: Mapping[PruneStage, str] = field(default_factory=dict)
    index_namespace: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """The candidate files with what of the source each may hold, and how they were found."""

    candidates: Candidates
    funnel: tuple[FunnelStage, ...]


def prune_files(site: PruneSite, changes: Changes, table: Table, files: FileSet) -> Pruned:
    """Run the funnel over all of ``files``, the head of ``table``."""
    plan, slices = changes.plan, changes.slices
    find = _finder(table, files, site.index_namespace)
    stages: list[Stage] = [
        PartitionStage(files, table.specs(), plan.keys, slices, site.run),
        TargetWhereStage(plan.target_where, files),
        KeyRangeStage(partial(file_ranges, files, plan.keys), plan.keys, slices, site.run),
        BloomStage(table, files, plan.keys, slices, find, site.run),
        KeyIndexStage(files, plan.keys, slices, find, site.run),
    ]
    candidates, funnel = run_funnel(stages, len(files), slices, site.off)
    prune = PruneStage.KEY_RANGES not in site.off
    joined, more = join_by_source(candidates, plan.when_not_matched_by_source, files, prune=prune)
    return Pruned(candidates=joined, funnel=(*funnel, *more))


def _finder(table: Table, files: FileSet, namespace: str | None) -> FindIndexes:
    """Looks once for both stages that ask."""
    return cache(lambda: find_indexes(table.catalog, table.name(), files, namespace))


def run_in(tasks: Tasks) -> SliceRunner:
    """A runner that hands each slice to a task; what is asked travels once."""

    def run(ask: Callable[[ChangeSlice], Answer], slices: Sequence[ChangeSlice]) -> list[Answer]:
        answers = dict(tasks.run(partial(_asked, ask), [_NumberedSlice(*numbered) for numbered in enumerate(slices)]))
        return [answers[number] for number in range(len(slices))]

    return run


@dataclass(frozen=True)
class _NumberedSlice:
    """A slice, with its place among all."""

    number: int
    slice: ChangeSlice


def _asked(ask: Callable[[ChangeSlice], Answer], work: _NumberedSlice, _: str) -> tuple[int, Answer]:
    return work.number, ask(work.slice)


def touched_by_keys(changes: Changes, table: Table, files: FileSet, paths: Sequence[str]) -> str | None:
    """The first of ``paths`` (files of ``files``) with a row that the merge concerns: bounds first, then rows."""
    plan, keys = changes.plan, changes.plan.keys
    mine = pc.is_in(files.files["path"], pa.array(list(paths), pa.string()))
    mine = pc.indices_nonzero(mine).to_numpy().astype("int64")
    stage = KeyRangeStage(partial(file_ranges, files, keys), keys, changes.slices)
    candidates, _ = run_funnel([stage], len(files), changes.slices)
    candidates, _ = join_by_source(candidates, plan.when_not_matched_by_source, files)
    parts = candidates.among(mine).parts(changes.slices)
    for file in describe_files(table, files, sorted(parts)):
        if concerns_merge(FileWork(file, parts[file.file_id]), changes.plan, changes.slices):
            return file.path
    return None

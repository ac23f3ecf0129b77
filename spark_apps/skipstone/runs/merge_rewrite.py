"""Second half of a merge run: candidate files to rewritten files and inserts, through Spark tasks.

Called by the merge run. One task per core with many files each, balanced by bytes; the target is never shuffled.
Must not commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.errors import UserError
from skipstone_core.jobs import PruningStrategy, SparkRef
from skipstone_core.merges import BoundKey, FunnelStage, MergeCounts, pack_by_bytes

from skipstone.indexes.distribute import Tasks
from skipstone.pruning.bounds import file_ranges
from skipstone.pruning.funnel import (
    EXACT_JOIN,
    Candidates,
    KeyRangeStage,
    SliceSearch,
    Stage,
    run_funnel,
    search_here,
    search_slice,
)
from skipstone.pruning.keyranges import FileRanges, Hits
from skipstone.rewrite.changes import ChangeSlice
from skipstone.rewrite.failures import caught, opened
from skipstone.rewrite.merging import (
    FileResult,
    FileWork,
    InsertResult,
    InsertWork,
    MergeWork,
    WorkResult,
    concerns_merge,
    insert_work,
    merge_files,
    unmatched_rows,
    write_inserts,
)
from skipstone.rewrite.reader import describe_files
from skipstone.rewrite.writer import WriteSpec, to_data_files, write_spec
from skipstone.runs.merge_by_source import join_by_source
from skipstone.runs.merge_source import Changes
from skipstone.tables.commits import discard_files
from skipstone.tables.filesets import FileSet

#: Fewer source rows than this are inserted by the driver itself: a Spark job costs more.
INSERT_HERE_ROWS = 50_000
#: Up to so many source rows the driver searches the key ranges itself.
SEARCH_HERE_ROWS = 4_000_000


@dataclass(frozen=True, kw_only=True)
class RewriteSite:
    """What tasks run on and what they write by. ``token`` is this process's alone: file names never collide."""

    tasks: Tasks
    sizes: SparkRef
    strategy: PruningStrategy
    token: str


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """What a merge is about to commit."""

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    counts: MergeCounts
    funnel: tuple[FunnelStage, ...]


def prune_files(site: RewriteSite, changes: Changes, files: FileSet) -> tuple[Candidates, list[FunnelStage]]:
    """The candidate files of ``files`` with what of the source each may hold."""
    stages: list[Stage] = []
    if site.strategy is not PruningStrategy.NONE:
        stages.append(key_range_stage(changes, files, _search(site, changes)))
    candidates, counts = run_funnel(stages, len(files), changes.slices)
    joined, more = join_by_source(candidates, changes.plan, files, prune=site.strategy is not PruningStrategy.NONE)
    return joined, counts + more


def key_range_stage(changes: Changes, files: FileSet, search: SliceSearch = search_here) -> KeyRangeStage:
    """The stage that compares file bounds with source keys."""
    keys = changes.plan.keys
    return KeyRangeStage(file_ranges(files, keys), keys, changes.slices, search)


def _search(site: RewriteSite, changes: Changes) -> SliceSearch:
    """In the driver while the source is small, else one slice per task: then no process holds all keys."""
    return search_here if changes.rows <= SEARCH_HERE_ROWS else search_in(site.tasks)


def search_in(tasks: Tasks) -> SliceSearch:
    """A search that hands each slice to a task."""

    def search(ranges: Sequence[FileRanges], slices: Sequence[ChangeSlice], keys: Sequence[BoundKey]) -> list[Hits]:
        works = [(number, tuple(ranges), one, tuple(keys)) for number, one in enumerate(slices)]
        found = dict(tasks.run(_search_task, works))
        return [found[number] for number in range(len(slices))]

    return search


def _search_task(
    work: tuple[int, tuple[FileRanges, ...], ChangeSlice, tuple[BoundKey, ...]], _: str
) -> tuple[int, Hits]:
    number, ranges, one, keys = work
    return number, search_slice(ranges, one, keys)


def rewrite_files(site: RewriteSite, changes: Changes, table: Table, files: FileSet) -> Rewrite:
    """Prune, merge candidate files, insert what matched nowhere. Raises BadData as the kernels do."""
    candidates, funnel = prune_files(site, changes, files)
    write = write_spec(table, site.token)
    merged = _merge_candidates(site, _works(site, changes, candidates, (table, files, write)), table)
    results = [result for part in merged for result in part.files]
    rows = [row for part in merged for row in part.written]
    with _discarding(rows, table):
        inserted, inserts = _insert_rest(site, changes, results, (table, write))
    rows += inserts
    touched = sum(result.touched for result in results)
    funnel.append(FunnelStage(name=EXACT_JOIN, files_in=funnel[-1].files_out, files_out=touched))
    return Rewrite(
        added=tuple(to_data_files(rows, table)),
        removed=tuple(files.data_file(result.file_id) for result in results if result.rewritten),
        counts=_counts(changes, files, funnel, (results, inserted)),
        funnel=tuple(funnel),
    )


def _works(
    site: RewriteSite, changes: Changes, candidates: Candidates, target: tuple[Table, FileSet, WriteSpec]
) -> list[MergeWork]:
    table, files, write = target
    ordinals = candidates.files.tolist()
    parts = candidates.parts(changes.slices)
    described = [FileWork(file, parts[file.file_id]) for file in describe_files(table, files, ordinals)]
    bins = pack_by_bytes([work.file.size for work in described], _cores(site))
    return [
        MergeWork(plan=changes.plan, write=write, slices=changes.slices, files=_by_source([described[i] for i in one]))
        for one in bins
    ]


def _by_source(works: Sequence[FileWork]) -> tuple[FileWork, ...]:
    """Files in the order of their source slices, so that a task's cache of row groups serves the next file."""
    return tuple(sorted(works, key=lambda work: (work.parts[0].slice, work.parts[0].start) if work.parts else (-1, 0)))


def _merge_candidates(site: RewriteSite, works: Sequence[MergeWork], table: Table) -> list[WorkResult]:
    answers = site.tasks.run(_merge_task, works)
    return [one for one in _opened(answers, table) if isinstance(one, WorkResult)]


def _opened(answers: Sequence[bytes], table: Table) -> list[object]:
    """All results; when one task met a user's error, what the others wrote is gone again."""
    rows: list[bytes] = []
    for answer in answers:
        with suppress(UserError):
            rows.extend(_written_rows(opened(answer)))
    with _discarding(rows, table):
        return [opened(answer) for answer in answers]


def _written_rows(result: object) -> Sequence[bytes]:
    return result.written if isinstance(result, WorkResult | InsertResult) else ()


@contextmanager
def _discarding(rows: Sequence[bytes], table: Table) -> Iterator[None]:
    """Delete the written files when the block fails: no commit names them yet."""
    try:
        yield
    except UserError:
        discard_files(table, tuple(to_data_files(rows, table)))
        raise


def _merge_task(work: MergeWork, task: str) -> bytes:
    return caught(lambda: merge_files(work, f"merge-{task}"))


def _insert_task(work: InsertWork, task: str) -> bytes:
    return caught(lambda: write_inserts(work, f"insert-{task}"))


def _insert_rest(
    site: RewriteSite, changes: Changes, results: Sequence[FileResult], target: tuple[Table, WriteSpec]
) -> tuple[int, list[bytes]]:
    """Insert source rows that matched nowhere: how many, and the written files."""
    (table, write), plan = target, changes.plan
    rest = unmatched_rows(changes.slices, results)
    if not plan.when_not_matched or not len(rest):
        return 0, []
    if len(rest) <= INSERT_HERE_ROWS:
        answers = [_insert_task(insert_work(plan, write, changes.slices, rest), "driver")]
    else:
        parts = np.array_split(rest, _cores(site))
        works = [insert_work(plan, write, changes.slices, part) for part in parts]
        answers = site.tasks.run(_insert_task, works)
    done = [one for one in _opened(answers, table) if isinstance(one, InsertResult)]
    return sum(one.rows for one in done), [row for one in done for row in one.written]


def _cores(site: RewriteSite) -> int:
    """Cores of all executors, or of the driver in local mode."""
    return site.sizes.instances * site.sizes.executor_cores or site.tasks.parallelism


def _counts(
    changes: Changes, files: FileSet, funnel: Sequence[FunnelStage], done: tuple[Sequence[FileResult], int]
) -> MergeCounts:
    results, inserted = done
    return MergeCounts(
        files_total=len(files),
        files_candidate=funnel[-2].files_out,
        files_touched=funnel[-1].files_out,
        files_rewritten=sum(result.rewritten for result in results),
        rows_source=changes.rows_read,
        rows_matched=sum(result.rows_matched for result in results),
        rows_updated=sum(result.rows_updated for result in results),
        rows_deleted=sum(result.rows_deleted for result in results),
        rows_inserted=inserted,
        rows_ignored=sum(result.rows_ignored for result in results),
    )


def touched_by_keys(changes: Changes, table: Table, files: FileSet, paths: Sequence[str]) -> str | None:
    """The first of ``paths`` (files of ``files``) with a row that the merge concerns: bounds first, then rows."""
    candidates, _ = run_funnel([key_range_stage(changes, files)], len(files), changes.slices)
    candidates, _ = join_by_source(candidates, changes.plan, files)
    mine = pc.is_in(files.files["path"], pa.array(list(paths), pa.string()))
    parts = candidates.parts(changes.slices)
    ordinals = [i for i in pc.indices_nonzero(mine).to_pylist() if i in parts]
    for file in describe_files(table, files, ordinals):
        if concerns_merge(FileWork(file, parts[file.file_id]), changes.plan, changes.slices):
            return file.path
    return None

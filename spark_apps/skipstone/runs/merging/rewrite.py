"""Second half of a merge run: candidate files to rewritten files and inserts, through tasks.

Called by the merge run, which says where tasks run. One task per core with many files each, balanced by bytes; the
target is never shuffled. Must not commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from skipstone_core.errors import UserError
from skipstone_core.funnel import EXACT_JOIN, NOT_MATCHED_BY_SOURCE, FunnelStage, judge_stages
from skipstone_core.merging.merges import MergeCounts, pack_by_bytes

from skipstone.files.positions import to_delete_files
from skipstone.files.reader import describe_files
from skipstone.files.writer import WriteSpec, to_data_files, write_spec
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.changes import ROW_GROUP_ROWS, ChangeReader, SlicePart
from skipstone.kernels.clauses import Unmatched
from skipstone.kernels.merging import (
    FileResult,
    FileWork,
    InsertResult,
    InsertWork,
    MergeWork,
    WorkResult,
    insert_work,
    merge_files,
    unmatched_rows,
    write_inserts,
)
from skipstone.kernels.partial import lacking_rows
from skipstone.pruning.funnel import Candidates
from skipstone.runs.merging.leavingout import RejectedChanges, RowsAbsent
from skipstone.runs.merging.places import require_all_places
from skipstone.runs.merging.prune import Pruned
from skipstone.runs.merging.source import Changes
from skipstone.sources.feeds.rejecting.keytexts import KeyTexts
from skipstone.tables.arrow import LINEAGE_NAMES, with_lineage
from skipstone.tables.committing.writing import WrittenFiles
from skipstone.tables.filesets import FileSet, PinnedTable
from skipstone.tables.shaping.formats import has_lineage
from skipstone.tables.shaping.writeproperties import merges_on_read
from skipstone.tasks.failures import caught, opened
from skipstone.tasks.runner import Tasks

#: Fewer source rows than this are inserted by the driver itself: a Spark job costs more.
INSERT_HERE_ROWS = 50_000


@dataclass(frozen=True, kw_only=True)
class RewriteSite:
    """The site of a rewrite: tasks and write settings. ``token`` is this process's alone: file names never collide.

    ``cores``: how many tasks run at a time. ``threads``: cores of this process, where its tasks run in it.
    ``written`` takes note of what they wrote, also when one of them failed. ``is_dry``: they write nothing.
    """

    tasks: Tasks
    cores: int
    token: str
    written: WrittenFiles
    is_dry: bool = False
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """The rewrite that a merge is about to commit. Of a dry run only the counts and the funnel are of use.

    ``deletes``: position delete files, for the data files ``marked``; ``replaced``: those that they replace.
    ``read``: data files with rows that have a source row, none of which changes. ``left_out``: changes of the source.
    """

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    marked: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    replaced: tuple[DataFile, ...]
    read: tuple[DataFile, ...]
    counts: MergeCounts
    funnel: tuple[FunnelStage, ...]
    left_out: RejectedChanges = field(default_factory=RejectedChanges)


def rewrite_files(site: RewriteSite, changes: Changes, target: PinnedTable, pruned: Pruned) -> Rewrite:
    """Merge candidate files, insert what matched nowhere. Raises as the kernels and ``require_all_places`` do."""
    table, files = target.table, target.files
    started = time.monotonic()
    write = write_spec(table, site.token)
    collected = _Results(site.written)
    site.tasks.run(_merge_task, _works(site, changes, pruned.candidates, target), collected.take)
    merged = [result for result in collected.results() if isinstance(result, WorkResult)]
    results = [result for part in merged for result in part.files]
    require_all_places(files, results)
    rest = unmatched_rows(changes.plan, changes.slices, results)
    if changes.leaves_out:
        _require_rows(changes, rest)
    inserted = _insert_rest(site, changes, rest, write)
    moved = _Moved(
        removed=tuple(files.data_file(result.file_id) for result in results if result.rewritten),
        rewritten=tuple(to_data_files((row for part in merged for row in part.written), table)),
        inserted=tuple(to_data_files(inserted.written, table)),
        deletes=tuple(to_delete_files(row for part in merged for row in part.deletes)),
        rows_inserted=inserted.rows,
        rows_unmatched=len(rest) - inserted.rows,
        rest=inserted.rest,
    )
    return Rewrite(
        added=(*moved.rewritten, *moved.inserted),
        removed=moved.removed,
        marked=tuple(files.data_file(result.file_id) for result in results if result.marked),
        deletes=moved.deletes,
        replaced=tuple(_replaced(files, results)),
        read=tuple(files.data_file(result.file_id) for result in results if result.only_read),
        counts=_counts(changes, files, pruned.candidates, results, moved),
        funnel=_with_join(pruned.funnel, results, started),
        left_out=changes.left_out,
    )


def _require_rows(changes: Changes, rest: Int64s) -> None:
    """Raise RowsAbsent for source rows that the table has no row for, and that lack a value."""
    plan, slices = changes.plan, changes.slices
    if plan.partial is None or plan.partial.missing is None:
        return
    reader, absent = ChangeReader(slices, [*(key.source for key in plan.keys), plan.partial.missing]), set()
    for number, change_slice in enumerate(slices):
        own = rest[(rest >= change_slice.base) & (rest < change_slice.base + change_slice.rows)] - change_slice.base
        for start in range(0, change_slice.rows, ROW_GROUP_ROWS):
            stop = min(change_slice.rows, start + ROW_GROUP_ROWS)
            here = own[(own >= start) & (own < stop)] - start
            if len(here):
                source = reader.read([SlicePart(number, start, stop)]).take(pa.array(here))
                texts = KeyTexts.of_rows(source, plan.keys)
                absent |= {texts.text(row) for row in np.flatnonzero(lacking_rows(source, plan.partial)).tolist()}
    if absent:
        raise RowsAbsent(frozenset(absent))


def _replaced(files: FileSet, results: Sequence[FileResult]) -> Iterator[DataFile]:
    """Delete files of files that are gone, or whose positions are in a new one."""
    for result in results:
        if result.marked or result.rewritten:
            yield from (delete.file for delete in files.applying_deletes(result.file_id) if delete.is_replaceable)


def _with_join(funnel: Sequence[FunnelStage], results: Sequence[FileResult], started: float) -> tuple[FunnelStage, ...]:
    """The funnel with its last stage, and what each stage let through in vain.

    Stages that look for keys answer for files with keys; from whenNotMatchedBySource on every touched file counts.
    """
    matched, touched = sum(result.rows_matched > 0 for result in results), sum(result.touched for result in results)
    spent = round(1000 * (time.monotonic() - started))
    join = FunnelStage(name=EXACT_JOIN, files_in=funnel[-1].files_out, files_out=touched, ms=spent)
    by_keys = [stage for stage in funnel if stage.name != NOT_MATCHED_BY_SOURCE]
    return (*judge_stages(by_keys, matched), *judge_stages((*funnel[len(by_keys) :], join), touched))


def _works(site: RewriteSite, changes: Changes, candidates: Candidates, target: PinnedTable) -> list[MergeWork]:
    ordinals, lineage = candidates.files.tolist(), has_lineage(target.table)
    parts = candidates.parts(changes.slices)
    live = target.files.in_schema(with_lineage(target.files.schema)) if lineage else target.files
    files = describe_files(target.table, live, ordinals)
    described = [FileWork(file, parts[file.file_id]) for file in files]
    bins = pack_by_bytes([work.file.size for work in described], site.cores)
    plan = changes.plan
    work = MergeWork(
        plan=replace(plan, target_columns=(*plan.target_columns, *LINEAGE_NAMES)) if lineage else plan,
        write=write_spec(target.table, site.token, lineage=lineage),
        slices=changes.slices,
        files=(),
        on_read=merges_on_read(target.table),
        lineage=lineage,
        is_dry=site.is_dry,
        threads=max(1, site.threads // max(1, len(bins))),
    )
    return [replace(work, files=_by_source([described[i] for i in members])) for members in bins]


def _by_source(works: Sequence[FileWork]) -> tuple[FileWork, ...]:
    """Files in the order of their source slices, so that a task's cache of row groups serves the next file."""
    return tuple(sorted(works, key=lambda work: (work.parts[0].slice, work.parts[0].start) if work.parts else (-1, 0)))


@dataclass
class _Results:
    """The results of tasks. Written files are noted in ``written`` at once, for other tasks may fail."""

    written: WrittenFiles
    _done: list[object] = field(default_factory=list)
    _failed: list[UserError] = field(default_factory=list)

    def take(self, answer: bytes) -> None:
        """The answer of one task."""
        try:
            result = opened(answer)
        except UserError as error:
            self._failed.append(error)
            return
        if isinstance(result, WorkResult | InsertResult):
            self.written.note(to_data_files(result.written, self.written.table))
        if isinstance(result, WorkResult):
            self.written.note(to_delete_files(result.deletes))
        self._done.append(result)

    def results(self) -> list[object]:
        """All results; raises the first user's error that a task met."""
        if self._failed:
            raise self._failed[0]
        return self._done


def _merge_task(work: MergeWork, task: str) -> bytes:
    return caught(lambda: merge_files(work, f"merge-{task}"), work.write.location)


def _insert_task(work: InsertWork, task: str) -> bytes:
    return caught(lambda: write_inserts(work, f"insert-{task}"), work.write.location)


def _insert_rest(site: RewriteSite, changes: Changes, rest: Int64s, write: WriteSpec) -> InsertResult:
    """Insert ``rest``, the source rows that matched nowhere, as far as a clause takes them."""
    plan = changes.plan
    if not (plan.when_not_matched or plan.tells_deletes) or not len(rest):
        return InsertResult(0, (), Unmatched())
    collected = _Results(site.written)
    few = len(rest) <= INSERT_HERE_ROWS
    parts = np.array_split(rest, 1 if few else site.cores)
    works = [replace(insert_work(plan, write, changes.slices, part), is_dry=site.is_dry) for part in parts]
    if few:
        collected.take(_insert_task(works[0], "driver"))
    else:
        site.tasks.run(_insert_task, works, collected.take)
    done = [result for result in collected.results() if isinstance(result, InsertResult)]
    return InsertResult(
        rows=sum(result.rows for result in done),
        written=tuple(row for result in done for row in result.written),
        rest=reduce(Unmatched.plus, (result.rest for result in done), Unmatched()),
    )


@dataclass(frozen=True, kw_only=True)
class _Moved:
    """Files by what a merge does with them, how many rows are in those inserted, and how many no clause inserts.

    ``rest``: the deletes and updates among rows without a match.
    """

    removed: tuple[DataFile, ...]
    rewritten: tuple[DataFile, ...]
    inserted: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    rows_inserted: int
    rows_unmatched: int
    rest: Unmatched


def _counts(
    changes: Changes, files: FileSet, candidates: Candidates, results: Sequence[FileResult], moved: _Moved
) -> MergeCounts:
    superseded, left = changes.rows_superseded, changes.left_out
    return MergeCounts(
        files_total=len(files),
        files_candidate=len(candidates.files),
        files_touched=sum(result.touched for result in results),
        files_rewritten=sum(result.rewritten for result in results),
        files_marked=sum(result.marked for result in results),
        rows_source=changes.rows_read,
        rows_matching=changes.rows_read - len(left.rejected) - superseded - moved.rows_inserted - moved.rows_unmatched,
        rows_superseded=superseded,
        rows_unmatched=moved.rows_unmatched,
        rows_unmatched_deletes=moved.rest.deletes,
        rows_unmatched_updates=moved.rest.updates,
        rows_matched=sum(result.rows_matched for result in results),
        rows_updated=sum(result.rows_updated for result in results),
        rows_deleted=sum(result.rows_deleted for result in results),
        rows_inserted=moved.rows_inserted,
        rows_ignored=sum(result.rows_ignored for result in results),
        rows_copied=sum(result.rows_copied for result in results),
        rows_rejected=left.faults,
        rows_waiting=left.waiting,
        bytes_candidate=int(files.files["size"].to_numpy()[candidates.files].sum()),
        bytes_removed=_bytes(moved.removed),
        bytes_rewritten=_bytes(moved.rewritten),
        bytes_inserted=_bytes(moved.inserted),
        bytes_deletes=_bytes(moved.deletes),
    )


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(file.file_size_in_bytes for file in files)

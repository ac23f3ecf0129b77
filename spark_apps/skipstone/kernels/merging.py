"""The merge kernel: one data file against its slice of the source, at Arrow speed, without a shuffle.

Called inside Spark tasks, one task per core with many files each. Key columns are read first; a file without a match
is not rewritten. Where the table is merged on read, a file in which few rows change stays, and these are deleted by
position. Must not commit and must not know how files were chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property
from skipstone_core.contract.requests import MergeAction
from skipstone_core.merging.merges import SEVERAL_COLUMN, BoundClause, MergePlan

from skipstone.files.positions import write_deletes, write_vector
from skipstone.files.reader import POSITION_COLUMN, DataFileDescription, FileReaders, OpenDataFile, open_readers
from skipstone.files.writer import DataFileWriter, UnwrittenFiles, WriteSpec
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.changes import ChangeReader, ChangeSlice, SlicePart, first_of_others, source_keys
from skipstone.kernels.clauses import (
    NO_CLAUSE,
    TOO_LATE,
    Choice,
    ComposedRows,
    Unmatched,
    choose_clauses,
    choose_rows,
    chosen_by,
    count_unmatched,
    inserted_rows,
    nullable,
    rows_at_once,
    source_columns,
    target_columns,
)
from skipstone.kernels.histories.composing import compose, composed_choice
from skipstone.kernels.histories.finding import HistoryReader, KeyedRows
from skipstone.kernels.holding.packing import packed_rows
from skipstone.kernels.holding.spooling import SourceRows, SpooledRows
from skipstone.kernels.marking import FileMarker, stays
from skipstone.kernels.matching import UNMATCHED, KeyMatcher, match_batch
from skipstone.kernels.partial import require_whole
from skipstone.kernels.rewriting import FileRewriter, GroupMerge
from skipstone.tables.arrow import nulls


@dataclass(frozen=True)
class FileWork:
    """One candidate file with the parts of the source that its key range can hold; none: no key can match."""

    file: DataFileDescription
    parts: tuple[SlicePart, ...]


@dataclass(frozen=True, kw_only=True)
class MergeWork:
    """The work of one task. Picklable; all ``slices`` are named, only the parts of its files are read.

    ``on_read``: files in which few rows change stay. ``lineage``: rows have ids, which they keep, and files that stay
    get deletion vectors; ``plan`` and ``write`` name the columns for the ids then. ``is_dry``: nothing is written.
    ``threads``: cores of this process for the row groups of a file.
    """

    plan: MergePlan
    write: WriteSpec
    slices: tuple[ChangeSlice, ...]
    files: tuple[FileWork, ...]
    on_read: bool = False
    lineage: bool = False
    is_dry: bool = False
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class FileResult:
    """The result of one file. ``matched_source``: numbers (over all slices) of the source rows that it matched.

    ``marked``: it stays, its changed rows are deleted by position. ``rows_copied``: of a file that is rewritten, rows
    that stay as they were.
    """

    file_id: int
    rows_matched: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_ignored: int = 0
    rows_copied: int = 0
    rewritten: bool = False
    marked: bool = False
    matched_source: bytes = b""

    @property
    def touched(self) -> bool:
        """Return whether some row of the file has a source row, or is changed because it has none."""
        return self.rows_matched > 0 or self.rewritten or self.marked

    @property
    def only_read(self) -> bool:
        """Return whether some row of the file has a source row and none changes."""
        return self.touched and not (self.rewritten or self.marked)

    def source_rows(self) -> Int64s:
        """``matched_source`` as numbers, ascending, each once."""
        return np.frombuffer(self.matched_source, dtype=np.int64)


@dataclass(frozen=True)
class WorkResult:
    """The result of one task; ``written`` are rows for ``to_data_files``, ``deletes`` for ``to_delete_files``."""

    files: tuple[FileResult, ...] = ()
    written: tuple[bytes, ...] = ()
    deletes: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class InsertResult:
    """How many rows were inserted; ``written`` are rows for ``to_data_files``. ``rest``: what found no row."""

    rows: int
    written: tuple[bytes, ...]
    rest: Unmatched


@dataclass(frozen=True, kw_only=True)
class InsertWork:
    """Source rows that matched nowhere: row numbers within each slice. ``is_dry``: they are counted, not written."""

    plan: MergePlan
    write: WriteSpec
    slices: tuple[ChangeSlice, ...]
    rows: tuple[tuple[int, bytes], ...]
    is_dry: bool = False


class _Merger:
    """One task's state: what it reads of the source and what it has written."""

    def __init__(self, work: MergeWork, task_id: str) -> None:
        self.work = work
        self.rows = ChangeReader(work.slices, work.plan.source_columns)
        self.keys = ChangeReader(work.slices, work.plan.matching)
        self.histories = HistoryReader(work.plan, work.slices, self.rows)
        self._task_id = task_id
        self._writers: list[DataFileWriter] = []
        self._written: list[bytes] = []
        self._deletes: list[bytes] = []
        self._delete_paths: list[str] = []

    def rewrite(self, readers: FileReaders, source: SourceRows, groups: Sequence[GroupMerge]) -> None:
        """Write a file again, by a writer of its own: rows of files far apart in the key range do not mix."""
        writer = self._new_writer()
        rewriter = FileRewriter(readers.opened, self.work.plan, source, writer)
        parts, alone = range(len(groups)), isinstance(source, SpooledRows)
        prepare = readers.each(lambda opened, at: rewriter.prepare(opened, at, groups[at]), parts, alone=alone)
        with closing(prepare) as prepared:
            for number, made in zip(parts, prepared, strict=True):
                rewriter.write(number, groups[number], made)
        self._written += [file.to_row() for file in writer.close()]

    def mark(self, readers: FileReaders, source: SourceRows, groups: Sequence[GroupMerge]) -> None:
        """Delete the changed rows of a file by position; updated rows of all such files share their new files."""
        write, lineage = self.work.write, self.work.lineage
        # a vector stands for all deletes by position of its file
        marker = FileMarker(readers.opened, self.work.plan, source, self._shared_writer)
        positions = marker.mark(groups, own=not lineage)
        if self.work.is_dry:
            return
        name = f"{write.run_id}-{self._task_id}-{len(self._delete_paths):05}-deletes"
        path = f"{write.location}/{name}.{'puffin' if lineage else 'parquet'}"
        self._delete_paths.append(path)
        made = (write_vector if lineage else write_deletes)(write, path, readers.opened.file, positions)
        self._deletes.append(made.to_row())

    def compose(self, opened: OpenDataFile, number: int, parts: Sequence[SlicePart], group: GroupMerge) -> GroupMerge:
        """A row group with what several changes of one key make of its rows."""
        several = np.append(self.histories.has_several(parts), False)[group.match]
        rows = np.flatnonzero(several & (group.match != UNMATCHED))
        if not len(rows):
            return group
        plan = self.work.plan
        keys, of_rows = np.unique(group.match[rows], return_inverse=True)
        histories = self.histories.read(_in_slices(parts, keys)).of(of_rows)
        choice, numbers = group.choice.copy(), np.full(len(group.match), UNMATCHED, dtype=np.int64)
        numbers[rows] = np.arange(len(rows))
        made: list[pa.RecordBatch] = []
        start = 0
        for batch in _read_rows(opened, number, plan.target_columns, rows, rows_at_once(histories.changes)):
            part = slice(start, start + batch.num_rows)
            composed = compose(plan, histories.of(np.arange(part.start, part.stop)), batch, exist=True)
            choice[rows[part]] = composed_choice(plan, composed)
            made.append(composed.rows)
            start = part.stop
        return GroupMerge(group.match, choice, ComposedRows(packed_rows(pa.Table.from_batches(made), ()), numbers))

    def finish(self, results: Sequence[FileResult]) -> WorkResult:
        """Close what is open."""
        if "_shared_writer" in vars(self):
            self._written += [file.to_row() for file in self._shared_writer.close()]
        return WorkResult(tuple(results), tuple(self._written), tuple(self._deletes))

    def abort(self) -> None:
        """Delete what was written."""
        for writer in self._writers:
            writer.abort()
        io = self.work.write.access.open(self.work.write.location)
        for path in self._delete_paths:
            with suppress(OSError):  # the last one may not have been made
                io.delete(path)

    @cached_property
    def _shared_writer(self) -> DataFileWriter:
        return self._new_writer()

    def _new_writer(self) -> DataFileWriter:
        self._writers.append(_new_writer(self.work, f"{self._task_id}-{len(self._writers)}"))
        return self._writers[-1]


def _new_writer(work: MergeWork | InsertWork, task_id: str) -> DataFileWriter:
    return (UnwrittenFiles if work.is_dry else DataFileWriter)(work.write, task_id)


def merge_files(work: MergeWork, task_id: str) -> WorkResult:
    """Merge the files of ``work`` one after the other. ``task_id`` differs between tasks and attempts.

    Raises BadData when a source value does not fit or a required column would become null.
    """
    merger = _Merger(work, task_id)
    try:
        return merger.finish([_merge_file(merger, file) for file in work.files])
    except BaseException:
        merger.abort()
        raise


def write_inserts(work: InsertWork, task_id: str) -> InsertResult:
    """Write the rows that an insert clause takes, and count the deletes and updates among all."""
    several = [SEVERAL_COLUMN] if work.plan.marks_several else []
    reader = ChangeReader(work.slices, [*work.plan.source_columns, *several])
    writer = _new_writer(work, task_id)
    try:
        inserted, rest = _write_picked(work, reader, writer)
        return InsertResult(inserted, tuple(file.to_row() for file in writer.close()), rest)
    except BaseException:
        writer.abort()
        raise


def unmatched_rows(plan: MergePlan, slices: Sequence[ChangeSlice], results: Sequence[FileResult]) -> Int64s:
    """Numbers (over all slices) of the source rows that matched in no file, ascending; one of each key if the merge
    composes changes.
    """
    matched = np.zeros(sum(change_slice.rows for change_slice in slices), dtype=bool)
    for result in results:
        matched[result.source_rows()] = True
    for change_slice in slices:
        if change_slice.others:
            end = change_slice.base + change_slice.rows
            stand_for = matched[change_slice.base + first_of_others(change_slice, plan.keys)]
            matched[end - change_slice.others : end] = stand_for | plan.composes
    return np.flatnonzero(~matched)


def insert_work(plan: MergePlan, write: WriteSpec, slices: Sequence[ChangeSlice], rows: Int64s) -> InsertWork:
    """The work of inserting ``rows`` (numbers over all slices, ascending)."""
    bases = np.array([change_slice.base for change_slice in slices], dtype=np.int64)
    numbers = np.searchsorted(bases, rows, side="right") - 1
    picked = tuple((int(n), (rows[numbers == n] - bases[n]).tobytes()) for n in np.unique(numbers))
    return InsertWork(plan=plan, write=write, slices=tuple(slices), rows=picked)


def concerns_merge(work: FileWork, plan: MergePlan, slices: Sequence[ChangeSlice]) -> bool:
    """Return whether some live row of the file has a key of the source, or is changed because it has none."""
    with open_readers(work.file, 1) as readers:
        matches = _match_groups(readers, work, plan, ChangeReader(slices, plan.matching))
        if any((match != UNMATCHED).any() for match in matches):
            return True
        return any((_choose(readers.opened, n, plan, _NO_SOURCE, match) >= 0).any() for n, match in enumerate(matches))


def _write_picked(work: InsertWork, reader: ChangeReader, writer: DataFileWriter) -> tuple[int, Unmatched]:
    inserted, rest, histories = 0, Unmatched(), HistoryReader(work.plan, work.slices, reader)
    for number, picked in work.rows:
        rows = np.frombuffer(picked, dtype=np.int64)
        for here, source in _picked_rows(reader, work.slices[number], number, rows):
            if work.plan.partial is not None:
                require_whole(source, work.plan.partial)
            several = _have_several(histories, work.slices[number], number, here)
            single = _picked(source, np.flatnonzero(~several))
            first = here[~several] < work.slices[number].rows - work.slices[number].others  # one of each key
            rest = rest.plus(count_unmatched(work.plan, _picked(single, np.flatnonzero(first))))
            for batch in _inserts(single, work.plan.when_not_matched, writer.arrow_schema):
                writer.write(batch)
                inserted += batch.num_rows
            if several.any():
                for batch in _composed_inserts(histories, number, here[several], writer.arrow_schema):
                    writer.write(batch)
                    inserted += batch.num_rows
    return inserted, rest


def _have_several(
    histories: HistoryReader, change_slice: ChangeSlice, number: int, rows: Int64s
) -> npt.NDArray[np.bool_]:
    """Which rows of a slice are of keys with several changes that are to be composed."""
    if not (histories.plan.composes and change_slice.others):
        return np.zeros(len(rows), dtype=bool)
    several = np.zeros(change_slice.rows, dtype=bool)
    several[: change_slice.keyed] = histories.has_several([SlicePart(number, 0, change_slice.keyed)])
    return several[rows]


def _composed_inserts(
    histories: HistoryReader, number: int, rows: Int64s, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that changes make of keys that the table does not have."""
    key_changes = histories.read([KeyedRows(number, rows)])
    most = rows_at_once(key_changes.changes)
    for start in range(0, len(rows), most):
        part = np.arange(start, min(start + most, len(rows)))
        void = pa.RecordBatch.from_arrays([nulls(len(part), field.type) for field in schema], schema=nullable(schema))
        composed = compose(histories.plan, key_changes.of(part), void, exist=False)
        yield composed.rows.filter(pa.array(composed.alive))


#: The source of a file in which no row has a source row.
_NO_SOURCE = pa.table({})
_NO_ROWS = np.empty(0, dtype=np.int64)
_NO_CHOICE = np.empty(0, dtype=np.int16)


def _merge_file(merger: _Merger, work: FileWork) -> FileResult:
    plan = merger.work.plan
    with open_readers(work.file, merger.work.threads) as readers:
        matches = _match_groups(readers, work, plan, merger.keys)
        has_match = any((match != UNMATCHED).any() for match in matches)
        if not has_match and not plan.when_not_matched_by_source:
            return FileResult(file_id=work.file.file_id)
        source = merger.rows.read(work.parts) if has_match else _NO_SOURCE
        opened = readers.opened
        groups = [GroupMerge(match, _choose(opened, n, plan, source, match)) for n, match in enumerate(matches)]
        if plan.composes and has_match:
            groups = [merger.compose(opened, n, work.parts, group) for n, group in enumerate(groups)]
        result = _result(work, merger.work.slices, groups, plan)
        if not result.rewritten or result.rows_deleted == sum(map(len, matches)):
            return result
        marked = merger.work.on_read and stays(opened, groups)
        change = merger.mark if marked else merger.rewrite
        change(readers, source, groups)
        return replace(result, rewritten=False, marked=True, rows_copied=0) if marked else result


def _in_slices(parts: Sequence[SlicePart], rows: Int64s) -> list[KeyedRows]:
    """Rows of ``parts`` (ascending) as numbers of slices and rows of these."""
    keyed, start = [], 0
    for part in parts:
        stop = start + part.stop - part.start
        here = rows[(rows >= start) & (rows < stop)]
        if len(here):
            keyed.append(KeyedRows(part.slice, here - start + part.start))
        start = stop
    return keyed


def _read_rows(
    opened: OpenDataFile, group: int, names: Sequence[str], rows: Int64s, most: int
) -> Iterator[pa.RecordBatch]:
    """Some of the live rows of a row group, by their numbers among them (ascending), at most so many at once."""
    start = 0
    for batch in opened.read(names, group):
        stop = start + batch.num_rows
        mine = rows[(rows >= start) & (rows < stop)] - start
        for first in range(0, len(mine), most):
            yield batch.take(pa.array(mine[first : first + most]))
        start = stop


def _match_groups(readers: FileReaders, work: FileWork, plan: MergePlan, keys: ChangeReader) -> list[Int64s]:
    """Per row group the source row (within the file's parts) of each live row; outside ``targetWhere`` it is none."""
    groups = range(len(readers.opened.group_rows))
    if not work.parts:
        return list(readers.each(_unmatched, groups))
    source = keys.table(work.parts)
    columns = source_keys(source, plan.keys)
    matcher = KeyMatcher(columns)

    def match(opened: OpenDataFile, group: int) -> Int64s:
        if _may_match(opened, group, plan, columns):
            return _match_group(opened, group, plan, matcher, source)
        return _unmatched(opened, group)

    return list(readers.each(match, groups))


def _may_match(opened: OpenDataFile, group: int, plan: MergePlan, columns: Sequence[pa.Array]) -> bool:
    """Return whether some source key is within the bounds of the row group in all key columns."""
    within = np.ones(len(columns[0]), dtype=bool)
    for key, column in zip(plan.keys, columns, strict=True):
        bounds = opened.bounds(key.target, group) if key.target in plan.target_columns else None
        if bounds is not None:
            lower, upper = (pa.scalar(bound, column.type) for bound in bounds)
            inside = pc.and_(pc.greater_equal(column, lower), pc.less_equal(column, upper))
            within &= inside.to_numpy(zero_copy_only=False)
    return bool(within.any())


def _unmatched(opened: OpenDataFile, group: int) -> Int64s:
    rows = opened.group_rows[group]
    if opened.file.deletes:
        rows = sum(batch.num_rows for batch in opened.read([POSITION_COLUMN], group))
    return np.full(rows, UNMATCHED, dtype=np.int64)


def _match_group(opened: OpenDataFile, group: int, plan: MergePlan, matcher: KeyMatcher, source: pa.Table) -> Int64s:
    named = plan.target_where.columns if plan.target_where else ()
    judged = {plan.held_in(column.name) for column in named if column.side == "target"}
    names = list(dict.fromkeys([*(plan.held_in(key.target) for key in plan.keys), *sorted(judged)]))
    matches = [match_batch(matcher, batch, plan, source) for batch in opened.read(names, group)]
    return np.concatenate([_NO_ROWS, *matches])


def _choose(opened: OpenDataFile, group: int, plan: MergePlan, source: SourceRows, match: Int64s) -> Choice:
    """The clause of each live row of a row group; reads only the target columns that choosing needs."""
    names = chosen_by(plan, matched=bool((match != UNMATCHED).any()))
    if not names:
        return choose_rows(plan, match, source, {})
    choices, start = [_NO_CHOICE], 0
    for batch in opened.read(names, group):
        stop = start + batch.num_rows
        choices.append(choose_rows(plan, match[start:stop], source, target_columns(plan, batch)))
        start = stop
    return np.concatenate(choices)


def _result(work: FileWork, slices: Sequence[ChangeSlice], groups: Sequence[GroupMerge], plan: MergePlan) -> FileResult:
    match = np.concatenate([_NO_ROWS, *(group.match[group.match != UNMATCHED] for group in groups)])
    choice = np.concatenate([_NO_CHOICE, *(group.choice[group.choice != NO_CLAUSE] for group in groups)])
    by_clause = np.bincount(choice[choice >= 0], minlength=len(plan.target_clauses))
    counts = dict.fromkeys(MergeAction, 0)
    for clause, rows in zip(plan.target_clauses, by_clause, strict=True):
        counts[clause.action] += int(rows)
    updated, deleted = counts[MergeAction.UPDATE], counts[MergeAction.DELETE]
    changed, live = updated + deleted, sum(len(group.match) for group in groups)
    return FileResult(
        file_id=work.file.file_id,
        rows_matched=len(match),
        rows_updated=updated,
        rows_deleted=deleted,
        rows_ignored=int(np.count_nonzero(choice == TOO_LATE)),
        rows_copied=live - changed if changed else 0,
        rewritten=changed > 0,
        matched_source=_source_numbers(work.parts, slices, match).tobytes(),
    )


def _source_numbers(parts: Sequence[SlicePart], slices: Sequence[ChangeSlice], match: Int64s) -> Int64s:
    if not parts:
        return np.empty(0, dtype=np.int64)
    numbers = np.concatenate([slices[p.slice].base + np.arange(p.start, p.stop, dtype=np.int64) for p in parts])
    return np.asarray(numbers[np.unique(match)], dtype=np.int64)


def _picked_rows(
    reader: ChangeReader, change_slice: ChangeSlice, number: int, rows: Int64s
) -> Iterator[tuple[Int64s, pa.Table]]:
    """The picked rows of a slice with their numbers, one bounded part at a time."""
    step = 64 * 1024
    for start in range(0, change_slice.rows, step):
        stop = min(change_slice.rows, start + step)
        here = rows[(rows >= start) & (rows < stop)] - start
        source = reader.read([SlicePart(number, start, stop)]) if len(here) else _NO_SOURCE
        most = rows_at_once(source)
        for first in range(0, len(here), most):
            part = here[first : first + most]
            yield part + start, _picked(source, part)


def _inserts(source: pa.Table, clauses: Sequence[BoundClause], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    choice = choose_clauses(clauses, source_columns(source), source.num_rows)
    most = rows_at_once(source)
    for number, clause in enumerate(clauses):
        rows = np.flatnonzero(choice == number)
        for start in range(0, len(rows), most):
            yield inserted_rows(_picked(source, rows[start : start + most]), clause, schema)


def _picked(source: SourceRows, rows: Int64s) -> pa.Table:
    """Some rows, ascending; all of them without a copy if they are in memory."""
    if isinstance(source, SpooledRows) or len(rows) < source.num_rows:
        return source.take(pa.array(rows))
    return source

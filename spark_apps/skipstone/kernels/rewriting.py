"""Second half of the merge of a file: it is written again with as little decoding and encoding as its changes allow.

Called by the merge kernel for files in which some row changes. Column chunks in which nothing changes are copied: whole
row groups, and in others the columns that no update gives another value. Must not choose what becomes of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from propcache.api import cached_property
from skipstone_core.contract.requests import MergeAction
from skipstone_core.merging.merges import MergePlan

from skipstone.files.footers import UNREADABLE
from skipstone.files.projections import Decoding
from skipstone.files.reader import OpenDataFile
from skipstone.files.splicing import ChunkSource, FreshChunks, SplicedFile
from skipstone.files.writer import DataFileWriter
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.clauses import (
    Choice,
    ComposedRows,
    MatchedBatch,
    apply_clauses,
    changed_columns,
    held_rows,
    rows_at_once,
    with_changes,
)
from skipstone.kernels.holding.spooling import SourceRows


@dataclass(frozen=True)
class GroupMerge:
    """The merge of the live rows of one row group: the source row and the clause of each.

    ``composed``: what several changes of one key make of rows.
    """

    match: Int64s
    choice: Choice
    composed: ComposedRows | None = None

    @property
    def is_touched(self) -> bool:
        """Return whether some row changes."""
        return bool((self.choice >= 0).any())


@dataclass(frozen=True)
class Prepared:
    """A row group, encoded. ``fresh``: the columns that are not copied, None when all are. ``whole``: all columns."""

    fresh: FreshChunks | None = None
    whole: tuple[FreshChunks, ...] | None = None


class FileRewriter:
    """Writes one touched file again."""

    def __init__(self, opened: OpenDataFile, plan: MergePlan, source: SourceRows, writer: DataFileWriter) -> None:
        """``source``: the source rows that matches name. ``writer``: takes the rows, which the caller closes."""
        self._opened = opened
        self._plan = plan
        self._source = source
        self._writer = writer
        self._chunks = _chunks(opened)
        self._file = self._spliced()
        self._names = frozenset(plan.target_columns)

    def prepare(self, opened: OpenDataFile, group: int, merge: GroupMerge) -> Prepared | None:
        """Encode the rows of a row group that are not copied, for ``write``; None when that is left to it.

        Several threads may prepare at a time, each by an ``opened`` of its own. Raises BadData as clauses and the
        writer do.
        """
        if self._file is None or self._chunks is None:
            return None
        if not self._keeps_rows(group, merge):
            if opened is self._opened:  # nobody waits for the row group meanwhile, so it is written piece by piece
                return None
            return self._prepare_whole(self._file, opened, group, merge)
        foreign = self._names - self._writer.layout.copyable(self._chunks, group) | self._writer.lineage_columns
        names = foreign | self._concerned(merge) if merge.is_touched else foreign
        changes = self._bounded(opened, group, merge, names)
        if changes is None:
            return None
        written = foreign.union(*(change.changed for change in changes))
        if written & self._writer.partition_columns:
            return None
        if not written:
            return Prepared()
        tables = [pa.table({name: change.column(name) for name in sorted(written)}) for change in changes]
        return Prepared(self._file.encode(self._writer.conform(pa.concat_tables(tables))))

    def write(self, group: int, merge: GroupMerge, prepared: Prepared | None) -> None:
        """Write a row group. Raises as ``prepare`` does."""
        if prepared is None or self._file is None or self._chunks is None:
            self._write_all(group, merge)
        elif prepared.whole is None:
            self._file.copy(self._chunks, group, prepared.fresh)
        else:
            for fresh in prepared.whole:
                self._file.append(fresh)

    def _prepare_whole(self, file: SplicedFile, opened: OpenDataFile, group: int, merge: GroupMerge) -> Prepared | None:
        """Encode all columns of a row group; None when they are more than the writer would hold, or rows may move."""
        size = 0 if self._chunks is None else int(self._chunks.groups[group][2])
        if size > self._writer.flush_bytes or self._concerned(merge) & self._writer.partition_columns:
            return None
        rows: list[pa.RecordBatch] = []
        nbytes = 0
        for batch in self._batches(opened, group, merge, self._plan.target_columns):
            rows.append(apply_clauses(batch, self._plan.target_clauses))
            nbytes += rows[-1].nbytes
            if nbytes > self._writer.flush_bytes:
                return None
        return Prepared(whole=tuple(self._writer.encoded(file, rows)))

    def _spliced(self) -> SplicedFile | None:
        """A file that takes the row groups; none when rows are to be partitioned again or chunks cannot be copied."""
        file = self._opened.file
        if self._chunks is None or not self._chunks.is_known or file.spec_id != self._writer.partitioning.spec_id:
            return None
        return self._writer.splice(file.partition)

    def _keeps_rows(self, group: int, merge: GroupMerge) -> bool:
        """Return whether the row group has the same rows afterwards, in the same order."""
        if len(merge.match) != self._opened.group_rows[group]:
            return False
        return not merge.is_touched or not (self._writer.sorts or self._deleted(merge).any())

    def _deleted(self, merge: GroupMerge) -> np.ndarray:
        clauses = enumerate(self._plan.target_clauses)
        return np.isin(merge.choice, [n for n, clause in clauses if clause.action is MergeAction.DELETE])

    def _concerned(self, merge: GroupMerge) -> frozenset[str]:
        """Columns that some update gives a value, or computes from."""
        if merge.composed is not None:
            return self._names
        clauses = self._plan.target_clauses
        return frozenset().union(*(clause.assigned | clause.computed_from("target") for clause in clauses))

    def _bounded(
        self, opened: OpenDataFile, group: int, merge: GroupMerge, names: frozenset[str]
    ) -> list[_Changed] | None:
        """The columns of a row group; None when they are more than the writer would hold in memory."""
        changes: list[_Changed] = []
        nbytes = 0
        for batch in self._batches(opened, group, merge, sorted(names)) if names else ():
            changes.append(_Changed(batch.target, changed_columns(batch, self._plan.target_clauses)))
            nbytes += batch.target.nbytes + sum(column.nbytes for column in changes[-1].changed.values())
            if nbytes > self._writer.flush_bytes:
                return None
        return changes

    def _write_all(self, group: int, merge: GroupMerge) -> None:
        batches = self._batches(self._opened, group, merge, self._plan.target_columns)
        if self._file is None:
            for batch in batches:
                self._writer.write(apply_clauses(batch, self._plan.target_clauses))
        else:
            self._writer.fill(self._file, self._staying(batches))

    def _staying(self, batches: Iterator[MatchedBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches that stay in the file's partition; the writer gets the others and parts them."""
        for batch in batches:
            changed = changed_columns(batch, self._plan.target_clauses)
            applied = with_changes(batch, changed, self._plan.target_clauses)
            if self._writer.partition_columns.isdisjoint(changed):
                yield applied
            else:
                self._writer.write(applied)

    def _batches(
        self, opened: OpenDataFile, group: int, merge: GroupMerge, names: Sequence[str]
    ) -> Iterator[MatchedBatch]:
        start = 0
        most = self._rows_at_once
        for batch in opened.read(names, group, decoding=self._decoding):
            for first in range(0, batch.num_rows, most):
                rows = batch.slice(first, most)
                stop = start + rows.num_rows
                match, choice = merge.match[start:stop], merge.choice[start:stop]
                composed = merge.composed and merge.composed.part(slice(start, stop))
                held = held_rows(self._source, match)
                yield MatchedBatch(rows, held.source, held.match, choice, self._plan.partial, composed)
                start = stop

    @cached_property
    def _decoding(self) -> Decoding:
        return Decoding(packed=self._writer.packable) if self._file is not None else Decoding()

    @cached_property
    def _rows_at_once(self) -> int:
        return rows_at_once(self._source)


@dataclass(frozen=True)
class _Changed:
    """Some rows, and their columns that get other values."""

    target: pa.RecordBatch
    changed: dict[str, pa.Array]

    def column(self, name: str) -> pa.Array:
        """A column after the changes."""
        return self.changed[name] if name in self.changed else self.target.column(name)


def _chunks(opened: OpenDataFile) -> ChunkSource | None:
    try:
        return ChunkSource(opened.source)
    except UNREADABLE:
        return None

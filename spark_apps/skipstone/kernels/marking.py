"""Second half of the merge of a file that stays: its changed rows are deleted by position, updated ones written again.

Called by the merge kernel for files of tables that are merged on read, in which few rows change. Reads no more than
those rows, and of them only the columns that some update leaves alone. Must not choose what becomes of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from propcache.api import cached_property
from skipstone_core.contract.requests import MergeAction
from skipstone_core.merging.merges import MergePlan

from skipstone.files.projections import deleted_positions
from skipstone.files.reader import POSITION_COLUMN, OpenDataFile
from skipstone.files.writer import DataFileWriter
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.clauses import MatchedBatch, apply_clauses, held_rows, rows_at_once
from skipstone.kernels.holding.spooling import SourceRows
from skipstone.kernels.rewriting import GroupMerge
from skipstone.tables.arrow import nulls

#: From this share of deleted rows on a file is written again: what reads it would skip more than it gets.
REWRITE_SHARE = 0.5
_STEP = 64 * 1024


def stays(opened: OpenDataFile, groups: Sequence[GroupMerge]) -> bool:
    """Return whether few enough rows of the file are deleted, before and by this merge, to delete them by position."""
    rows = sum(opened.group_rows)
    lives = sum(int(np.count_nonzero(group.choice < 0)) for group in groups)
    return rows - lives < REWRITE_SHARE * rows


class FileMarker:
    """Marks the changed rows of one file."""

    def __init__(self, opened: OpenDataFile, plan: MergePlan, source: SourceRows, writer: DataFileWriter) -> None:
        """``source``: the source rows that matches name. ``writer``: takes updated rows, which the caller closes."""
        self._opened = opened
        self._plan = plan
        self._source = source
        self._writer = writer

    def mark(self, groups: Sequence[GroupMerge], *, own: bool = True) -> Int64s:
        """Write the updated rows; the positions for the file's delete file, ascending. Raises BadData as clauses do.

        They are those of changed rows and of delete files: of those ``own`` to the data file, or of all of them.
        """
        deleted = [deleted_positions(self._opened.file, own=own)]
        for number, group in enumerate(groups):
            if group.is_touched:
                positions = self._positions(number)
                deleted.append(positions[group.choice >= 0])
                self._write_updated(number, group, positions)
        return np.unique(np.concatenate(deleted))

    def _positions(self, group: int) -> Int64s:
        """Where in the file the live rows of a row group are."""
        start = sum(self._opened.group_rows[:group])
        if not self._opened.file.deletes:
            return np.arange(start, start + self._opened.group_rows[group])
        batches = self._opened.read([POSITION_COLUMN], group)
        return np.concatenate([np.empty(0, np.int64), *(batch.column(0).to_numpy() for batch in batches)])

    def _write_updated(self, group: int, merge: GroupMerge, positions: Int64s) -> None:
        updated = np.isin(merge.choice, self._updates)
        if not updated.any():
            return
        match, choice = merge.match[updated], merge.choice[updated]
        composed = merge.composed and merge.composed.part(updated)
        start = 0
        for batch in self._rows(group, positions[updated]):
            stop = start + batch.num_rows
            part = slice(start, stop)
            held = held_rows(self._source, match[part])
            rows = MatchedBatch(
                batch, held.source, held.match, choice[part], self._plan.partial, composed and composed.part(part)
            )
            self._writer.write(apply_clauses(rows, self._plan.target_clauses))
            start = stop

    def _rows(self, group: int, positions: Int64s) -> Iterator[pa.RecordBatch]:
        """Rows in all columns; those that every update gives a value are null."""
        most = min(_STEP, rows_at_once(self._source))
        if not self._kept:
            for start in range(0, len(positions), most):
                yield self._filled(None, min(most, len(positions) - start))
            return
        for batch in self._opened.read(self._kept, group, positions):
            for start in range(0, batch.num_rows, most):
                part = batch.slice(start, most)
                yield self._filled(part, part.num_rows)

    def _filled(self, batch: pa.RecordBatch | None, rows: int) -> pa.RecordBatch:
        stored = self._writer.arrow_schema
        fields = [stored.field(name) for name in self._plan.target_columns if name in stored.names]
        kept = batch.schema.names if batch else ()
        columns = [
            batch.column(field.name) if batch and field.name in kept else nulls(rows, field.type) for field in fields
        ]
        return pa.RecordBatch.from_arrays(
            columns, schema=pa.schema([field.with_nullable(nullable=True) for field in fields])
        )

    @cached_property
    def _updates(self) -> list[int]:
        return [n for n, clause in enumerate(self._plan.target_clauses) if clause.action is MergeAction.UPDATE]

    @cached_property
    def _kept(self) -> list[str]:
        """Columns that some update leaves alone, or computes from."""
        if self._plan.partial is not None:  # any row may leave any column alone
            return list(self._plan.target_columns)
        clauses = [self._plan.target_clauses[number] for number in self._updates]
        everywhere = frozenset.intersection(*(clause.assigned for clause in clauses)) if clauses else frozenset()
        read = frozenset().union(*(clause.computed_from("target") for clause in clauses))
        return [name for name in self._plan.target_columns if name not in everywhere or name in read]

"""The kernel of builds: the rows of data files become pages of a new generation.

Runs inside tasks; the driver commits the cover rows that name the generation afterwards. Bounded memory: whenever the
buffer is full, what is in it is written as a part of its own. A task may be tried again: each attempt writes parts of
its own, and only those count that the driver is told of. Must not commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from skipstone_core.contract.stores import HBaseRef

from skipstone.indexes.building.entries import (
    EntryColumns,
    EntrySource,
    SkippedFile,
    Stretch,
    file_stretches,
    next_stretch,
)
from skipstone.indexes.stores.hbase.client import Cell, HBaseTable, Row
from skipstone.indexes.stores.hbase.generations import cell_name, new_part
from skipstone.indexes.stores.hbase.hashing import stored_hashes
from skipstone.indexes.stores.hbase.pages import Page, PageEntries, cut_cells, in_order, joined, pack_pages, row_key

#: What an entry takes in a buffer.
ENTRY_BYTES = 32


@dataclass(frozen=True)
class PageTask:
    """The entries that one task writes, as ``level`` of a generation."""

    sources: tuple[EntrySource, ...]
    columns: EntryColumns
    ref: HBaseRef
    index: bytes
    generation: str
    level: int
    buffer_rows: int


@dataclass(frozen=True)
class PagesWritten:
    """The parts that a task wrote, the rows of their files, the bytes of their cells, and files it could not enter."""

    parts: tuple[int, ...] = ()
    rows: int = 0
    nbytes: int = 0
    skipped: tuple[SkippedFile, ...] = ()


@dataclass
class _Buffer:
    """Entries that wait for being written."""

    parts: list[PageEntries] = field(default_factory=list)
    rows: int = 0

    def add(self, stretch: Stretch, storages: Sequence[str]) -> None:
        """Take a stretch of rows; those with a null in a key have no key to look up."""
        hashes, are_keys = stored_hashes(stretch.columns, storages)
        rows = np.flatnonzero(are_keys)
        origin = stretch.origin
        file_ids, row_groups = (np.full(len(rows), number, np.int64) for number in (origin.file_id, origin.row_group))
        self.parts.append(PageEntries(hashes[rows], file_ids, row_groups, origin.first + rows.astype(np.int64)))
        self.rows += len(rows)


def write_entries(task: PageTask, _task_id: str) -> PagesWritten:
    """Enter the files of a task. A file that is gone or unreadable is reported; the others go on."""
    table = HBaseTable(task.ref)
    try:
        return _Writing(task, table).run()
    finally:
        table.close()


@dataclass
class _Writing:
    """One task under way."""

    task: PageTask
    table: HBaseTable
    parts: list[int] = field(default_factory=list)
    nbytes: int = 0

    def run(self) -> PagesWritten:
        """Write all parts; also one without entries, so that every page is there."""
        buffer, skipped, rows = _Buffer(), [], 0
        for source in self.task.sources:
            stretches = file_stretches(source, self.task.columns)
            while isinstance(stretch := next_stretch(source, stretches), Stretch):
                buffer.add(stretch, self.task.columns.definition.key_storages)
                rows += stretch.origin.rows
                if buffer.rows >= self.task.buffer_rows:
                    self._write(buffer)
                    buffer = _Buffer()
            if stretch is not None:
                skipped.append(stretch)
        self._write(buffer)
        return PagesWritten(tuple(self.parts), rows, self.nbytes, tuple(skipped))

    def _write(self, buffer: _Buffer) -> None:
        part = new_part()
        ordered, pages = in_order(joined(buffer.parts)), range(1 << self.task.level)
        buffer.parts.clear()
        place = PageNames(self.task.index, self.task.level, cell_name(self.task.generation, part))
        self.nbytes += self.table.put(place.rows(pack_pages(ordered, self.task.level, pages)))
        self.parts.append(part)


@dataclass(frozen=True)
class PageNames:
    """The names of rows and cells of one part."""

    index: bytes
    level: int
    cell: bytes

    def rows(self, pages: Iterable[Page]) -> Iterator[Row]:
        """The rows of pages."""
        for page in pages:
            key = row_key(self.index, self.level, page.number)
            yield Row(key, [Cell(*cell) for cell in cut_cells(key, self.cell, page.content)])

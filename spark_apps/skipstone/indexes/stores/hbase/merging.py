"""The kernel of merges: several generations become one, page by page, without entries of files that are gone.

Runs inside tasks, each for some slots of the space of hashes; the driver commits the cover rows afterwards. Bounded
memory: one slot at a time. Must not commit and must not remove what it read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from skipstone_core.contract.stores import HBaseRef

from skipstone.indexes.stores.hbase.asking import ANSWER_BYTES
from skipstone.indexes.stores.hbase.client import REQUEST_ROWS, HBaseTable
from skipstone.indexes.stores.hbase.generations import Generation, cell_name
from skipstone.indexes.stores.hbase.pages import (
    HASH_BITS,
    LostPage,
    PageEntries,
    in_order,
    join_cells,
    joined,
    pack_pages,
    row_key,
    unpack_pages,
)
from skipstone.indexes.stores.hbase.writing import PageNames

#: Most entries of a slot, on an average.
SLOT_ENTRIES = 1_000_000


@dataclass(frozen=True)
class PageMerge:
    """Merge ``sources`` into ``generation`` at ``level``, in ``slots`` of 2^bits, without ``dropped`` file ids."""

    ref: HBaseRef
    index: bytes
    sources: tuple[Generation, ...]
    dropped: frozenset[int]
    generation: str
    level: int
    bits: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class PagesMerged:
    """Bytes that a merge wrote; ``lost``: the id of a generation of which something is gone, and how it is."""

    nbytes: int = 0
    lost: tuple[str, str] | None = None


class _Lost(Exception):
    """Something of a generation is gone."""


def slot_bits(rows: int, level: int) -> int:
    """Into how many slots, as a power of 2, a merge of so many rows is cut; a slot has whole pages of ``level``."""
    bits = 0
    while bits < level and rows >> bits > SLOT_ENTRIES:
        bits += 1
    return bits


def merge_pages(task: PageMerge, _task_id: str) -> PagesMerged:
    """Merge slot by slot. Raises StoreUnavailable."""
    table, written = HBaseTable(task.ref), 0
    names = PageNames(task.index, task.level, cell_name(task.generation, 0))
    dropped = np.array(sorted(task.dropped), np.int64)
    try:
        for slot in task.slots:
            parts = [_kept(entries, dropped) for source in task.sources for entries in _read(table, task, source, slot)]
            first, count = slot << (task.level - task.bits), 1 << (task.level - task.bits)
            pages = pack_pages(in_order(joined(parts)), task.level, range(first, first + count))
            written += table.put(names.rows(pages))
    except _Lost as error:
        source, how = error.args
        return PagesMerged(lost=(source, how))
    finally:
        table.close()
    return PagesMerged(written)


def _kept(entries: PageEntries, dropped: np.ndarray[tuple[int], np.dtype[np.int64]]) -> PageEntries:
    return entries.take(~np.isin(entries.file_ids, dropped)) if len(dropped) else entries


def _read(table: HBaseTable, task: PageMerge, source: Generation, slot: int) -> Iterator[PageEntries]:
    """Entries of a generation in a slot."""
    if source.level >= task.bits:
        first, count = slot << (source.level - task.bits), 1 << (source.level - task.bits)
    else:
        first, count = slot >> (task.bits - source.level), 1
    batch = max(1, min(REQUEST_ROWS, ANSWER_BYTES // max(1, source.page_bytes)))
    for start in range(first, first + count, batch):
        pages = range(start, min(start + batch, first + count))
        entries = _unpacked(table, task.index, source, pages)
        slots = (entries.hashes >> np.uint64(HASH_BITS - task.bits)).astype(np.int64)
        yield entries.take(slots == slot)


def _unpacked(table: HBaseTable, index: bytes, source: Generation, pages: Sequence[int]) -> PageEntries:
    rows = [row_key(index, source.level, page) for page in pages]
    cells = table.get(rows)
    try:
        return unpack_pages([join_cells(row, name, cells.get(row, {})) for row in rows for name in source.cells])
    except LostPage as error:
        raise _Lost(source.id, str(error)) from error

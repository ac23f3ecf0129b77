"""Asks pages for keys: which rows have them, and of which generations something asked for is lost.

Used by merges, for the files of many keys, and by lookups, for the rows of some. A page that is lost, or not as it was
written, makes all files of its generation unknown for this question: they are read, as if no index covered them. Must
not write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.contract.stores import HBaseRef
from skipstone_core.indexing.use import ReadCost
from skipstone_core.keys import KeyType

from skipstone.indexes.asking.hits import POSITION_BITS, ROW_GROUP_BITS, HitRows, IndexHits
from skipstone.indexes.asking.keyprobe import KeyProbe
from skipstone.indexes.asking.probes import WholeProbe
from skipstone.indexes.keytests import AllTests, Points, Test
from skipstone.indexes.stores.hbase.client import REQUEST_ROWS, HBaseTable
from skipstone.indexes.stores.hbase.generations import Generation, Held
from skipstone.indexes.stores.hbase.hashing import canonical_hashes, stored_hashes
from skipstone.indexes.stores.hbase.pages import (
    ANYWHERE,
    Hashes,
    Int64s,
    LostPage,
    PageEntries,
    distinct,
    join_cells,
    pages_of,
    row_key,
    unpack_pages,
)

#: What an answer has at most, in bytes, by the averages of generations.
ANSWER_BYTES = 4 * 1024 * 1024
#: What a page costs besides its bytes, as bytes of a data file that could be read in that time.
PAGE_BYTES = 16 * 1024
#: Most combinations of values that a condition may name.
MAX_POINTS = 1_000_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PagePlace:
    """Where the pages of an index are: the store, and the first part of its rows' names; and its generations."""

    ref: HBaseRef
    index: bytes
    held: tuple[Held, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels that generations have, ascending."""
        return tuple(sorted({held.generation.level for held in self.held}))

    def of_level(self, level: int) -> tuple[Generation, ...]:
        """The generations of a level."""
        return tuple(held.generation for held in self.held if held.generation.level == level)

    def cost(self, hashes: Hashes) -> ReadCost:
        """What asking for some keys costs, whose hashes are sorted: pages in requests."""
        return reduce(ReadCost.__add__, (self._cost(hashes, level) for level in self.levels), ReadCost())

    def _cost(self, hashes: Hashes, level: int) -> ReadCost:
        pages = len(pages_of(hashes, level))
        page_bytes = sum(generation.page_bytes for generation in self.of_level(level))
        return ReadCost(-(-pages // self.batch(level)), pages * (page_bytes + PAGE_BYTES))

    def batch(self, level: int) -> int:
        """How many pages of a level to ask for at once."""
        page_bytes = sum(generation.page_bytes for generation in self.of_level(level))
        return max(1, min(REQUEST_ROWS, ANSWER_BYTES // max(1, page_bytes)))


@dataclass
class PageAsking:
    """Asks one store. ``lost``: what is lost of which generation, by its id, as far as it was noticed."""

    place: PagePlace
    table: HBaseTable
    lost: dict[str, str] = field(default_factory=dict)

    def entries(self, hashes: Hashes) -> Iterator[PageEntries]:
        """Entries with one of ``hashes``, which are sorted and unique. Raises StoreUnavailable."""
        for level in self.place.levels:
            pages, batch = pages_of(hashes, level), self.place.batch(level)
            for start in range(0, len(pages), batch):
                entries = self._read(level, pages[start : start + batch].tolist())
                yield entries.take(_are_in(entries.hashes, hashes))

    def look(self, pages_at: Callable[[int], Sequence[int]]) -> None:
        """Look only what of some pages of each level is lost. Raises StoreUnavailable."""
        for level in self.place.levels:
            pages, batch = pages_at(level), self.place.batch(level)
            for start in range(0, len(pages), batch):
                self._contents(level, pages[start : start + batch])

    def _read(self, level: int, pages: Sequence[int]) -> PageEntries:
        return unpack_pages(self._contents(level, pages))

    def _contents(self, level: int, pages: Sequence[int]) -> list[bytes]:
        rows = [row_key(self.place.index, level, page) for page in pages]
        cells = self.table.get(rows)
        contents = []
        for generation in self.place.of_level(level):
            try:
                contents += [join_cells(row, name, cells.get(row, {})) for name in generation.cells for row in rows]
            except LostPage as error:
                if generation.id not in self.lost:
                    _log.warning("a page of entries %s in %s %s", generation.id, self.place.ref, error)
                self.lost.setdefault(generation.id, str(error))
        return contents

    def unknown(self, ordinal_of: Int64s) -> Int64s:
        """Files of generations of which something is lost, ascending; ``ordinal_of``: file of each file id, or -1."""
        lost = [held.file_ids for held in self.place.held if held.generation.id in self.lost]
        return _live(np.concatenate([np.empty(0, np.int64), *lost]), ordinal_of)


def _are_in(hashes: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """Whether each hash is among the sorted ones ``wanted``."""
    if not len(wanted):
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    are_in: npt.NDArray[np.bool_] = wanted[places] == hashes
    return are_in


def ordinals_of(file_ids: Int64s, ordinal_of: Int64s) -> Int64s:
    """The file of each file id; -1 for those that are not wanted."""
    return np.append(ordinal_of, -1)[np.where(file_ids < len(ordinal_of), file_ids, -1)]


def _live(file_ids: Int64s, ordinal_of: Int64s) -> Int64s:
    ordinals = np.unique(ordinals_of(file_ids, ordinal_of))
    return ordinals[ordinals >= 0]


# --- merges ---


@dataclass(frozen=True)
class PageSearch:
    """A search of keys in pages, see KeyFinder. ``kinds``: of the keys; ``savings``: of reading all wanted files.

    ``ordinal_of``: file of each file id, -1 for those that are not wanted.
    """

    place: PagePlace
    kinds: tuple[KeyType, ...]
    ordinal_of: Int64s
    savings: ReadCost

    def plan(self, keys: Sequence[pa.Array]) -> KeyProbe:
        """Return the cost of the pages that may hold one of ``keys``."""
        hashes = distinct(canonical_hashes(keys, self.kinds))
        return KeyProbe(((0, ()),) if len(hashes) else (), self.place.cost(hashes))

    def hits(self, _probe: KeyProbe, keys: Sequence[pa.Array]) -> Int64s:
        """Return the wanted files with an entry of one of ``keys``, and of lost pages. Raises StoreUnavailable."""
        table = HBaseTable(self.place.ref)
        try:
            asking = PageAsking(self.place, table)
            wanted = distinct(canonical_hashes(keys, self.kinds))
            hit = [_live(entries.file_ids, self.ordinal_of) for entries in asking.entries(wanted)]
            return np.unique(np.concatenate([asking.unknown(self.ordinal_of), *hit]))
        finally:
            table.close()


# --- lookups ---


def bound_points(test: Test, field_ids: Sequence[int]) -> list[pa.Array] | None:
    """Rows of stored keys, a column each, of which a matching row has one; None where a test does not name them all."""
    parts = test.parts if isinstance(test, AllTests) else (test,)
    values = {part.field_id: part.values for part in reversed(parts) if isinstance(part, Points)}
    if not all(number in values for number in field_ids):
        return None
    columns = [values[number] for number in field_ids]
    count = reduce(int.__mul__, map(len, columns), 1)
    if not 0 < count <= MAX_POINTS:
        return None
    places = np.unravel_index(np.arange(count), [len(column) for column in columns])
    return [column.take(pa.array(place)) for column, place in zip(columns, places, strict=True)]


@dataclass(frozen=True)
class PointProbe(WholeProbe):
    """A probe of pages. ``points``: hashes of the keys, sorted and unique."""

    place: PagePlace
    points: Hashes

    def read(self) -> IndexHits:
        """Return the hits, which cover the files of which nothing was lost. Raises StoreUnavailable."""
        table = HBaseTable(self.place.ref)
        try:
            asking = PageAsking(self.place, table)
            return self._hits(list(asking.entries(self.points)), asking)
        finally:
            table.close()

    def _hits(self, parts: Sequence[PageEntries], asking: PageAsking) -> IndexHits:
        ordinal_of = self.index.files.ordinal_of
        covered = self.index.covered.copy()
        covered[asking.unknown(ordinal_of)] = False
        ordinals, groups, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for part in parts:
            files = ordinals_of(part.file_ids, ordinal_of)
            mine = (files >= 0) & covered[files]
            ordinals.append(files[mine])
            groups.append(part.row_groups[mine])
            positions.append(part.positions[mine])
        return _hits(covered, np.concatenate(ordinals), np.concatenate(groups), np.concatenate(positions))


def _hits(covered: npt.NDArray[np.bool_], ordinals: Int64s, groups: Int64s, positions: Int64s) -> IndexHits:
    """Hits as other indexes tell them; where a row may be anywhere in its group, the rows of the file are not known."""
    counted = covered.copy()
    counted[ordinals[positions == ANYWHERE]] = False
    locations = np.unique(ordinals << ROW_GROUP_BITS | groups)
    chosen = counted[ordinals]
    rows, first = np.unique(ordinals[chosen] << POSITION_BITS | positions[chosen], return_index=True)
    return IndexHits(covered, locations, counted, HitRows(rows, groups[chosen][first]))


def point_hashes(points: Sequence[pa.Array], storages: Sequence[str]) -> Hashes:
    """Hashes of rows of stored keys, sorted and unique."""
    hashes, are_keys = stored_hashes(points, storages)
    return distinct(hashes[are_keys])

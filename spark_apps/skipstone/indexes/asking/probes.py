"""One question to one index: which of its row groups have to be read for a test, what that costs, and reading them.

Called by lookup and by index-only answers. Must not weigh whether asking pays: lookup does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.indexing.use import ReadCost

from skipstone.indexes.asking.entries import entry_filter
from skipstone.indexes.asking.entryreads import EntryPart, EntryQuestion, read_part
from skipstone.indexes.asking.hits import HitCollector, IndexHits
from skipstone.indexes.asking.keypages import by_pages
from skipstone.indexes.asking.rowgroups import RowGroups, read_footer
from skipstone.indexes.definition import EntryColumn, compared_schema
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.keytests import Test
from skipstone.indexes.ranges import BoundsColumn, files_that_may_match
from skipstone.indexes.tables import IndexFile
from skipstone.parallel import CORES, at_once

#: Columns of an entry that say where its row is.
PLACE = ("file_id", "row_group", "pos")
#: After so many hits, and whenever they have doubled, they are looked at: more of them may be pointless.
FIRST_CHECK = 16 * 1024
#: Row groups that a thread reads at least; each file that it opens costs as much as a few.
_GROUPS = 8
#: Entries that are decoded in less time than threads take.
_FEW_ROWS = 64 * 1024


@dataclass(frozen=True)
class Probe:
    """The part of ``index`` to read for ``test``.

    ``tested``: what is looked at of its entries, by field id of the table; ``columns``: of them that are read.
    ``cost``: for who reads single pages; ``whole``: for who reads row groups.
    """

    index: FoundIndex
    test: Test
    tested: Mapping[int, EntryColumn]
    columns: tuple[str, ...]
    parts: tuple[EntryPart, ...]
    cost: ReadCost
    whole: ReadCost

    @property
    def rows(self) -> int:
        """Entries that have to be looked at."""
        return sum(int(part.rows.sum()) for part in self.parts)

    @property
    def whole_rows(self) -> int:
        """Entries in the row groups that have to be read."""
        return sum(int(part.footer.rows[list(part.groups)].sum()) for part in self.parts)

    @property
    def is_by_pages(self) -> bool:
        """Return whether single pages are enough, and how many entries these leave out is known."""
        return any(part.spans for part in self.parts)

    @property
    def covered(self) -> npt.NDArray[np.bool_]:
        """One boolean per file: whether the index covers it."""
        return self.index.covered


@dataclass(frozen=True)
class WholeProbe(Probe):
    """A probe of a store that answers at once: there is nothing to sample, and no part to read alone."""

    @abstractmethod
    def read(self) -> IndexHits:
        """Return all hits. Raises OSError."""


def entry_files(index: FoundIndex, test: Test) -> tuple[IndexFile, ...]:
    """Entry files whose key bounds may hold a hit."""
    stored = {field.name: field.field_id for field in index.index.table.schema().fields}
    columns = {number: BoundsColumn(stored[column.name], None) for number, column in index.keys.items()}
    mask = files_that_may_match(test, index.bounds, columns)
    return tuple(file for file in index.index.entries if mask[file.ordinal])


@dataclass(frozen=True)
class ProbeColumns:
    """The tested columns of entries, by field id of the table, and names of columns that are read besides."""

    tested: Mapping[int, EntryColumn]
    besides: tuple[str, ...] = PLACE


def plan_probe(index: FoundIndex, test: Test, files: Sequence[IndexFile], columns: ProbeColumns) -> Probe:
    """The row groups of ``files`` that may hold a hit. Raises UnreadableIndexFile."""
    footers = [read_footer(index.index.table.io, file, index.index.definition) for file in files]
    groups = RowGroups(footers, columns.tested)
    judged = {number: BoundsColumn(number, None) for number in columns.tested}
    mask = files_that_may_match(test, groups, judged) if len(groups) else np.empty(0, np.bool_)
    names = tuple(dict.fromkeys([*entry_filter(test, columns.tested).names, *columns.besides]))
    hit = [np.flatnonzero(mask[groups.starts[n] : groups.starts[n + 1]]).tolist() for n in range(len(files))]
    pairs = zip(files, footers, hit, strict=True)
    whole = [EntryPart(file, footer, tuple(chosen)) for file, footer, chosen in pairs if chosen]
    parts = by_pages(index.index.table.io, whole, test, index.index.definition.field_ids[0])
    costs = (_cost(part, names) for part in parts), (_cost(part, names) for part in whole)
    return Probe(index, test, columns.tested, names, tuple(parts), *(sum(cost, ReadCost()) for cost in costs))


def _cost(part: EntryPart, names: Sequence[str]) -> ReadCost:
    groups, rows = np.array(part.groups), part.rows
    read = part.footer.cost_of(groups, names, rows / np.maximum(1, part.footer.rows[groups]))
    return ReadCost(1, read, int(rows.sum()) * len(names))


def read_hits(probe: Probe, are_worth_it: Callable[[IndexHits], bool]) -> tuple[IndexHits, bool]:
    """The hits of a probe, and whether these are all: reading stops when they are not ``are_worth_it`` any more.

    Raises UnreadableIndexFile.
    """
    collector, next_check = HitCollector(probe.index.covered), FIRST_CHECK
    for entries in read_entries(probe):
        ordinals = probe.index.files.ordinals_of(entries["file_id"])
        groups, positions = (entries[name].to_numpy().astype(np.int64) for name in PLACE[1:])
        live = ordinals >= 0
        collector.add(ordinals[live], groups[live], positions[live])
        if collector.count >= next_check:
            next_check = 2 * collector.count
            if not are_worth_it(collector.hits()):
                return collector.hits(), False
    return collector.hits(), True


def read_entries(probe: Probe) -> Iterator[pa.Table]:
    """The entries that pass the probe's test, its columns of them, not empty. Raises UnreadableIndexFile."""
    schema = compared_schema(probe.index.index.definition)
    wanted = pa.schema([schema.field(name) for name in probe.columns])
    io, question = probe.index.index.table.io, EntryQuestion(probe.test, probe.tested, wanted)
    pieces = [piece for part in probe.parts for piece in _pieces(part)]
    if len(pieces) < 2 or probe.rows <= _FEW_ROWS:
        for tables in at_once(lambda piece: list(read_part(io, piece, question)), pieces):
            yield from tables
        return
    with ThreadPoolExecutor(CORES) as threads:
        waiting: deque[Future[list[pa.Table]]] = deque()
        try:
            for piece in pieces:
                waiting.append(threads.submit(lambda part: list(read_part(io, part, question)), piece))
                if len(waiting) > 2 * CORES:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:  # whoever has enough does not wait for the others
            threads.shutdown(cancel_futures=True)


def _pieces(part: EntryPart) -> Iterator[EntryPart]:
    """A part in pieces for several threads, of which each opens the file."""
    size = max(_GROUPS, -(-len(part.groups) // (2 * CORES)))
    for begin in range(0, len(part.groups), size):
        yield replace(part, groups=part.groups[begin : begin + size])

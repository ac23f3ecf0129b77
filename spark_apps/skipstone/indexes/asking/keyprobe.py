"""Many keys asked of one index at once: which row groups may hold one, what that costs, and the files that do.

Called by the merge's key-index stage, in the driver or in executors. Reads a row group only once, or the few pages of
it that may hold a key, and joins it with the keys that lie within its bounds. Must not weigh whether asking pays beyond
the budget that it is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from skipstone_core.indexing.indexes import IndexDefinition
from skipstone_core.indexing.use import ReadCost, is_worthwhile
from skipstone_core.keys import KeyType

from skipstone.files.pages import PageReader
from skipstone.indexes.asking.keypages import key_pages
from skipstone.indexes.asking.rowgroups import Footer, naming_file, read_footer
from skipstone.indexes.definition import key_name
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.tables import IndexFile
from skipstone.kernels.canonical import Int64s, canonical, null_rows
from skipstone.kernels.matching import UNMATCHED, KeyMatcher
from skipstone.kernels.sortedkeys import SortedKeys
from skipstone.tables.parquetfiles import WholeFile

Mask = npt.NDArray[np.bool_]
_FILE_ID = "file_id"
#: Keys of a row group from which on most of its pages hold one.
_FEW_KEYS = 8


@dataclass(frozen=True)
class BoundColumn:
    """An index column that a key column is asked of: its storage type, and the type in which the keys compare."""

    storage: str
    kind: KeyType

    def canonical(self, stored: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Stored keys in canonical form."""
        if self.storage != "double":
            return canonical(stored, self.kind)
        return stored.combine_chunks() if isinstance(stored, pa.ChunkedArray) else stored


@dataclass(frozen=True)
class KeySearch:
    """A search of keys in an index. Picklable. ``columns``: the leading columns of the index that keys bind.

    ``lower``, ``upper``: canonical bounds of the first column in each of ``entries``. ``ordinal_of``: file of each
    file id, -1 for those that are not wanted. ``savings``: what reading all wanted files costs.
    """

    io: FileIO
    definition: IndexDefinition
    entries: tuple[IndexFile, ...]
    columns: tuple[BoundColumn, ...]
    lower: pa.Array
    upper: pa.Array
    ordinal_of: Int64s
    savings: ReadCost

    @property
    def names(self) -> list[str]:
        """The columns of the index that are read."""
        return [*(key_name(i) for i in range(len(self.columns))), _FILE_ID]

    def plan(self, keys: Sequence[pa.Array]) -> KeyProbe:
        """Return the row groups that may hold one of ``keys``, see ``plan_key_probe``."""
        return plan_key_probe(self, keys)

    def hits(self, probe: KeyProbe, keys: Sequence[pa.Array]) -> Int64s:
        """Return the wanted files that hold one of ``keys``, see ``hit_files``."""
        return hit_files(self, probe, keys)


@dataclass(frozen=True)
class KeyProbe:
    """Row groups to read for some keys: (number of the entry file, row groups), and what that costs.

    ``spans``: of some of these, by file and row group, the entries that may hold a key, as first entry and end of each
    stretch: shape (n, 2).
    """

    parts: tuple[tuple[int, tuple[int, ...]], ...]
    cost: ReadCost
    spans: Mapping[tuple[int, int], Int64s] = field(default_factory=dict)


def key_search(index: FoundIndex, kinds: Sequence[KeyType], wanted: Mask, savings: ReadCost) -> KeySearch:
    """How to ask ``index`` for the ``wanted`` files, by its first ``len(kinds)`` columns."""
    columns = tuple(BoundColumn(*pair) for pair in zip(index.index.definition.key_storages, kinds, strict=False))
    fields = {field.name: field.field_id for field in index.index.table.schema().fields}
    bounds = index.index.files.bounds(fields[key_name(0)])
    rows = pa.array([file.ordinal for file in index.index.entries], pa.int64())
    return KeySearch(
        io=index.index.table.io,
        definition=index.index.definition,
        entries=index.index.entries,
        columns=columns,
        lower=columns[0].canonical(bounds.lower.take(rows)),
        upper=columns[0].canonical(bounds.upper.take(rows)),
        ordinal_of=index.wanted_ordinals(wanted),
        savings=savings,
    )


def plan_key_probe(search: KeySearch, keys: Sequence[pa.Array]) -> KeyProbe:
    """Which row groups may hold one of ``keys`` (canonical columns, in the order of the index).

    Footers are read only while opening their files is worth what it may save. Raises UnreadableIndexFile.
    """
    ordered = _distinct(keys)
    start, stop = _slices(ordered[0], search.lower, search.upper)
    chosen = np.flatnonzero(start < stop)
    opened = ReadCost(files=len(chosen))
    if not is_worthwhile(opened, search.savings):
        return KeyProbe((), opened)
    parts, cost, spans = [], ReadCost(), dict[tuple[int, int], Int64s]()
    for number in chosen.tolist():
        footer = read_footer(search.io, search.entries[number], search.definition)
        start, stop = _group_slices(search, footer, ordered[0])
        stretches = _stretches(search, number, footer, _parted(ordered[0], start, stop))
        held = [
            group for group in np.flatnonzero(start < stop).tolist() if group not in stretches or len(stretches[group])
        ]
        groups = np.array(held, dtype=np.intp)
        if len(groups):
            parts.append((number, tuple(groups.tolist())))
            shares = [_share(stretches.get(group), footer.rows[group]) for group in groups]
            cost += ReadCost(1, footer.cost_of(groups, search.names, np.array(shares)))
            spans |= {(number, group): stretch for group, stretch in stretches.items()}
    return KeyProbe(tuple(parts), cost, spans)


def _parted(keys: pa.Array, start: Int64s, stop: Int64s) -> list[pa.Array]:
    """The keys of each row group."""
    return [keys.slice(begin, max(0, end - begin)) for begin, end in zip(start.tolist(), stop.tolist(), strict=True)]


def _stretches(search: KeySearch, number: int, footer: Footer, keys: Sequence[pa.Array]) -> dict[int, Int64s]:
    """The stretches of pages that may hold a key, of row groups with few ``keys`` whose pages are known."""
    few = [group for group, mine in enumerate(keys) if 0 < len(mine) <= _FEW_KEYS]
    column, stretches = search.columns[0], dict[int, Int64s]()
    for group, pages in key_pages(search.io, search.entries[number], footer, few).items() if few else ():
        start, stop = _slices(keys[group], column.canonical(pages.lower), column.canonical(pages.upper))
        stretches[group] = pages.spans(start < stop)
    return stretches


def _share(stretches: Int64s | None, rows: int) -> float:
    """The part of the rows of a row group that is read."""
    return 1.0 if stretches is None else float((stretches[:, 1] - stretches[:, 0]).sum() / max(rows, 1))


def hit_files(search: KeySearch, probe: KeyProbe, keys: Sequence[pa.Array]) -> Int64s:
    """Wanted files that hold one of ``keys``, ascending; stops when all of them do. Raises UnreadableIndexFile."""
    ordered = _distinct(keys)
    hit = np.zeros(int(search.ordinal_of.max(initial=-1)) + 1, dtype=bool)
    open_files = set(search.ordinal_of[search.ordinal_of >= 0].tolist())
    for ordinals in _hits_by_group(search, probe, ordered):
        hit[ordinals] = True
        open_files.difference_update(ordinals.tolist())
        if not open_files:
            break
    return np.flatnonzero(hit)


def _hits_by_group(search: KeySearch, probe: KeyProbe, keys: Sequence[pa.Array]) -> Iterator[Int64s]:
    """Wanted files with a hit, row group by row group."""
    for number, groups in probe.parts:
        file = search.entries[number]
        footer = read_footer(search.io, file, search.definition)
        start, stop = _group_slices(search, footer, keys[0])
        with naming_file(file.path), search.io.new_input(file.path).open() as stream:
            opened = WholeFile(stream, footer.metadata)
            pages = PageReader(stream, file.path, file.size, footer.rows.tolist())
            for group in groups:
                mine = [column.slice(start[group], stop[group] - start[group]) for column in keys]
                few = _entries_in(pages, group, search.names, probe.spans.get((number, group)))
                entries = opened.read_group(group, search.names) if few is None else few
                yield _matched(search, entries, mine)


def _entries_in(pages: PageReader, group: int, names: Sequence[str], stretches: Int64s | None) -> pa.Table | None:
    """The entries in some stretches of a row group; None where all of it is to be read."""
    if stretches is None:
        return None
    batches = [pages.stretch(group, names, *stretch) for stretch in stretches.tolist()]
    known = [batch for batch in batches if batch is not None]
    return pa.Table.from_batches(known) if len(known) == len(batches) else None


def _matched(search: KeySearch, entries: pa.Table, keys: Sequence[pa.Array]) -> Int64s:
    ordinals = _ordinals(search, entries.column(_FILE_ID))
    wanted = np.flatnonzero(ordinals >= 0)
    if len(wanted) < len(ordinals):
        entries, ordinals = entries.take(pa.array(wanted)), ordinals[wanted]
    stored = [column.canonical(entries.column(i)) for i, column in enumerate(search.columns)]
    return np.unique(ordinals[KeyMatcher(keys).match(stored) != UNMATCHED])


def _ordinals(search: KeySearch, file_ids: pa.ChunkedArray) -> Int64s:
    numbers = file_ids.to_numpy()
    known = np.where(numbers < len(search.ordinal_of), numbers, -1)
    return np.append(search.ordinal_of, -1)[known]


def _distinct(keys: Sequence[pa.Array]) -> list[pa.Array]:
    """Distinct rows, ascending by the first column."""
    if len(keys) == 1:
        values = keys[0].unique()
        return [values.take(pc.sort_indices(values))]
    table = pa.table(list(keys), names=[key_name(i) for i in range(len(keys))])
    table = table.group_by(table.column_names).aggregate([]).sort_by(key_name(0))
    return [column.combine_chunks() for column in table.columns]


def _group_slices(search: KeySearch, footer: Footer, keys: pa.Array) -> tuple[Int64s, Int64s]:
    bounds, column = footer.bounds(key_name(0)), search.columns[0]
    return _slices(keys, column.canonical(bounds.lower), column.canonical(bounds.upper))


def _slices(keys: pa.Array, lower: pa.Array, upper: pa.Array) -> tuple[Int64s, Int64s]:
    """Of sorted keys those within each pair of bounds; all of them where a bound is not known."""
    start, stop = SortedKeys(keys).slices(lower, upper)
    unknown = null_rows([lower, upper])
    start[unknown], stop[unknown] = 0, len(keys)
    return start, stop

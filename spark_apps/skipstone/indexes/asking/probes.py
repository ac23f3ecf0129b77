"""One question to one index: which of its row groups have to be read for a test, what that costs, and reading them.

Called by lookup and by index-only answers. Must not weigh whether asking pays: lookup does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from skipstone_core.indexing.use import ReadCost

from skipstone.indexes.asking.hits import HitCollector, IndexHits
from skipstone.indexes.asking.rowgroups import Footer, RowGroups, naming_file, read_footer
from skipstone.indexes.definition import entry_schema
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.keytests import Test, index_expression, tested_columns
from skipstone.indexes.ranges import BoundsColumn, files_that_may_match
from skipstone.indexes.tables import IndexFile
from skipstone.tables.parquetfiles import WholeFile

#: Columns of an entry that say where its row is.
PLACE = ("file_id", "row_group", "pos")
#: After so many hits, and whenever they have doubled, they are looked at: more of them may be pointless.
FIRST_CHECK = 16 * 1024


@dataclass(frozen=True)
class EntryPart:
    """Row groups of an entry file."""

    file: IndexFile
    footer: Footer
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Probe:
    """What has to be read of ``index`` to answer ``test``."""

    index: FoundIndex
    test: Test
    parts: tuple[EntryPart, ...]
    cost: ReadCost

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the index table that it reads: the keys tested, and where their rows are."""
        return (*_key_names(self.index, self.test), *PLACE)


def entry_files(index: FoundIndex, test: Test) -> tuple[IndexFile, ...]:
    """Entry files whose key bounds may hold a hit."""
    stored = {field.name: field.field_id for field in index.index.table.schema().fields}
    columns = {number: BoundsColumn(stored[name], None) for number, (name, _) in index.key_columns().items()}
    mask = files_that_may_match(test, index.bounds, columns)
    return tuple(file for file in index.index.entries if mask[file.ordinal])


def plan_probe(index: FoundIndex, test: Test, files: Sequence[IndexFile]) -> Probe:
    """The row groups of ``files`` that may hold a hit. Raises UnreadableIndexFile."""
    footers = RowGroups([read_footer(index.index.table.io, file, index.storages) for file in files])
    columns = {number: BoundsColumn(place, None) for place, number in enumerate(index.key_columns())}
    mask = files_that_may_match(test, footers, columns) if len(footers) else np.empty(0, np.bool_)
    names = (*_key_names(index, test), *PLACE)
    parts, cost = [], ReadCost()
    for number, (file, footer) in enumerate(zip(files, footers.footers, strict=True)):
        groups = np.flatnonzero(mask[footers.starts[number] : footers.starts[number + 1]])
        if len(groups):
            parts.append(EntryPart(file, footer, tuple(groups.tolist())))
            cost += ReadCost(1, footer.cost_of(groups, names))
    return Probe(index, test, tuple(parts), cost)


def _key_names(index: FoundIndex, test: Test) -> tuple[str, ...]:
    keys = index.key_columns()
    return tuple(sorted({keys[number][0] for number in tested_columns(test) if number in keys}))


def read_hits(probe: Probe, are_worth_it: Callable[[IndexHits], bool]) -> tuple[IndexHits, bool]:
    """The hits of a probe, and whether these are all: reading stops when they are not ``are_worth_it`` any more.

    Raises UnreadableIndexFile.
    """
    collector, next_check = HitCollector(probe.index.covered), FIRST_CHECK
    for entries in read_entries(probe, probe.columns):
        ordinals = probe.index.files.ordinals_of(entries["file_id"])
        groups, positions = (entries[name].to_numpy().astype(np.int64) for name in PLACE[1:])
        live = ordinals >= 0
        collector.add(ordinals[live], groups[live], positions[live])
        if collector.count >= next_check:
            next_check = 2 * collector.count
            if not are_worth_it(collector.hits()):
                return collector.hits(), False
    return collector.hits(), True


def read_entries(probe: Probe, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The entries that pass the probe's test, ``columns`` of them (those tested among them), not empty."""
    condition = index_expression(probe.test, probe.index.key_columns())
    schema = entry_schema(probe.index.storages)
    for part in probe.parts:
        yield from _read_part(
            probe.index.index.table.io, part, pa.schema([schema.field(n) for n in columns]), condition
        )


def _read_part(io: FileIO, part: EntryPart, schema: pa.Schema, condition: pc.Expression | None) -> Iterator[pa.Table]:
    with naming_file(part.file.path), io.new_input(part.file.path).open() as stream:
        for batch in WholeFile(stream, part.footer.metadata).batches(schema.names, part.groups):
            found = pa.Table.from_batches([batch]).cast(schema)
            found = found if condition is None else found.filter(condition)
            if found.num_rows:
                yield found

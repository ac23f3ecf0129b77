"""The store of an index whose entries are in HBase.

Cover rows name the generation of each file, and commit after its pages are written; a generation proves by its pages
that it is all there. So whatever happens to HBase, or ends a run between two writes, costs time and never rows:
generations that no cover row names are removed later, and files of generations that lost a page are entered again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.contract.stores import HBaseRef
from skipstone_core.history.commits import Committed, Outcome, Unknown
from skipstone_core.indexing.indexes import MERGE_FAN_IN, SortedRun, plan_run_merge
from skipstone_core.indexing.use import NotUsed, ReadCost, is_worthwhile
from skipstone_core.keys import KeyType

from skipstone.indexes.asking.lookup import no_gain, unreadable
from skipstone.indexes.building.build import (
    BuildSite,
    balanced,
    entry_columns_of,
    nobody_else_entered,
    split,
    write_covers,
)
from skipstone.indexes.building.entries import EntrySource
from skipstone.indexes.building.waves import BuildPower, MissingUnit, task_count
from skipstone.indexes.coverage import GENERATION, read_covers
from skipstone.indexes.damage import DamagedFile, Withdrawal
from skipstone.indexes.found import FoundIndex, IndexRefusal
from skipstone.indexes.keytests import Test
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.stores.hbase.asking import (
    PageAsking,
    PagePlace,
    PageSearch,
    PointProbe,
    bound_points,
    point_hashes,
)
from skipstone.indexes.stores.hbase.client import HBaseTable, Row, StoreTableMissing, StoreUnavailable
from skipstone.indexes.stores.hbase.generations import (
    Generation,
    encode_generation,
    held_generations,
    id_of_cell,
    is_cell,
    new_id,
    seconds_of,
)
from skipstone.indexes.stores.hbase.hashing import is_hashed_alike
from skipstone.indexes.stores.hbase.merging import PageMerge, merge_pages, slot_bits
from skipstone.indexes.stores.hbase.pages import MAX_LEVEL, level_for, row_key
from skipstone.indexes.stores.hbase.writing import ENTRY_BYTES, PageTask, write_entries
from skipstone.indexes.stores.port import KeyFinder, ProbeTerms, StoredEntries, StoreSize
from skipstone.indexes.tables import IndexTable
from skipstone.indexes.upkeep.expiry import READERS_SECONDS
from skipstone.tables.committing.commits import TableCommit
from skipstone.tables.committing.writing import WrittenFiles, commit_written
from skipstone.tables.filesets import pin_table

#: Generations that a merge replaced, as a JSON object of id to the second since 1970 when it did.
RETIRED_PROPERTY = "skipstone.index.retired"
#: A generation that no commit names is removed when it is so old: nobody writes one for so long.
ORPHAN_SECONDS = 24 * 3600
#: Pages of each level at which a short look sees whether anything is lost.
LOOKED_PAGES = 64
#: Buffers that a wave fills in each task: it is one commit, and each buffer is a cell in every page.
_BUFFERS = 4
#: Upper bits of pages by which the rows of an index are scanned.
_PREFIXES = 256
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HBaseStore:
    """The entries of ``index`` in the table of HBase that ``ref`` names. ``clock``: seconds since 1970."""

    index: IndexTable
    ref: HBaseRef
    clock: Callable[[], float] = time.time

    @property
    def key(self) -> bytes:
        """What tells rows of this index from those of others: an index that is made again has another UUID."""
        return UUID(str(self.index.table.metadata.table_uuid)).bytes

    def place(self, covers: pa.Table) -> PagePlace:
        """Where the generations of ``covers`` are."""
        return PagePlace(self.ref, self.key, held_generations(covers))

    # --- what is there ---

    def find_damage(self, covers: pa.Table) -> tuple[DamagedFile, ...]:
        """See EntryStore: looks at some pages of each level, which tells a store that was emptied or set back."""
        place, table = self.place(covers), HBaseTable(self.ref)
        asking = PageAsking(place, table)
        try:
            asking.look(_looked_pages)
        except StoreTableMissing:
            return tuple(self._damaged(held.generation.id, "are gone, with the whole table") for held in place.held)
        finally:
            table.close()
        return tuple(self._damaged(lost, f"have a page that {how}") for lost, how in asking.lost.items())

    def _damaged(self, generation: str, how: str) -> DamagedFile:
        return DamagedFile(f"{self.ref}#{generation}", how, "entries")

    def confirm_damage(self, covers: pa.Table, error: UnreadableIndexFile) -> tuple[DamagedFile, ...]:
        """See EntryStore: a page that the store does not give although it answers is lost."""
        return self.find_damage(covers) or (DamagedFile(error.path, error.problem, "entries"),)

    def plan_withdrawal(self, covers: pa.Table, damage: Sequence[DamagedFile]) -> Withdrawal:
        """See EntryStore: all files of a generation that lost something."""
        lost = {file.path.rpartition("#")[2] for file in damage}
        is_covered = np.ones(covers.num_rows, np.bool_)
        for held in held_generations(covers):
            if held.generation.id in lost:
                is_covered &= ~np.isin(covers["file_id"].to_numpy(), held.file_ids)
        return Withdrawal((), is_covered)

    def size(self, covers: pa.Table) -> StoreSize:
        """See EntryStore."""
        generations = [held.generation for held in held_generations(covers)]
        runs = _runs(generations)
        to_merge = sum(run.rows for run in plan_run_merge(runs))
        rows, nbytes = sum(known.rows for known in generations), sum(known.nbytes for known in generations)
        return StoreSize(rows, nbytes, to_merge)

    # --- building ---

    def wave_weight(self, power: BuildPower, units: Sequence[MissingUnit]) -> int:
        """See EntryStore: so many rows as fill the buffers of all tasks a few times."""
        weight = sum(unit.weight for unit in units)
        return max(1, min(weight, _BUFFERS * power.tasks * power.buffer_bytes // ENTRY_BYTES))

    def enter(self, site: BuildSite, sources: Sequence[EntrySource]) -> StoredEntries:
        """See EntryStore: a new generation."""
        table = HBaseTable(self.ref)
        try:
            table.ensure()
        finally:
            table.close()
        rows = sum(source.file.records for source in sources)
        name, level = new_id(self.clock()), level_for(rows)
        count = task_count(rows, site.tasks.parallelism)
        parts = balanced([part for source in sources for part in split(source, count)], count)
        columns, buffer_rows = entry_columns_of(site, self.index), max(1, site.buffer_bytes // ENTRY_BYTES)
        tasks = [PageTask(tuple(part), columns, self.ref, self.key, name, level, buffer_rows) for part in parts if part]
        results = site.tasks.run(write_entries, tasks)
        written = Generation(
            id=name,
            level=level,
            parts=tuple(sorted(part for result in results for part in result.parts)),
            rows=sum(result.rows for result in results),
            nbytes=sum(result.nbytes for result in results),
        )
        skipped = tuple(file for result in results for file in result.skipped)
        return StoredEntries((), skipped, written.rows, encode_generation(written))

    def discard(self, stored: StoredEntries) -> None:
        """See EntryStore; what cannot be removed now is removed as an orphan later."""
        covers = pa.table({"generation": [stored.generation], "file_id": pa.array([0], pa.int32())})
        generation = held_generations(covers)[0].generation
        try:
            self._remove({generation.id: generation.level})
        except StoreUnavailable as error:
            _log.warning("entries %s of %s stay for now: %s", generation.id, self.index.name, error)

    # --- keeping ---

    def rows_to_merge(self, dropped: frozenset[int]) -> int | None:
        """See EntryStore."""
        generations = self._due(read_covers(self.index), dropped)
        if not generations and len(self.index.covers) < MERGE_FAN_IN:
            return None
        return sum(generation.rows for generation in generations)

    def compact(self, site: BuildSite, dropped: frozenset[int]) -> Outcome | None:
        """See EntryStore: generations of a size become one; with ``dropped`` file ids all of them do."""
        covers = read_covers(self.index)
        due = self._due(covers, dropped)
        if not due and len(self.index.covers) < MERGE_FAN_IN:
            return None
        kept = covers.filter(pc.invert(pc.is_in(covers["file_id"], value_set=pa.array(sorted(dropped), pa.int32()))))
        merged = self._merge(site, due, kept, dropped) if due else None
        renamed = kept if merged is None else _renamed(kept, {generation.id for generation in due}, merged)
        level = max(file.level for file in self.index.covers) + 1
        removed = tuple(self.index.files.data_file(file.ordinal) for file in self.index.covers)

        def write(written: WrittenFiles) -> TableCommit:
            return TableCommit(
                pinned=pin_table(self.index.table),
                added=written.note(write_covers(self.index, renamed, site.run_id, level)),
                removed=removed,
                summary={"skipstone.run": site.run_id, "skipstone.merge": str(len(due))},
                properties={RETIRED_PROPERTY: json.dumps(self._retired(due))},
                guard=nobody_else_entered,
            )

        outcome = commit_written(site.commit_site(self.index), self.index.table, write)
        if merged is not None and not isinstance(outcome, Committed | Unknown):
            self.discard(StoredEntries((), (), 0, encode_generation(merged)))
        return outcome

    def _due(self, covers: pa.Table, dropped: frozenset[int]) -> list[Generation]:
        generations = [held.generation for held in held_generations(covers)]
        if dropped:
            return generations
        chosen = {run.sequence for run in plan_run_merge(_runs(generations))}
        return [generation for number, generation in enumerate(generations) if number in chosen]

    def _merge(self, site: BuildSite, due: Sequence[Generation], kept: pa.Table, dropped: frozenset[int]) -> Generation:
        rows = _rows_of(kept, {generation.id for generation in due})
        name, level = new_id(self.clock()), level_for(rows)
        bits = slot_bits(sum(generation.rows for generation in due), level)
        slots, count = range(1 << bits), min(1 << bits, site.tasks.parallelism)
        tasks = [
            PageMerge(self.ref, self.key, tuple(due), dropped, name, level, bits, tuple(slots[number::count]))
            for number in range(count)
        ]
        results = site.tasks.run(merge_pages, tasks)
        lost = next((result.lost for result in results if result.lost), None)
        if lost is not None:
            raise UnreadableIndexFile(f"{self.ref}#{lost[0]}", f"have a page that {lost[1]}")
        return Generation(name, level, (0,), rows, sum(result.nbytes for result in results))

    def _retired(self, due: Sequence[Generation]) -> dict[str, int]:
        """Generations that were replaced, and still may be asked by who found them before."""
        now = int(self.clock())
        known = {name: since for name, since in retired(self.index).items() if since > now - ORPHAN_SECONDS}
        return known | {generation.id: now for generation in due}

    def tidy(self, covers: pa.Table) -> None:
        """See EntryStore: what cannot be removed now is left to the next call."""
        named = {held.generation.id for held in held_generations(covers)}
        try:
            self._remove(self._unused(named))
        except StoreUnavailable as error:
            _log.warning("entries of %s that nobody needs stay for now: %s", self.index.name, error)

    def _unused(self, named: set[str]) -> dict[str, int]:
        """Generations that can be removed, with their levels.

        The first page of each level has a cell of every generation, so it tells of all of them.
        """
        rows = {row_key(self.key, level, 0): level for level in range(0, MAX_LEVEL + 1, 2)}
        table, unused, now, since = HBaseTable(self.ref), dict[str, int](), self.clock(), retired(self.index)
        try:
            for row, cells in table.get(list(rows)).items():
                for generation in {id_of_cell(name) for name in cells if is_cell(name)} - named:
                    replaced = since.get(generation)
                    age = now - seconds_of(generation) if replaced is None else now - replaced
                    if age > (ORPHAN_SECONDS if replaced is None else READERS_SECONDS):
                        unused[generation] = rows[row]
        finally:
            table.close()
        return unused

    def _remove(self, generations: Mapping[str, int]) -> None:
        """Remove the cells of generations, given with their levels."""
        table = HBaseTable(self.ref)
        try:
            for level in {*generations.values()}:
                ids = {name for name, at in generations.items() if at == level}
                table.remove(_cells(table, self.key, level, ids))
        except StoreTableMissing:
            pass
        finally:
            table.close()

    def drop(self) -> str:
        """See EntryStore: nobody has to wait for a store that is gone for good."""
        table = HBaseTable(self.ref)
        try:
            for first in range(_PREFIXES):
                table.remove(table.scan_names(bytes([first]) + self.key))
        except StoreTableMissing:
            return ""
        except StoreUnavailable as error:
            rows = f"those with the bytes {self.key.hex()} after the first one"
            return f"rows of {self.ref} were not removed, {rows}: {error.strerror}"
        finally:
            table.close()
        return ""

    # --- asking ---

    def serves(self, test: Test) -> bool:
        """See EntryStore: values of all columns."""
        return bound_points(test, self.index.definition.field_ids) is not None

    def probe(self, index: FoundIndex, test: Test, savings: ReadCost, terms: ProbeTerms) -> PointProbe | IndexRefusal:
        """See EntryStore."""
        points = bound_points(test, self.index.definition.field_ids)
        if points is None:
            message = f"an index in {self.ref.type} serves only conditions that name values of all its columns"
            return IndexRefusal(NotUsed.LEADING_COLUMN_NOT_BOUND, message)
        try:
            hashes = point_hashes(points, self.index.definition.key_storages)
            place = self.place(index.cover_rows)
            cost = place.cost(hashes)
        except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never an answer
            return unreadable(error)
        if not is_worthwhile(cost, savings, terms.limits):
            return no_gain(cost, savings)
        return PointProbe(index, test, index.keys, (), (), cost, cost, place, hashes)

    def bound(self, kinds: Sequence[KeyType | None]) -> int:
        """See EntryStore: by all columns or none, and by decimals of the scale that the index has."""
        pairs = zip(self.index.definition.key_storages, kinds, strict=True)
        is_whole = all(kind is not None and is_hashed_alike(storage, kind) for storage, kind in pairs)
        return len(kinds) if is_whole else 0

    def search(
        self, index: FoundIndex, kinds: Sequence[KeyType], wanted: npt.NDArray[np.bool_], savings: ReadCost
    ) -> KeyFinder:
        """See EntryStore."""
        return PageSearch(self.place(index.cover_rows), tuple(kinds), index.wanted_ordinals(wanted), savings)


def _looked_pages(level: int) -> list[int]:
    """Pages from all over, of which each stands for a stretch of rows that a server of the store has."""
    places = np.linspace(0, (1 << level) - 1, min(1 << level, LOOKED_PAGES)).astype(np.int64)
    return [int(place) for place in np.unique(places)]


def _runs(generations: Sequence[Generation]) -> list[SortedRun]:
    """Generations as runs, of which those of about the same size are merged."""
    return [SortedRun(0, number, 0, generation.rows) for number, generation in enumerate(generations)]


def _rows_of(covers: pa.Table, ids: set[str]) -> int:
    chosen = [held.file_ids for held in held_generations(covers) if held.generation.id in ids]
    file_ids = pa.array(np.concatenate([np.empty(0, np.int64), *chosen]).astype(np.int32))
    return int(pc.sum(covers["records"].filter(pc.is_in(covers["file_id"], value_set=file_ids))).as_py() or 0)


def _renamed(covers: pa.Table, ids: set[str], merged: Generation) -> pa.Table:
    """Cover rows of which those of some generations are of ``merged``."""
    names = [
        encode_generation(merged) if held.generation.id in ids else encode_generation(held.generation)
        for held in held_generations(covers)
    ]
    coded = covers["generation"].combine_chunks().dictionary_encode()
    values = pa.array(names, pa.string()).take(coded.indices)
    return covers.set_column(covers.schema.get_field_index(GENERATION.name), GENERATION, values)


def _cells(table: HBaseTable, key: bytes, level: int, ids: set[str]) -> Iterator[Row]:
    """The cells of some generations in all rows of a level."""
    for first in range(min(_PREFIXES, 1 << level)):
        prefix = row_key(key, level, first << max(0, level - 8))[: 1 + len(key) + 1]
        for row in table.scan_names(prefix):
            if chosen := [cell for cell in row.cells if id_of_cell(cell.name) in ids]:
                yield Row(row.key, chosen)


def retired(index: IndexTable) -> dict[str, int]:
    """Generations that merges replaced, with when they did."""
    try:
        known = json.loads(index.table.properties.get(RETIRED_PROPERTY, "{}"))
        return {str(name): int(since) for name, since in known.items()}
    except (ValueError, AttributeError, TypeError):
        return {}

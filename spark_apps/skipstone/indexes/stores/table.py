"""The built-in store: entries are files of the index table, sorted by key.

What its methods do is in the rooms that they name. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.history.commits import Outcome
from skipstone_core.indexing.indexes import plan_run_merge
from skipstone_core.indexing.use import ReadCost
from skipstone_core.keys import KeyType

from skipstone.files.writer import to_data_files
from skipstone.indexes.asking.keyprobe import key_search
from skipstone.indexes.asking.lookup import worthwhile_probe
from skipstone.indexes.asking.probes import Probe
from skipstone.indexes.building.build import BuildSite, build_tasks
from skipstone.indexes.building.entries import EntrySource, build_entries
from skipstone.indexes.building.waves import BuildPower, MissingUnit, wave_weight
from skipstone.indexes.damage import DamagedFile, Withdrawal, find_damage, is_fully_readable, plan_withdrawal
from skipstone.indexes.found import FoundIndex, IndexRefusal
from skipstone.indexes.keytests import Test, bounds_leading
from skipstone.indexes.kinds import kind_of
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.stores.port import KeyFinder, ProbeTerms, StoredEntries, StoreSize
from skipstone.indexes.tables import IndexTable, sorted_runs
from skipstone.indexes.upkeep.compaction import compact_index, rows_to_merge
from skipstone.tables.committing.writing import WrittenFiles


@dataclass(frozen=True)
class TableStore:
    """The entries in the table of ``index``."""

    index: IndexTable

    def find_damage(self, _covers: pa.Table) -> tuple[DamagedFile, ...]:
        """See EntryStore: looks at size and footer of each file."""
        return find_damage(self.index)

    def confirm_damage(self, covers: pa.Table, error: UnreadableIndexFile) -> tuple[DamagedFile, ...]:
        """See EntryStore: a file that the storage gives whole, and that cannot be read, is damaged."""
        damage = self.find_damage(covers)
        if damage or not is_fully_readable(self.index.table.io, error.path):
            return damage
        return (DamagedFile(error.path, f"is damaged: {error.problem}"),)

    def plan_withdrawal(self, covers: pa.Table, damage: Sequence[DamagedFile]) -> Withdrawal:
        """See EntryStore."""
        return plan_withdrawal(self.index, covers, damage)

    def size(self, _covers: pa.Table) -> StoreSize:
        """See EntryStore."""
        entries = self.index.entries
        to_merge = sum(run.rows for run in plan_run_merge(sorted_runs(entries)))
        return StoreSize(sum(file.records for file in entries), sum(file.size for file in entries), to_merge)

    def wave_weight(self, power: BuildPower, units: Sequence[MissingUnit]) -> int:
        """See EntryStore."""
        return wave_weight(power, self.index.definition, units)

    def enter(self, site: BuildSite, sources: Sequence[EntrySource]) -> StoredEntries:
        """See EntryStore: sorted runs, a file each or one per bucket."""
        results = site.tasks.run(build_entries, build_tasks(site, self.index, sources))
        written = tuple(file for result in results for file in result.written)
        skipped = tuple(file for result in results for file in result.skipped)
        return StoredEntries(written, skipped, sum(file.records for file in written))

    def discard(self, stored: StoredEntries) -> None:
        """See EntryStore."""
        files = WrittenFiles(self.index.table)
        files.note(to_data_files([written.to_row() for written in stored.written], self.index.table))
        files.discard()

    def rows_to_merge(self, dropped: frozenset[int]) -> int | None:
        """See EntryStore."""
        return rows_to_merge(self.index, dropped)

    def compact(self, site: BuildSite, dropped: frozenset[int]) -> Outcome | None:
        """See EntryStore."""
        return compact_index(site, self.index, dropped)

    def tidy(self, _covers: pa.Table) -> None:
        """See EntryStore: files go with the snapshots that name them."""

    def drop(self) -> str:
        """See EntryStore: entries go with the table."""
        return ""

    def serves(self, test: Test) -> bool:
        """See EntryStore: else the index would be read from end to end."""
        return bounds_leading(test, self.index.definition.field_ids[0])

    def probe(self, index: FoundIndex, test: Test, savings: ReadCost, terms: ProbeTerms) -> Probe | IndexRefusal:
        """See EntryStore."""
        return worthwhile_probe(index, test, savings, terms.columns, terms.limits)

    def bound(self, kinds: Sequence[KeyType | None]) -> int:
        """See EntryStore: by any leading columns."""
        if not kind_of(self.index.definition).tells_values:
            return 0
        return next((place for place, kind in enumerate(kinds) if kind is None), len(kinds))

    def search(
        self, index: FoundIndex, kinds: Sequence[KeyType], wanted: npt.NDArray[np.bool_], savings: ReadCost
    ) -> KeyFinder:
        """See EntryStore."""
        return key_search(index, kinds, wanted, savings)

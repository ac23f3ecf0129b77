"""The port of stores: what is asked of whatever holds the entries of an index.

Coverage is never a store's: cover rows in the index table say which files are covered, commit with the index, and
travel in time with it. A store keeps entries, proves that they are all there, and finds those of some keys. There are
two: the index table itself (``table``), and HBase (``hbase``). Whoever has an index asks ``store_of``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.history.commits import Outcome
from skipstone_core.indexing.use import CostLimits, ReadCost
from skipstone_core.keys import KeyType

from skipstone.files.writer import WrittenFile
from skipstone.indexes.damage import DamagedFile, Withdrawal
from skipstone.indexes.keytests import Test
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.tables import IndexTable

if TYPE_CHECKING:  # the port is below what it names: an index is found by its store
    from skipstone.indexes.asking.keyprobe import KeyProbe
    from skipstone.indexes.asking.probes import Probe, ProbeColumns
    from skipstone.indexes.building.build import BuildSite
    from skipstone.indexes.building.entries import EntrySource, SkippedFile
    from skipstone.indexes.building.waves import BuildPower, MissingUnit
    from skipstone.indexes.found import FoundIndex, IndexRefusal


@dataclass(frozen=True)
class StoreSize:
    """Entries of an index, bytes that they take, and entries that a reindex would merge now."""

    entries: int
    bytes: int
    rows_to_merge: int


@dataclass(frozen=True)
class StoredEntries:
    """Entries that are written and not committed yet.

    ``written``: files of the index table with them, none where they are in a store. ``generation``: by which cover rows
    name them there. ``skipped``: files that could not be entered. ``entries``: how many were.
    """

    written: tuple[WrittenFile, ...]
    skipped: tuple[SkippedFile, ...]
    entries: int
    generation: str = ""


class KeyFinder(Protocol):
    """A search of many keys, as a merge asks. Picklable: it is asked in the driver or in executors."""

    def plan(self, keys: Sequence[pa.Array]) -> KeyProbe:
        """Return what is read for ``keys`` (canonical columns, in the order of the index), and its cost.

        Raises UnreadableIndexFile, OSError.
        """

    def hits(self, probe: KeyProbe, keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """Return the wanted files that hold one of ``keys``, or that nothing is known of, ascending.

        Raises UnreadableIndexFile, OSError.
        """


class EntryStore(Protocol):
    """What holds the entries of one index, as the index table was when it was opened.

    Whatever goes wrong is OSError when the store does not answer, UnreadableIndexFile when entries are lost.
    """

    # What is there

    def find_damage(self, covers: pa.Table) -> tuple[DamagedFile, ...]:
        """Return what is found to be lost or damaged by a short look; ``covers``: the cover rows."""

    def confirm_damage(self, covers: pa.Table, error: UnreadableIndexFile) -> tuple[DamagedFile, ...]:
        """Return the damage after reading entries failed by ``error``; empty when only the store may have failed."""

    def plan_withdrawal(self, covers: pa.Table, damage: Sequence[DamagedFile]) -> Withdrawal:
        """Return which cover rows count no more because of ``damage``."""

    def size(self, covers: pa.Table) -> StoreSize:
        """Return how much there is."""

    # Building

    def wave_weight(self, power: BuildPower, units: Sequence[MissingUnit]) -> int:
        """How much of ``units`` to enter at once, in rows."""

    def enter(self, site: BuildSite, sources: Sequence[EntrySource]) -> StoredEntries:
        """Write the entries of ``sources``. Raises what a failing task raises."""

    def discard(self, stored: StoredEntries) -> None:
        """Remove entries that are proven not to have been committed."""

    # Keeping

    def rows_to_merge(self, dropped: frozenset[int]) -> int | None:
        """How many entries ``compact`` would merge; None when it would do nothing."""

    def compact(self, site: BuildSite, dropped: frozenset[int]) -> Outcome | None:
        """Merge what is due, without entries of ``dropped`` file ids; None when nothing is due.

        One commit. Raises UnreadableIndexFile with nothing changed.
        """

    def tidy(self, covers: pa.Table) -> None:
        """Remove what no commit of the index names and nobody can be reading any more."""

    def drop(self) -> str:
        """Remove all entries that are not in the index table. Return why they stay, as a clause; empty: they do not."""

    # Asking

    def serves(self, test: Test) -> bool:
        """Return whether the entries for ``test`` can be found without reading all of them."""

    def probe(self, index: FoundIndex, test: Test, savings: ReadCost, terms: ProbeTerms) -> Probe | IndexRefusal:
        """Return what to read for ``test``, or why that is not worth ``savings`` at most."""

    def bound(self, kinds: Sequence[KeyType | None]) -> int:
        """How many leading columns a search binds; ``kinds``: types in which keys of each column compare, None: none.

        0: it cannot be searched by these.
        """

    def search(
        self, index: FoundIndex, kinds: Sequence[KeyType], wanted: npt.NDArray[np.bool_], savings: ReadCost
    ) -> KeyFinder:
        """How to search for keys of the first ``len(kinds)`` columns in the ``wanted`` files."""


@dataclass(frozen=True)
class ProbeTerms:
    """What a probe reads besides what its test looks at, and the limits by which that pays off."""

    columns: ProbeColumns
    limits: CostLimits


def store_of(index: IndexTable) -> EntryStore:
    """What holds the entries of an index."""
    from skipstone.indexes.stores.opening import open_store

    return open_store(index)

"""Finds the indexes of a table and what each covers of one snapshot, or says why one cannot be used.

Called by the query planner. What an index table holds is remembered by its metadata location, so only the catalog is
asked again. Must not read entries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import TTLCache
from propcache.api import cached_property
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.contract.requests import levels_of
from skipstone_core.ids import index_table_prefix
from skipstone_core.indexing.use import NotUsed, ReadCost, covers_too_little
from skipstone_core.reasons import Reason

from skipstone.caches import ByteCache
from skipstone.indexes.coverage import (
    COVER_SCHEMA,
    Coverage,
    UnreadableIndex,
    cover_files,
    read_covers,
    segment_coverage,
)
from skipstone.indexes.definition import (
    EntryColumn,
    StoredDefinition,
    definition_problem,
    entry_columns,
    stored_definition,
    unused_below_percent,
)
from skipstone.indexes.keytests import AllTests, AnyTest, Test
from skipstone.indexes.ranges import KnownBounds
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import IndexFile, IndexTable, load_index_table, open_index
from skipstone.tables.filesets import FileSet

INDEX_CACHE_BYTES = 64 * 1024 * 1024
COVERAGE_CACHE_BYTES = 64 * 1024 * 1024
#: Of how many tables heads are kept.
_TABLES_KEPT = 1024
#: About what one file of an index table takes.
_FILE_BYTES = 512
#: Names of index tables, each with where its metadata is.
HeadNames = tuple[tuple[str, str], ...]
_FOREIGN = "it was made for another table or by another version"


@dataclass(frozen=True)
class IndexRefusal:
    """Why an index is not used: the code and a sentence without a full stop.

    ``cost``: of reading it, as far as that was weighed.
    """

    code: NotUsed
    message: str
    cost: ReadCost | None = None


@dataclass(frozen=True)
class IndexProblem:
    """An index that cannot be used now, and why."""

    name: str
    refusal: IndexRefusal


@dataclass(frozen=True)
class CoveredFiles:
    """Coverage of one FileSet, and back from the index's file ids to ordinals (-1: not live).

    ``digest`` of the FileSet tells whether it is the same one.
    """

    digest: bytes
    coverage: Coverage
    ordinal_of: npt.NDArray[np.int64]
    segments: int
    missing_segments: tuple[int, ...]

    def ordinals_of(self, file_ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Ordinals of the files that entries name; -1 for those that the snapshot does not hold."""
        numbers = file_ids.to_numpy()
        known = np.where(numbers < len(self.ordinal_of), numbers, -1)
        return np.append(self.ordinal_of, -1)[known]

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        arrays = (self.coverage.covered, self.coverage.file_ids, self.ordinal_of)
        return sum(int(array.nbytes) for array in arrays)


@dataclass(frozen=True)
class FoundIndex:
    """An index of a table with its coverage of one FileSet.

    ``bounds``: of its own files. ``replaced``: why a condition may not mean its columns. ``cover_rows``: all of them.
    """

    index: IndexTable
    files: CoveredFiles
    bounds: KnownBounds
    replaced: str = ""
    cover_rows: pa.Table = field(default_factory=COVER_SCHEMA.empty_table)

    @property
    def name(self) -> str:
        """Name of the index table."""
        return self.index.name

    @property
    def covered(self) -> npt.NDArray[np.bool_]:
        """One boolean per file."""
        return self.files.coverage.covered

    @cached_property
    def columns(self) -> dict[int, EntryColumn]:
        """Return the columns of entries by field id of the table: keys in index order, then included values."""
        return entry_columns(self.index.definition)

    @property
    def keys(self) -> dict[int, EntryColumn]:
        """The keys among ``columns``."""
        return {number: column for number, column in self.columns.items() if column.is_key}

    def serves(self, test: Test) -> bool:
        """Return whether the entries for a test can be found without reading all of them."""
        return store_of(self.index).serves(test)

    def wanted_ordinals(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The file of each file id; -1 for those that are not live, or not among ``wanted`` files."""
        ordinal_of = self.files.ordinal_of.copy()
        live = ordinal_of >= 0
        ordinal_of[live] = np.where(wanted[ordinal_of[live]], ordinal_of[live], -1)
        return ordinal_of

    def serves_part(self, test: Test) -> bool:
        """Return whether it serves some part of a test that needs several indexes."""
        parts = test.parts if isinstance(test, AllTests | AnyTest) else ()
        return any(self.serves(part) or self.serves_part(part) for part in parts)


class IndexHeads:
    """Which index tables a table has, and each as it was last loaded: of one catalog, for a short time.

    For who plans many reads at once. A head that is out of date costs time only, since coverage is by file.
    """

    def __init__(self, seconds: float, tables: int = _TABLES_KEPT, timer: Callable[[], float] = time.monotonic) -> None:
        """``seconds``: how long the catalog is not asked again. ``tables``: of how many tables heads are kept."""
        self._kept: TTLCache[tuple[Identifier, str | None], tuple[_Head, ...]] = TTLCache(tables, seconds, timer)
        self._lock = threading.Lock()

    def load(self, catalog: Catalog, table: Identifier, namespace: str | None) -> tuple[_Head, ...]:
        """The index tables of ``table``, by name. Raises what the catalog raises when it cannot list them."""
        key = (table, namespace)
        with self._lock:
            known = self._kept.get(key)
        if known is None:
            known = _load_heads(catalog, table, namespace)
            if not any(head.error for head in known):
                with self._lock:
                    self._kept[key] = known
        return known


class NotedHeads(IndexHeads):
    """Loads heads from ``known``, and notes which were loaded: what is made by them is as good while they are the same.

    ``used``: index tables by name with their metadata locations; empty while nobody has asked for them; None when some
    could not be loaded.
    """

    def __init__(self, known: IndexHeads) -> None:
        """Nothing is loaded yet."""
        self._known = known
        self.used: HeadNames | None = ()

    def load(self, catalog: Catalog, table: Identifier, namespace: str | None) -> tuple[_Head, ...]:
        """See ``IndexHeads.load``."""
        self.used = None
        loaded = self._known.load(catalog, table, namespace)
        if not any(head.error for head in loaded):
            self.used = (("loaded", ""), *((head.identifier[-1], _location(head)) for head in loaded))
        return loaded


def _location(head: _Head) -> str:
    return "" if head.table is None else head.table.metadata_location


class _Head(NamedTuple):
    """An index table as it is now; None when it is gone. ``error``: why it could not be loaded."""

    identifier: Identifier
    table: Table | None
    error: Exception | None = None


def _load_heads(catalog: Catalog, table: Identifier, namespace: str | None) -> tuple[_Head, ...]:
    return tuple(_load_head(catalog, identifier) for identifier in _listed(catalog, table, namespace))


def _load_head(catalog: Catalog, identifier: Identifier) -> _Head:
    try:
        return _Head(identifier, load_index_table(catalog, identifier))
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an index must cost time, never an answer
        return _Head(identifier, None, error)


def find_indexes(
    catalog: Catalog, table: Identifier, files: FileSet, namespace: str | None = None, heads: IndexHeads | None = None
) -> tuple[tuple[FoundIndex, ...], tuple[IndexProblem, ...]]:
    """All usable indexes of ``table`` and those that are not; ``namespace``: of the index tables.

    ``heads``: what is known of them, if they need not be as they are now.
    """
    loaded = heads.load(catalog, table, namespace) if heads else _load_heads(catalog, table, namespace)
    indexes = [_find(head, files) for head in loaded]
    usable = tuple(index for index in indexes if isinstance(index, FoundIndex))
    return usable, tuple(index for index in indexes if isinstance(index, IndexProblem))


def first_fields(catalog: Catalog, table: Table, namespace: str | None = None) -> frozenset[int]:
    """Field ids of the columns that come first in an index of ``table``: no other condition is served.

    Raises what the catalog raises.
    """
    fields: set[int] = set()
    for identifier in _listed(catalog, table.name(), namespace):
        index = load_index_table(catalog, identifier)
        stored = None if index is None else stored_definition(index.properties)
        if stored is not None and stored.table_uuid == str(table.metadata.table_uuid):
            fields.add(stored.definition.field_ids[0])
    return frozenset(fields)


def _listed(catalog: Catalog, table: Identifier, namespace: str | None) -> list[Identifier]:
    prefix = index_table_prefix(table[-1])
    levels = levels_of(namespace) if namespace else table[:-1]
    names = [identifier[-1] for identifier in catalog.list_tables(levels)]
    return [(*levels, name) for name in sorted(names) if name.startswith(prefix)]


def _find(head: _Head, files: FileSet) -> FoundIndex | IndexProblem:
    name = head.identifier[-1]
    try:
        if head.error is not None:
            raise head.error
        opened = None if head.table is None else _open(head.table, files.table_uuid)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an index must cost time, never an answer
        message = str(UnreadableIndex(head.identifier, error))
        return IndexProblem(name, IndexRefusal(NotUsed.UNREADABLE, message))
    if opened is None:
        return IndexProblem(name, IndexRefusal(NotUsed.DEFINITION_MISMATCH, _FOREIGN))
    index, content = opened
    problem = definition_problem(files.schema, index.stored)
    if problem and problem.reason is not Reason.COLUMN_REPLACED:
        return IndexProblem(name, IndexRefusal(NotUsed.DEFINITION_MISMATCH, problem.message))
    covered = _covered_files(index, files, content.cover_rows)
    if refusal := _too_little(covered, files, unused_below_percent(index.table.properties)):
        return IndexProblem(name, refusal)
    return FoundIndex(index, covered, content.bounds, problem.message if problem else "", content.cover_rows)


def _too_little(covered: CoveredFiles, files: FileSet, percent: int) -> IndexRefusal | None:
    """Why an index that covers too few rows is left alone."""
    records = files.files["records"].to_numpy()
    rows, live = int(records[covered.coverage.covered].sum()), int(records.sum())
    if not covers_too_little(rows, live, percent):
        return None
    message = f"it covers {100 * rows // live} % of the rows, and spec.unusedBelowPercent is {percent}"
    return IndexRefusal(NotUsed.TOO_LITTLE_COVERED, message)


# --- what is remembered ---


@dataclass(frozen=True)
class _Content:
    """The content of one metadata location of an index table, without the table: its credentials expire."""

    stored: StoredDefinition
    files: FileSet
    entries: tuple[IndexFile, ...]
    covers: tuple[IndexFile, ...]
    cover_rows: pa.Table
    bounds: KnownBounds

    @property
    def nbytes(self) -> int:
        return int(self.cover_rows.nbytes) + _FILE_BYTES * (1 + len(self.entries) + len(self.covers))


_contents: ByteCache[str, _Content] = ByteCache("indexes", INDEX_CACHE_BYTES, lambda content: content.nbytes)
_coverages: ByteCache[tuple[str, str, int | None], CoveredFiles] = ByteCache(
    "coverage", COVERAGE_CACHE_BYTES, lambda covered: covered.nbytes
)


def _open(table: Table, table_uuid: str) -> tuple[IndexTable, _Content] | None:
    """The index of the table ``table_uuid`` and what it holds; None when it is of another one."""
    stored = stored_definition(table.properties)
    if stored is None or stored.table_uuid != table_uuid:
        return None
    content = _contents.get(table.metadata_location, lambda: _read_content(table))
    index = IndexTable(table, content.stored, content.files, content.entries, content.covers)
    return index, content


def _read_content(table: Table) -> _Content:
    index = open_index(table)
    if index is None:
        raise ValueError(f"{table.metadata_location} is not an index table")
    return _Content(
        index.stored, index.files, index.entries, index.covers, read_covers(index), KnownBounds(index.files)
    )


def _covered_files(index: IndexTable, files: FileSet, covers: pa.Table) -> CoveredFiles:
    key = (index.table.metadata_location, files.table_uuid, files.snapshot_id)
    coverage = _coverages.get(key, lambda: cover_snapshot(files, covers))
    return coverage if coverage.digest == files.digest else cover_snapshot(files, covers)


def cover_snapshot(files: FileSet, covers: pa.Table) -> CoveredFiles:
    """Return the ``files`` in ``covers``, but those that the snapshot lists twice, as an entry means one file."""
    known = cover_files(files, covers)
    coverage = _once(known)
    ordinal_of = np.full(int(coverage.file_ids.max(initial=-1)) + 1, -1, np.int64)
    ordinal_of[coverage.file_ids[coverage.covered]] = np.flatnonzero(coverage.covered)
    segments = segment_coverage(files, known)
    missing = tuple(segment.segment for segment in segments if not segment.is_synced)
    return CoveredFiles(files.digest, coverage, ordinal_of, len(segments), missing)


def _once(known: Coverage) -> Coverage:
    times = np.bincount(known.file_ids[known.covered])
    once = known.covered.copy()
    once[known.covered] = times[known.file_ids[known.covered]] == 1
    return Coverage(once, np.where(once, known.file_ids, -1).astype(np.int32))

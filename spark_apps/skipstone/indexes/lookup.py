"""Looks values up in an index: which row groups of which files of a snapshot may hold matching rows.

Called by the query planner in the driver; reads index files with PyArrow, no Spark. Exact about what it does not
know: a file that the index does not cover is never reported as without hits. Must not read the indexed table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog import Catalog
from skipstone_core.ids import index_table_prefix
from skipstone_core.reasons import Reason

from skipstone.indexes.coverage import Coverage, UnreadableIndex, cover_files, read_index, segment_coverage
from skipstone.indexes.definition import definition_problem, key_name
from skipstone.indexes.entries import entry_schema
from skipstone.indexes.predicates import AllOf, AnyOf, Test, bounds_leading, index_expression
from skipstone.indexes.ranges import BoundsColumn, files_that_may_match
from skipstone.indexes.scans import scan_entries
from skipstone.indexes.tables import IndexFile, IndexTable
from skipstone.tables.filesets import FileSet

#: A location is a file's ordinal, then its row group in the low bits.
ROW_GROUP_BITS = 32


@dataclass(frozen=True)
class FoundIndex:
    """An index of a table with its coverage of one FileSet."""

    index: IndexTable
    coverage: Coverage
    segments: int
    missing_segments: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the index table."""
        return self.index.name

    @property
    def leading(self) -> int:
        """Field id of the first indexed column."""
        return self.index.definition.field_ids[0]

    def key_columns(self) -> dict[int, tuple[str, str]]:
        """Field id of the table to (key column, storage type)."""
        columns = self.index.definition.columns
        return {column.field_id: (key_name(i), column.storage_type) for i, column in enumerate(columns)}

    def serves(self, test: Test) -> bool:
        """Whether the test narrows the first column: else the index would be read from end to end."""
        return bounds_leading(test, self.leading) and index_expression(test, self.key_columns()) is not None

    def serves_part(self, test: Test) -> bool:
        """Whether it serves some part of a test that needs several indexes."""
        parts = test.parts if isinstance(test, AllOf | AnyOf) else ()
        return any(self.serves(part) or self.serves_part(part) for part in parts)


@dataclass(frozen=True)
class IndexProblem:
    """An index that cannot be used now, and why."""

    name: str
    message: str


@dataclass(frozen=True)
class Hits:
    """What indexes say of a predicate, for one FileSet.

    ``covered``: one boolean per file. ``locations``: sorted unique (ordinal << 32 | row group), of covered files only.
    """

    covered: npt.NDArray[np.bool_]
    locations: npt.NDArray[np.int64]

    @property
    def ordinals(self) -> npt.NDArray[np.int64]:
        """Files with a hit, ascending, one per location."""
        return self.locations >> ROW_GROUP_BITS


def find_indexes(
    catalog: Catalog, table: tuple[str, str], files: FileSet, namespace: str | None = None
) -> tuple[tuple[FoundIndex, ...], tuple[IndexProblem, ...]]:
    """All usable indexes of ``table`` (namespace, name) and those that are not; ``namespace``: of the index tables."""
    prefix = index_table_prefix(table[1])
    names = [identifier[-1] for identifier in catalog.list_tables(namespace or table[0])]
    found = [_open(catalog, (namespace or table[0], name), files) for name in sorted(names) if name.startswith(prefix)]
    usable = tuple(one for one in found if isinstance(one, FoundIndex))
    return usable, tuple(one for one in found if isinstance(one, IndexProblem))


def _open(catalog: Catalog, identifier: tuple[str, str], files: FileSet) -> FoundIndex | IndexProblem:
    name = identifier[1]
    try:
        index, covers = read_index(catalog, identifier, files.table_uuid)
    except UnreadableIndex as error:
        return IndexProblem(name, str(error))
    if index is None:
        return IndexProblem(name, "it was made for another table or by another version")
    problem = definition_problem(files.schema, index.stored)
    if problem and problem[0] is not Reason.COLUMN_REPLACED:
        return IndexProblem(name, problem[1])
    return found_index(index, files, covers)


def found_index(index: IndexTable, files: FileSet, covers: pa.Table) -> FoundIndex:
    """The index with its coverage of ``files``."""
    coverage = cover_files(files, covers)
    segments = segment_coverage(files, coverage)
    return FoundIndex(index, coverage, len(segments), tuple(segment for segment, synced in segments if not synced))


@dataclass(frozen=True)
class LookUp:
    """What a look-up found; ``hits`` None when no index serves the test. ``failures``: sentence by index name."""

    hits: Hits | None
    failures: Mapping[str, str]


def look_up(test: Test, indexes: Sequence[FoundIndex]) -> LookUp:
    """What ``indexes`` together say of a test. An index that cannot be read covers nothing and is named."""
    failures: dict[str, str] = {}
    return LookUp(_hits(test, indexes, failures), failures)


def _hits(test: Test, indexes: Sequence[FoundIndex], failures: dict[str, str]) -> Hits | None:
    found = [_guarded(test, index, failures) for index in indexes if index.serves(test)]
    if isinstance(test, AllOf):
        unserved = (part for part in test.parts if isinstance(part, AnyOf) and not any(i.serves(part) for i in indexes))
        below = [_hits(part, indexes, failures) for part in unserved]
        found.extend(one for one in below if one is not None)
    if found:
        return reduce(both, found)
    if isinstance(test, AnyOf):
        arms = [_hits(part, indexes, failures) for part in test.parts]
        known = [arm for arm in arms if arm is not None]
        return reduce(either, known) if len(known) == len(arms) else None
    return None


def _guarded(test: Test, index: FoundIndex, failures: dict[str, str]) -> Hits:
    try:
        return _look_up_one(test, index)
    except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never an answer
        failures[index.name] = f"it cannot be read: {error}"
        return Hits(np.zeros_like(index.coverage.covered), np.empty(0, np.int64))


def both(a: Hits, b: Hits) -> Hits:
    """Hits of a conjunction: a file known to one side only follows that side."""
    only_a = a.locations[~b.covered[a.ordinals]]
    only_b = b.locations[~a.covered[b.ordinals]]
    common = np.intersect1d(a.locations, b.locations, assume_unique=True)
    return Hits(a.covered | b.covered, np.sort(np.concatenate([only_a, only_b, common])))


def either(a: Hits, b: Hits) -> Hits:
    """Hits of a disjunction: only files known to both sides are known."""
    covered = a.covered & b.covered
    locations = np.union1d(a.locations, b.locations)
    return Hits(covered, locations[covered[locations >> ROW_GROUP_BITS]])


def _look_up_one(test: Test, found: FoundIndex) -> Hits:
    condition = index_expression(test, found.key_columns())
    schema = entry_schema([column.storage_type for column in found.index.definition.columns])
    parts = [np.empty(0, np.int64)]
    for file in _entry_files(test, found):
        for batch in scan_entries((found.index.table.io, file.path), schema, condition, ("file_id", "row_group")):
            parts.append(_locations(batch, found.coverage))
    return Hits(found.coverage.covered, np.unique(np.concatenate(parts)))


def _entry_files(test: Test, found: FoundIndex) -> Iterator[IndexFile]:
    """Entry files whose key bounds may hold a hit."""
    index = found.index
    stored = {field.name: field.field_id for field in index.table.schema().fields}
    columns = {fid: BoundsColumn(stored[name], None) for fid, (name, _) in found.key_columns().items()}
    mask = files_that_may_match(test, index.files, columns)
    return (file for file in index.entries if mask[file.ordinal])


def _locations(batch: pa.RecordBatch, coverage: Coverage) -> npt.NDArray[np.int64]:
    """Locations of a batch of entries; entries of files that the snapshot does not hold are left out."""
    order = np.argsort(coverage.file_ids)
    known = coverage.file_ids[order]
    file_ids = batch["file_id"].to_numpy(zero_copy_only=False)
    at = np.minimum(np.searchsorted(known, file_ids), len(known) - 1)
    live = known[at] == file_ids
    ordinals = order[at][live].astype(np.int64)
    row_groups = batch["row_group"].to_numpy(zero_copy_only=False)[live].astype(np.int64)
    return np.unique(ordinals << ROW_GROUP_BITS | row_groups)

"""Plans an exact read of one snapshot: min/max for all files, the indexes for the files that they cover.

Called by ``read`` and by whatever shows a plan. A file is left out only when its bounds or an index that covers it
prove that no row matches. Must not read data files; whatever goes wrong with an index makes its files missing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone_core.jobs import MAX_LISTED_SEGMENTS
from skipstone_core.predicate_parser import parse_predicate
from skipstone_core.predicates import Predicate, check_types

from skipstone.indexes.keys import storage_type
from skipstone.indexes.lookup import ROW_GROUP_BITS, FoundIndex, Hits, IndexProblem, find_indexes, look_up
from skipstone.indexes.predicates import Maybe, Test, plan_test
from skipstone.indexes.ranges import BoundsColumn, files_that_may_match
from skipstone.tables.filesets import FileSet, read_file_set

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read. ``snapshot_id`` None: the current snapshot. ``index_namespace``: where index tables are, when not
    beside the table."""

    snapshot_id: int | None = None
    index_namespace: str | None = None
    use_indexes: bool = True


@dataclass(frozen=True)
class Funnel:
    """How many files were left after each stage."""

    total: int
    min_max: int
    read: int


@dataclass(frozen=True)
class IndexUse:
    """One index of the table: how much it covers, whether it was used, and if not, why."""

    name: str
    segments: int
    missing_segments: tuple[int, ...]
    used: bool
    reason: str
    is_broken: bool = False

    def text(self) -> str:
        """One line for explain."""
        synced = self.segments - len(self.missing_segments)
        lag = ", ".join(str(segment) for segment in self.missing_segments[:MAX_LISTED_SEGMENTS])
        verb = "used" if self.used else f"not used: {self.reason}"
        return f"index {self.name}: {verb}; {synced}/{self.segments} segments" + (f", missing {lag}" if lag else "")


@dataclass(frozen=True)
class ReadPlan:
    """The files to read, ascending; ``row_groups`` by ordinal, files that it does not name are read whole."""

    files: FileSet
    predicate: Predicate | None
    ordinals: tuple[int, ...]
    row_groups: dict[int, tuple[int, ...]]
    funnel: Funnel
    indexes: tuple[IndexUse, ...]

    def text(self) -> str:
        """The plan for people."""
        condition = self.predicate.text if self.predicate else "everything"
        counts = f"files: {self.funnel.total} total, {self.funnel.min_max} after min/max, {self.funnel.read} read"
        return "\n".join([f"read {condition}", counts, *(use.text() for use in self.indexes)])


def plan_read(table: Table, condition: str | Predicate | None = None, options: ReadOptions | None = None) -> ReadPlan:
    """Plan a read of the rows of ``table`` on which ``condition`` is true.

    Raises BadSpec when the condition cannot be read or does not fit the table's columns.
    """
    chosen = options or ReadOptions()
    files = read_file_set(table, chosen.snapshot_id)
    predicate = checked_predicate(condition, files.schema)
    test = plan_test(predicate.root, files.schema) if predicate else Maybe()
    candidates = files_that_may_match(test, files, _bounds_columns(files.schema))
    hits, uses = _index_hits(table, files, test, chosen)
    kept = candidates if hits is None else candidates & (~hits.covered | _has_hit(hits))
    ordinals = tuple(int(ordinal) for ordinal in np.flatnonzero(kept))
    funnel = Funnel(len(files), int(candidates.sum()), len(ordinals))
    return ReadPlan(files, predicate, ordinals, _row_groups(hits, kept), funnel, uses)


def checked_predicate(condition: str | Predicate | None, schema: Schema) -> Predicate | None:
    """The condition parsed and checked against the columns of ``schema``."""
    if condition is None:
        return None
    parsed = parse_predicate(condition, field="filter") if isinstance(condition, str) else condition
    return check_types(parsed, {field.name: str(field.field_type) for field in schema.fields}, field="filter")


def _bounds_columns(schema: Schema) -> dict[int, BoundsColumn]:
    storages = ((field.field_id, storage_type(field.field_type)) for field in schema.fields)
    return {field_id: BoundsColumn(field_id, storage) for field_id, storage in storages if storage}


def _index_hits(
    table: Table, files: FileSet, test: Test, options: ReadOptions
) -> tuple[Hits | None, tuple[IndexUse, ...]]:
    if isinstance(test, Maybe) or not options.use_indexes or len(files) == 0:
        return None, ()
    namespace, name = ".".join(table.name()[:-1]), table.name()[-1]
    try:
        found, problems = find_indexes(table.catalog, (namespace, name), files, options.index_namespace)
    except Exception as error:  # noqa: BLE001 - a catalog that cannot list tables must not stop a read
        logger.warning("the indexes of %s.%s cannot be listed, reading without them: %s", namespace, name, error)
        return None, ()
    result = look_up(test, found)
    uses = (*(_use(index, test, result.failures) for index in found), *(_unusable(problem) for problem in problems))
    for use in uses:
        if not use.used and use.is_broken:
            logger.warning("%s; its segments are read by min/max", use.text())
    return result.hits, uses


def _use(index: FoundIndex, test: Test, failures: Mapping[str, str]) -> IndexUse:
    broken = failures.get(index.name, "")
    serves = index.serves(test) or index.serves_part(test)
    reason = broken or ("" if serves else "the condition does not narrow its first column")
    return IndexUse(index.name, index.segments, index.missing_segments, not reason, reason, is_broken=bool(broken))


def _unusable(problem: IndexProblem) -> IndexUse:
    return IndexUse(problem.name, 0, (), used=False, reason=problem.message, is_broken=True)


def _has_hit(hits: Hits) -> npt.NDArray[np.bool_]:
    mask = np.zeros(len(hits.covered), np.bool_)
    mask[hits.ordinals] = True
    return mask


def _row_groups(hits: Hits | None, kept: npt.NDArray[np.bool_]) -> dict[int, tuple[int, ...]]:
    """Row groups to read of the files that an index covers."""
    groups: dict[int, list[int]] = {}
    for location in () if hits is None else hits.locations.tolist():
        ordinal, group = location >> ROW_GROUP_BITS, location & ((1 << ROW_GROUP_BITS) - 1)
        if kept[ordinal]:
            groups.setdefault(ordinal, []).append(group)
    return {ordinal: tuple(found) for ordinal, found in groups.items()}

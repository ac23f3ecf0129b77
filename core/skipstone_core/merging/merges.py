"""The rules of a CDC merge: what a request may ask, which columns feed which, how work is divided, what is counted.

The merge run asks here before it touches data. Must not know files' contents, Arrow or Spark.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum
from itertools import takewhile

from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import ColumnSpec, MergeAction, MergeKey, MergeTask, PruningStrategy
from skipstone_core.errors import BadSpec
from skipstone_core.funnel import PruneStage
from skipstone_core.keys import KeyType, key_type
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.paths import like_hint, split_path
from skipstone_core.language.predicates import ColumnRef, Predicate, check_types
from skipstone_core.merging.clauses import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    BoundClause,
    BoundKey,
    MergeColumn,
    Sides,
    bind_clauses,
    by_name,
)
from skipstone_core.reasons import Reason

__all__ = [
    "COMPOSED_DELETE",
    "COMPOSED_UPDATE",
    "KEPT_COLUMN",
    "SEVERAL_COLUMN",
    "BoundClause",
    "BoundKey",
    "MergeColumn",
    "MergeCounts",
    "MergePlan",
    "PartialRows",
    "RepeatedKeys",
    "StoredSequence",
    "bind_keys",
    "check_sequence",
    "pack_by_bytes",
    "plan_merge",
    "switched_off",
]

MAX_KEYS = 32
UNTYPED_FORMATS = frozenset({SourceFormat.CSV, SourceFormat.JSON})
#: Boolean: the source has several rows of the key, and this one counts.
SEVERAL_COLUMN = "_skipstone_several"
#: The column of ``PartialRows.kept``, whoever makes it.
KEPT_COLUMN = "_skipstone_kept"


class RepeatedKeys(StrEnum):
    """What becomes of several source rows that have one key.

    LAST: the one with the greatest sequence counts. COMPOSED: they are applied one after the other, by sequence. ANY:
    they all delete the same rows, so one of them is enough. EACH: each is inserted where its key matches nothing.
    """

    REFUSED = "Refused"
    LAST = "Last"
    COMPOSED = "Composed"
    ANY = "Any"
    EACH = "Each"


@dataclass(frozen=True, kw_only=True)
class StoredSequence:
    """Where rows keep the sequence of their last change: a change from ``source`` that is less is too late."""

    target: str
    source: str
    type: KeyType


@dataclass(frozen=True, kw_only=True)
class PartialRows:
    """Source rows that do not have all their columns. ``columns``: those that may be left out, by position of a bit.

    ``kept`` and ``missing`` are source columns that hold a bit for each of ``columns``, the first in the highest bit of
    the first byte. ``kept``: an update of present columns leaves the table's value as it is. ``missing``: the row
    cannot be inserted, because its value exists and the source does not have it; None: no source row says so.
    """

    columns: tuple[str, ...]
    kept: str
    missing: str | None = None


@dataclass(frozen=True, kw_only=True)
class MergePlan:
    """A merge checked against both schemas. Clauses keep their order: the first whose ``when`` holds wins.

    ``target_where``: two rows that do not satisfy it do not match, whatever their keys. ``partial``: which columns
    source rows may lack; None: they have all. ``kinds``: the source column of a change feed that says whether a row is
    to be there.
    """

    keys: tuple[BoundKey, ...]
    when_matched: tuple[BoundClause, ...]
    when_not_matched: tuple[BoundClause, ...]
    sequence_by: str | None
    source_columns: tuple[str, ...]
    target_columns: tuple[str, ...]
    time_zone: str = "UTC"
    when_not_matched_by_source: tuple[BoundClause, ...] = ()
    stored_sequence: StoredSequence | None = None
    target_where: Predicate | None = None
    partial: PartialRows | None = None
    kinds: str | None = None

    @property
    def target_clauses(self) -> tuple[BoundClause, ...]:
        """The clauses that change rows of the table: those of matched rows, then those of rows without a source row.

        In a merge that ``composes`` changes, what several of them make of a row comes last.
        """
        own = (*self.when_matched, *self.when_not_matched_by_source)
        return (*own, COMPOSED_UPDATE, COMPOSED_DELETE) if self.composes else own

    @property
    def repeated_keys(self) -> RepeatedKeys:
        """What becomes of several source rows of one key; without a sequence as Delta Lake allows it.

        Where each decides itself whether it matches, one cannot stand for another.
        """
        if self.sequence_by is not None:
            return RepeatedKeys.COMPOSED if self.partial is not None else RepeatedKeys.LAST
        if self.where_source:
            return RepeatedKeys.REFUSED
        if len(self.when_matched) == 1 and _deletes_all(self.when_matched[0]):
            return RepeatedKeys.EACH if self.when_not_matched else RepeatedKeys.ANY
        is_insert_only = not self.when_matched and not self.when_not_matched_by_source
        return RepeatedKeys.EACH if is_insert_only else RepeatedKeys.REFUSED

    @property
    def judged(self) -> frozenset[ColumnRef]:
        """The columns of the table that its conditions name."""
        clauses = (*self.when_matched, *self.when_not_matched_by_source)
        conditions = [clause.when for clause in clauses if clause.when] + [*filter(None, [self.target_where])]
        return frozenset(column for condition in conditions for column in condition.columns if column.side == "target")

    def held_in(self, name: str) -> str:
        """The column of the table that ``name`` is, or the one that holds the field ``name``."""
        return name if name in self.target_columns else split_path(name)[0]

    @property
    def where_source(self) -> tuple[str, ...]:
        """The source columns that ``target_where`` names."""
        columns = self.target_where.columns if self.target_where else ()
        return tuple(sorted(column.name for column in columns if column.side == "source"))

    @property
    def matching(self) -> tuple[str, ...]:
        """The source columns that decide which rows match."""
        return (*(key.source for key in self.keys), *self.where_source)

    @property
    def sure_clauses(self) -> tuple[BoundClause, ...]:
        """The first clauses of matched rows whose conditions ask the source only: they hold without a row, too."""
        return tuple(takewhile(_asks_source_only, self.when_matched))

    @property
    def tells_deletes(self) -> bool:
        """Return whether a change alone may say that it deletes its row."""
        return any(clause.action is MergeAction.DELETE for clause in self.sure_clauses)

    @property
    def marks_several(self) -> bool:
        """Return whether the row that counts of several has to be marked: another one may have made the row."""
        return self.repeated_keys is RepeatedKeys.LAST and self.tells_deletes

    @property
    def composes(self) -> bool:
        """Return whether several changes of one key are applied one after the other."""
        return self.repeated_keys is RepeatedKeys.COMPOSED


#: What several changes of one row come to: its new values are worked out before, or the row is gone.
COMPOSED_UPDATE, COMPOSED_DELETE = (BoundClause(action=action) for action in (MergeAction.UPDATE, MergeAction.DELETE))


def _asks_source_only(clause: BoundClause) -> bool:
    return clause.when is None or all(column.side == "source" for column in clause.when.columns)


def _deletes_all(clause: BoundClause) -> bool:
    return clause.action is MergeAction.DELETE and clause.when is None


@dataclass(frozen=True, kw_only=True)
class MergeCounts:
    """What a merge did, as in the report.

    ``rows_source`` is the sum of ``rows_matching`` (they have a row of the table with their key), ``rows_inserted``,
    ``rows_unmatched`` (neither, because no clause inserts them), ``rows_superseded`` (a later change of their key
    counts instead, or includes them), ``rows_rejected`` (they cannot be applied) and ``rows_waiting`` (they are left
    out with one of these). ``rows_unmatched_deletes`` and ``rows_unmatched_updates``: rows that a change deletes, or in
    a change feed updates, and that neither the table has nor an earlier change of the source made; an update inserts
    its row, so that it counts among the inserted too. ``rows_ignored``: matches whose change was older than the row.
    ``rows_copied``: rows of rewritten files that stayed as they were. ``files_marked``: files that stay, with changed
    rows deleted by position. Bytes are of data files: those that may hold a source key, those that left the table,
    those written in their place (or with the rows that updates changed), those with inserted rows; ``bytes_deletes``
    are of files with positions.
    """

    files_total: int = 0
    files_candidate: int = 0
    files_touched: int = 0
    files_rewritten: int = 0
    files_marked: int = 0
    rows_source: int = 0
    rows_matching: int = 0
    rows_superseded: int = 0
    rows_unmatched: int = 0
    rows_unmatched_deletes: int = 0
    rows_unmatched_updates: int = 0
    rows_matched: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    rows_ignored: int = 0
    rows_copied: int = 0
    rows_rejected: int = 0
    rows_waiting: int = 0
    bytes_candidate: int = 0
    bytes_removed: int = 0
    bytes_rewritten: int = 0
    bytes_inserted: int = 0
    bytes_deletes: int = 0


def plan_merge(
    task: MergeTask, target: Sequence[MergeColumn], source: Sequence[MergeColumn], zone: tzinfo = UTC
) -> MergePlan:
    """Check ``task`` against the schemas of both sides and bind its names.

    Raises BadSpec naming the field: missing or mismatched keys, unknown columns, predicates that do not parse or fit,
    clauses that can never work.
    """
    keys = bind_keys(task, target, source)
    stored = bind_stored_sequence(task, target, source)
    sides = Sides(target, source, keys, zone, task.source.mapping, (stored.target, stored.source) if stored else None)
    matched = bind_clauses(MATCHED, task.when_matched, sides)
    unmatched = bind_clauses(NOT_MATCHED, task.when_not_matched, sides)
    by_source = bind_clauses(NOT_MATCHED_BY_SOURCE, task.when_not_matched_by_source, sides)
    if not (matched or unmatched or by_source):
        raise BadSpec(Reason.INVALID_SPEC, "name at least one clause", field="spec.whenMatched")
    check_sequence(task, target, source)
    where = bind_target_where(task, target, source, zone)
    used = _used_source_columns(task, keys, (*matched, *unmatched), where, source)
    partial = PartialRows(columns=used, kept=KEPT_COLUMN) if any(clause.present for clause in matched) else None
    return MergePlan(
        keys=keys,
        when_matched=matched,
        when_not_matched=unmatched,
        when_not_matched_by_source=by_source,
        sequence_by=task.sequence_by,
        stored_sequence=stored,
        source_columns=(*used, KEPT_COLUMN) if partial else used,
        partial=partial,
        target_columns=tuple(column.name for column in target if not column.is_field),
        time_zone=task.time_zone,
        target_where=where,
    )


def bind_target_where(
    task: MergeTask, target: Sequence[MergeColumn], source: Sequence[MergeColumn], zone: tzinfo = UTC
) -> Predicate | None:
    """The condition on pairs of rows, checked. Raises BadSpec naming the field."""
    if task.target_where is None:
        return None
    where = "spec.targetWhere"
    types = {f"target.{column.name}": column.type for column in target}
    types |= {f"source.{column.name}": column.type for column in source}
    predicate = check_types(parse_predicate(task.target_where, field=where), types, field=where, zone=zone)
    named = sorted(str(column) for column in predicate.columns if column.side == "source")
    if named and task.source.change_format is not None:
        message = (
            f"changes of a feed match by their keys, so {named[0]} cannot be named here: name columns of the table"
        )
        raise BadSpec(Reason.INVALID_SPEC, message, field=where)
    if named and task.sequence_by is not None and any(clause.present for clause in task.when_matched):
        message = (
            f"several changes of a key are applied one after the other with columns Present, so {named[0]} cannot be "
            "named here: write it into the when of the clauses"
        )
        raise BadSpec(Reason.INVALID_SPEC, message, field=where)
    return predicate


def bind_keys(task: MergeTask, target: Sequence[MergeColumn], source: Sequence[MergeColumn]) -> tuple[BoundKey, ...]:
    """The keys with their common types. Raises BadSpec (KeyColumnMissing, KeyTypeMismatch) naming the key."""
    if not 1 <= len(task.keys) <= MAX_KEYS:
        raise BadSpec(Reason.INVALID_SPEC, f"name 1 to {MAX_KEYS} key columns", field="spec.keys")
    if len({key.target for key in task.keys}) < len(task.keys):
        raise BadSpec(Reason.INVALID_SPEC, "a target column is named twice", field="spec.keys")
    targets, sources = by_name(target), by_name(source)
    needs_columns = "a change feed" if task.source.change_format is not None else None
    needs_columns = needs_columns or (
        "columns Present" if any(clause.present for clause in task.when_matched) else None
    )
    for i, key in enumerate(task.keys):
        if needs_columns and key.target in targets and targets[key.target].is_field:
            message = f"{key.target} is a field within a column of the table, and with {needs_columns} keys are columns"
            hint = "pair columns, or name the columns that change in set"
            raise BadSpec(Reason.KEY_COLUMN_MISSING, f"{message}: {hint}", field=f"spec.keys[{i}]")
    return tuple(
        _bind_key(f"spec.keys[{i}]", key, targets, sources, task.source.format) for i, key in enumerate(task.keys)
    )


def check_sequence(task: MergeTask, target: Sequence[MergeColumn], source: Sequence[MergeColumn]) -> None:
    """Refuse a sequence column that is missing, has no order, or is untyped text by accident (BadSpec)."""
    if task.sequence_by is None:
        return
    where = "spec.sequenceBy"
    column = by_name(source).get(task.sequence_by)
    if column is None:
        raise _no_source(task.sequence_by, source, where)
    if key_type(column.type) is None:
        raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, f"{column.name!r} is {column.type}, it has no order", field=where)
    if task.source.format in UNTYPED_FORMATS and not _is_typed(task, column.name, target):
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"the type of {column.name!r} is not known in a {task.source.format} source,"
            " so text order would decide: declare it in spec.source.columns",
            field=where,
        )


def bind_stored_sequence(
    task: MergeTask, target: Sequence[MergeColumn], source: Sequence[MergeColumn]
) -> StoredSequence | None:
    """The table's sequence column with the type in which both sides compare. Raises BadSpec naming the field."""
    name, where = task.target_sequence, "spec.targetSequence"
    if name is None:
        return None
    if task.sequence_by is None:
        message = "it needs sequenceBy, the source column whose values it keeps"
        raise BadSpec(Reason.INVALID_SPEC, message, field=where)
    stored, given = by_name(target).get(name), by_name(source).get(task.sequence_by)
    if stored is None or stored.is_field:
        message = f"the table has no column {name!r}: {like_hint(name, by_name(target))}"
        raise BadSpec(Reason.COLUMN_NOT_FOUND, message, field=where)
    if given is None:
        raise _no_source(task.sequence_by, source, "spec.sequenceBy")
    left, right = key_type(stored.type), key_type(given.type)
    common = left.common(right) if left and right else None
    if common is None:
        message = f"{name!r} is {stored.type} in the table but {given.name!r} is {given.type} in the source"
        raise BadSpec(Reason.SCHEMA_MISMATCH, f"{message}: give both one type", field=where)
    return StoredSequence(target=name, source=given.name, type=common)


def pack_by_bytes(sizes: Sequence[int], bins: int) -> tuple[tuple[int, ...], ...]:
    """Divide items among at most ``bins`` bins of about equal size: the largest first into the emptiest bin.

    Returns the indexes of each bin, ascending; no bin is empty. Deterministic.
    """
    heap = [(0, number) for number in range(max(1, bins))]
    packed: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, number = heapq.heappop(heap)
        packed[number].append(index)
        heapq.heappush(heap, (load + max(1, sizes[index]), number))
    return tuple(tuple(sorted(items)) for items in packed if items)


def switched_off(task: MergeTask) -> dict[PruneStage, str]:
    """The stages of the prune funnel that ``task`` does without, each with what says so."""
    by_strategy = {
        PruningStrategy.NONE: tuple(PruneStage),
        PruningStrategy.MIN_MAX: (PruneStage.BLOOM, PruneStage.KEY_INDEX),
    }
    off = dict.fromkeys(by_strategy.get(task.pruning, ()), f"spec.pruning.strategy is {task.pruning}")
    return off | dict.fromkeys(task.disabled_stages, "spec.pruning.disabledStages names it")


def _bind_key(
    where: str,
    key: MergeKey,
    targets: Mapping[str, MergeColumn],
    sources: Mapping[str, MergeColumn],
    kind: SourceFormat,
) -> BoundKey:
    target, source = key.target, key.source
    for side, name, columns in (("table", target, targets), ("source", source, sources)):
        if name not in columns:
            message = f"the {side} has no column {name!r}: {like_hint(name, columns)}"
            raise BadSpec(Reason.KEY_COLUMN_MISSING, message, field=where)
    left, right = key_type(targets[target].type), key_type(sources[source].type)
    common = left.common(right) if left and right else None
    if common is None:
        wanted = targets[target].type
        way_out = (
            f"declare it in spec.source.columns as {wanted}" if kind in UNTYPED_FORMATS else f"write it as {wanted}"
        )
        raise BadSpec(
            Reason.KEY_TYPE_MISMATCH,
            f"{target!r} is {wanted} in the table but {source!r} is {sources[source].type} in the source: keys need "
            f"the same type on both sides, so {way_out}",
            field=where,
        )
    return BoundKey(target=target, source=source, type=common)


def _no_source(name: str, source: Sequence[MergeColumn], where: str) -> BadSpec:
    message = f"the source has no column {name!r}: {like_hint(name, by_name(source))}"
    return BadSpec(Reason.SOURCE_COLUMN_MISSING, message, field=where)


def _is_typed(task: MergeTask, name: str, target: Sequence[MergeColumn]) -> bool:
    declared: Iterable[ColumnSpec] = task.source.columns
    mapped = {mapping.from_: mapping.column for mapping in task.source.mapping}
    return name in {c.name for c in declared} or mapped.get(name, name) in {c.name for c in target if not c.is_field}


def _used_source_columns(
    task: MergeTask,
    keys: Sequence[BoundKey],
    clauses: Sequence[BoundClause],
    where: Predicate | None,
    source: Sequence[MergeColumn],
) -> tuple[str, ...]:
    used = {key.source for key in keys} | {origin for clause in clauses for origin in clause.values.values()}
    conditions = [condition for condition in (where, *(clause.when for clause in clauses)) if condition]
    used |= {column.name for condition in conditions for column in condition.columns if column.side == "source"}
    used |= {name for clause in clauses for name in clause.computed_from("source")}
    used |= {task.sequence_by} if task.sequence_by else set()
    return tuple(column.name for column in source if column.name in used)

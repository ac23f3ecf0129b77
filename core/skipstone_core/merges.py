"""The rules of a CDC merge: what a request may ask, which columns feed which, how work is divided, what is counted.

The merge run asks here before it touches data. Must not know files' contents, Arrow or Spark.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from skipstone_core.errors import BadSpec
from skipstone_core.funnel import PruneStage
from skipstone_core.jobs import (
    ColumnMapping,
    ColumnSpec,
    MergeAction,
    MergeClause,
    MergeTask,
    PruningStrategy,
    SourceFormat,
)
from skipstone_core.keys import KeyType, key_type
from skipstone_core.predicate_parser import parse_predicate
from skipstone_core.predicates import Predicate, check_types
from skipstone_core.reasons import Reason

MAX_KEYS = 32
UNTYPED_FORMATS = frozenset({SourceFormat.CSV, SourceFormat.JSON})


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of one side: ``type`` is an Iceberg type name."""

    name: str
    type: str
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class BoundKey:
    """A merge key with the type in which both sides compare."""

    target: str
    source: str
    type: KeyType


@dataclass(frozen=True, kw_only=True)
class BoundClause:
    """A clause ready for the kernels: ``values`` maps target column to source column (empty for Delete)."""

    action: MergeAction
    when: Predicate | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MergePlan:
    """A merge checked against both schemas. Clauses keep their order: the first whose ``when`` holds wins.

    ``target_where``: a row of the table that does not satisfy it matches nothing.
    """

    keys: tuple[BoundKey, ...]
    when_matched: tuple[BoundClause, ...]
    when_not_matched: tuple[BoundClause, ...]
    sequence_by: str | None
    source_columns: tuple[str, ...]
    target_columns: tuple[str, ...]
    time_zone: str = "UTC"
    target_where: Predicate | None = None


@dataclass(frozen=True, kw_only=True)
class MergeCounts:
    """What a merge did, as in the report.

    ``rows_copied``: rows of rewritten files that stayed as they were. Bytes are of data files: those that may hold a
    source key, those that left the table, those written in their place, those with inserted rows.
    """

    files_total: int = 0
    files_candidate: int = 0
    files_touched: int = 0
    files_rewritten: int = 0
    rows_source: int = 0
    rows_matched: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    rows_copied: int = 0
    bytes_candidate: int = 0
    bytes_removed: int = 0
    bytes_rewritten: int = 0
    bytes_inserted: int = 0

    @property
    def changes_nothing(self) -> bool:
        """Whether the table would be the same without the commit."""
        return self.rows_updated == self.rows_deleted == self.rows_inserted == 0


def plan_merge(task: MergeTask, target: Sequence[Column], source: Sequence[Column], zone: tzinfo = UTC) -> MergePlan:
    """Check ``task`` against the schemas of both sides and bind its names.

    Raises BadSpec naming the field: missing or mismatched keys, unknown columns, predicates that do not parse or fit,
    clauses that can never work.
    """
    keys = bind_keys(task, target, source)
    matched = tuple(
        _bind_clause(f"spec.whenMatched[{i}]", clause, _Sides(target, source, keys, zone, task.source.mapping))
        for i, clause in enumerate(task.when_matched)
    )
    unmatched = tuple(
        _bind_clause(f"spec.whenNotMatched[{i}]", clause, _Sides(target, source, keys, zone, task.source.mapping))
        for i, clause in enumerate(task.when_not_matched)
    )
    if not matched and not unmatched:
        raise BadSpec(Reason.INVALID_SPEC, "name at least one clause", field="spec.whenMatched")
    _check_actions(matched, unmatched)
    _check_reachable("spec.whenMatched", matched)
    _check_reachable("spec.whenNotMatched", unmatched)
    check_sequence(task, target, source)
    used = _used_source_columns(task, keys, (*matched, *unmatched), source)
    return MergePlan(
        keys=keys,
        when_matched=matched,
        when_not_matched=unmatched,
        sequence_by=task.sequence_by,
        source_columns=used,
        target_columns=tuple(column.name for column in target),
        time_zone=task.time_zone,
        target_where=bind_target_where(task, target, zone),
    )


def bind_target_where(task: MergeTask, target: Sequence[Column], zone: tzinfo = UTC) -> Predicate | None:
    """The condition on target rows, checked. Raises BadSpec naming the field."""
    if task.target_where is None:
        return None
    where = "spec.targetWhere"
    types = {f"target.{column.name}": column.type for column in target}
    return check_types(parse_predicate(task.target_where, field=where), types, field=where, zone=zone)


def bind_keys(task: MergeTask, target: Sequence[Column], source: Sequence[Column]) -> tuple[BoundKey, ...]:
    """The keys with their common types. Raises BadSpec (KeyColumnMissing, KeyTypeMismatch) naming the key."""
    if not 1 <= len(task.keys) <= MAX_KEYS:
        raise BadSpec(Reason.INVALID_SPEC, f"name 1 to {MAX_KEYS} key columns", field="spec.keys")
    if len({key.target for key in task.keys}) < len(task.keys):
        raise BadSpec(Reason.INVALID_SPEC, "a target column is named twice", field="spec.keys")
    targets, sources = _by_name(target), _by_name(source)
    return tuple(_bind_key(i, key.target, key.source, (targets, sources)) for i, key in enumerate(task.keys))


def check_sequence(task: MergeTask, target: Sequence[Column], source: Sequence[Column]) -> None:
    """Refuse a sequence column that is missing, has no order, or is untyped text by accident (BadSpec)."""
    if task.sequence_by is None:
        return
    where = "spec.sequenceBy"
    column = _by_name(source).get(task.sequence_by)
    if column is None:
        raise BadSpec(Reason.SOURCE_COLUMN_MISSING, f"the source has no column {task.sequence_by!r}", field=where)
    if key_type(column.type) is None:
        raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, f"{column.name!r} is {column.type}, it has no order", field=where)
    if task.source.format in UNTYPED_FORMATS and not _is_typed(task, column.name, target):
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"the type of {column.name!r} is not known in a {task.source.format} source,"
            " so text order would decide: declare it in spec.source.columns",
            field=where,
        )


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
    by_strategy = {PruningStrategy.NONE: tuple(PruneStage), PruningStrategy.MIN_MAX: (PruneStage.KEY_INDEX,)}
    off = dict.fromkeys(by_strategy.get(task.pruning, ()), f"spec.pruning.strategy is {task.pruning}")
    return off | dict.fromkeys(task.disabled_stages, "spec.pruning.disabledStages names it")


@dataclass(frozen=True)
class _Sides:
    target: Sequence[Column]
    source: Sequence[Column]
    keys: tuple[BoundKey, ...]
    zone: tzinfo
    mapping: Sequence[ColumnMapping] = ()


def _by_name(columns: Sequence[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns}


def _bind_key(
    index: int, target: str, source: str, sides: tuple[Mapping[str, Column], Mapping[str, Column]]
) -> BoundKey:
    where, (targets, sources) = f"spec.keys[{index}]", sides
    for side, name, columns in (("table", target, targets), ("source", source, sources)):
        if name not in columns:
            raise BadSpec(Reason.KEY_COLUMN_MISSING, f"the {side} has no column {name!r}", field=where)
    left, right = key_type(targets[target].type), key_type(sources[source].type)
    common = left.common(right) if left and right else None
    if common is None:
        raise BadSpec(
            Reason.KEY_TYPE_MISMATCH,
            f"{target!r} is {targets[target].type} in the table but {source!r} is {sources[source].type} in the"
            " source: keys need the same type on both sides",
            field=where,
        )
    return BoundKey(target=target, source=source, type=common)


def _bind_clause(where: str, clause: MergeClause, sides: _Sides) -> BoundClause:
    when = _bind_when(where, clause, sides)
    if clause.action is MergeAction.DELETE:
        if clause.values:
            raise BadSpec(Reason.INVALID_SPEC, "Delete takes no columns", field=where)
        return BoundClause(action=clause.action, when=when)
    return BoundClause(action=clause.action, when=when, values=_bind_values(where, clause, sides))


def _bind_when(where: str, clause: MergeClause, sides: _Sides) -> Predicate | None:
    if clause.when is None:
        return None
    predicate = parse_predicate(clause.when, field=f"{where}.when")
    types = {f"source.{column.name}": column.type for column in sides.source}
    if not where.startswith("spec.whenNotMatched"):
        types |= {f"target.{column.name}": column.type for column in sides.target}
    return check_types(predicate, types, field=f"{where}.when", zone=sides.zone)


def _bind_values(where: str, clause: MergeClause, sides: _Sides) -> dict[str, str]:
    targets, sources = _by_name(sides.target), _by_name(sides.source)
    name = "values" if clause.action is MergeAction.INSERT else "set"
    values = dict(clause.values) if clause.values else _values_by_name(sides, clause.action)
    for column, origin in values.items():
        if column not in targets:
            raise BadSpec(Reason.COLUMN_NOT_FOUND, f"the table has no column {column!r}", field=f"{where}.{name}")
        if origin not in sources:
            raise BadSpec(
                Reason.SOURCE_COLUMN_MISSING, f"the source has no column {origin!r}", field=f"{where}.{name}.{column}"
            )
        _check_assignable(f"{where}.{name}.{column}", targets[column], sources[origin])
    if clause.action is MergeAction.INSERT:
        _check_required(f"{where}.{name}", targets, values)
    return values


def _values_by_name(sides: _Sides, action: MergeAction) -> dict[str, str]:
    """Target columns fed by the source's mapping, else by equal name; key columns of an insert by their key pair."""
    names = {column.name for column in sides.source}
    values = {column.name: column.name for column in sides.target if column.name in names}
    values |= {one.column: one.from_ for one in sides.mapping if one.from_ in names}
    if action is MergeAction.INSERT:
        values |= {key.target: key.source for key in sides.keys}
    return values


def _check_required(where: str, targets: Mapping[str, Column], values: Mapping[str, str]) -> None:
    missing = [name for name, column in targets.items() if column.required and name not in values]
    if missing:
        raise BadSpec(
            Reason.SOURCE_COLUMN_MISSING,
            f"{missing[0]!r} is required in the table and nothing feeds it: map a source column to it",
            field=where,
        )


_TYPE_NAME = re.compile(r"[(<\[]")
_WIDER = {
    "int": {"long", "float", "double", "decimal"},
    "long": {"decimal", "double", "int"},
    "float": {"double"},
    "double": {"float"},
    "date": {"timestamp"},
}


def _check_assignable(where: str, target: Column, source: Column) -> None:
    """Values must fit by family; whether each value fits its width is checked on the data."""
    left, right = (_TYPE_NAME.split(column.type, maxsplit=1)[0] for column in (target, source))
    if left == right or left in _WIDER.get(right, ()):
        return
    raise BadSpec(
        Reason.SCHEMA_MISMATCH,
        f"{source.name!r} is {source.type} in the source and cannot feed a {target.type} column",
        field=where,
    )


def _check_actions(matched: Sequence[BoundClause], unmatched: Sequence[BoundClause]) -> None:
    for i, clause in enumerate(matched):
        if clause.action is MergeAction.INSERT:
            raise BadSpec(Reason.INVALID_SPEC, "use Update or Delete", field=f"spec.whenMatched[{i}].action")
    for i, clause in enumerate(unmatched):
        if clause.action is not MergeAction.INSERT:
            raise BadSpec(Reason.INVALID_SPEC, "use Insert", field=f"spec.whenNotMatched[{i}].action")


def _check_reachable(where: str, clauses: Sequence[BoundClause]) -> None:
    for i, clause in enumerate(clauses[:-1]):
        if clause.when is None:
            raise BadSpec(
                Reason.INVALID_SPEC,
                f"clause {i} has no when and takes every row: put it last",
                field=f"{where}[{i}]",
            )


def _is_typed(task: MergeTask, name: str, target: Sequence[Column]) -> bool:
    declared: Iterable[ColumnSpec] = task.source.columns
    mapped = {mapping.from_: mapping.column for mapping in task.source.mapping}
    return name in {c.name for c in declared} or mapped.get(name, name) in {c.name for c in target}


def _used_source_columns(
    task: MergeTask, keys: Sequence[BoundKey], clauses: Sequence[BoundClause], source: Sequence[Column]
) -> tuple[str, ...]:
    used = {key.source for key in keys} | {origin for clause in clauses for origin in clause.values.values()}
    used |= {
        column.name for clause in clauses if clause.when for column in clause.when.columns if column.side == "source"
    }
    used |= {task.sequence_by} if task.sequence_by else set()
    return tuple(column.name for column in source if column.name in used)

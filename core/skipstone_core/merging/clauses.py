"""What the clauses of a merge may say: conditions, chosen columns and literals, bound to both schemas.

Called by ``merges.plan_merge``. Every refusal is one sentence that names the field. Must not know rows or files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from skipstone_core.contract.requests import ColumnMapping, MergeAction, MergeClause
from skipstone_core.errors import BadSpec
from skipstone_core.keys import KeyType
from skipstone_core.language.literals import Unfit, fit_literal
from skipstone_core.language.parser import parse_assigned, parse_predicate
from skipstone_core.language.predicates import ColumnRef, Constant, Predicate, Value, check_types
from skipstone_core.reasons import Reason


@dataclass(frozen=True, kw_only=True)
class MergeColumn:
    """A column of one side: ``type`` is an Iceberg type name. ``default``: what inserts write when nothing feeds it."""

    name: str
    type: str
    required: bool = False
    default: Value | None = None


@dataclass(frozen=True, kw_only=True)
class BoundKey:
    """A merge key with the type in which both sides compare."""

    target: str
    source: str
    type: KeyType


@dataclass(frozen=True, kw_only=True)
class BoundClause:
    """A clause ready for the kernels. Target columns get what ``values`` (source columns) or ``literals`` say.

    ``present``: those whose source column a row does not have stay as they are.
    """

    action: MergeAction
    when: Predicate | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    literals: Mapping[str, Value | None] = field(default_factory=dict)
    present: bool = False


@dataclass(frozen=True, kw_only=True)
class Role:
    """One list of clauses: ``sides`` are the columns that its conditions may name, ``assigned`` names its columns."""

    name: str
    sides: tuple[str, ...]
    actions: tuple[MergeAction, ...]
    assigned: str = "set"


MATCHED = Role(name="whenMatched", sides=("source", "target"), actions=(MergeAction.UPDATE, MergeAction.DELETE))
NOT_MATCHED = Role(name="whenNotMatched", sides=("source",), actions=(MergeAction.INSERT,), assigned="values")
NOT_MATCHED_BY_SOURCE = Role(
    name="whenNotMatchedBySource", sides=("target",), actions=(MergeAction.UPDATE, MergeAction.DELETE)
)


@dataclass(frozen=True)
class Sides:
    """What clauses are bound against. ``stored``: target to source column of the sequence that the table keeps."""

    target: Sequence[MergeColumn]
    source: Sequence[MergeColumn]
    keys: tuple[BoundKey, ...]
    zone: tzinfo = UTC
    mapping: Sequence[ColumnMapping] = ()
    stored: tuple[str, str] | None = None


def bind_clauses(role: Role, clauses: Sequence[MergeClause], sides: Sides) -> tuple[BoundClause, ...]:
    """The clauses of one list, in order. Raises BadSpec naming the field of the first that cannot work."""
    bound = tuple(_bind_clause(f"spec.{role.name}[{i}]", clause, role, sides) for i, clause in enumerate(clauses))
    for i, clause in enumerate(bound[:-1]):
        if clause.when is None:
            message = f"clause {i} has no when and takes every row: put it last"
            raise BadSpec(Reason.INVALID_SPEC, message, field=f"spec.{role.name}[{i}]")
    return bound


def check_assigned(text: str, role: Role, field_name: str = "") -> ColumnRef | Constant | None:
    """What ``text`` of set or values assigns: a source column, a literal or (None) null. Raises BadSpec."""
    value = parse_assigned(text, field=field_name)
    if not isinstance(value, ColumnRef):
        return value
    if "source" not in role.sides:
        message = f"{value} is a column, and these rows have no source row: write a literal, texts in single quotes"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field_name)
    if value.side not in ("", "source"):
        message = f"{value} is no column of the source: write source.{value.name}, or a literal"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field_name)
    return value


def by_name(columns: Sequence[MergeColumn]) -> dict[str, MergeColumn]:
    """Columns by their name."""
    return {column.name: column for column in columns}


def _bind_clause(where: str, clause: MergeClause, role: Role, sides: Sides) -> BoundClause:
    if clause.action not in role.actions:
        allowed = " or ".join(action.value for action in role.actions)
        raise BadSpec(Reason.INVALID_SPEC, f"use {allowed}", field=f"{where}.action")
    _check_present(where, clause, role)
    when = _bind_when(where, clause, role, sides)
    if clause.action is MergeAction.DELETE:
        if clause.values:
            raise BadSpec(Reason.INVALID_SPEC, "Delete takes no columns", field=where)
        return BoundClause(action=clause.action, when=when)
    path = f"{where}.{role.assigned}"
    values, literals = _bind_assigned(path, clause, role, sides)
    if clause.action is MergeAction.INSERT:
        literals = _defaults(sides.target, values) | literals
        _check_required(path, sides.target, {**literals, **values})
    return BoundClause(action=clause.action, when=when, values=values, literals=literals, present=bool(clause.present))


def _check_present(where: str, clause: MergeClause, role: Role) -> None:
    if not clause.present:
        return
    if role is not MATCHED or clause.action is not MergeAction.UPDATE:
        message = "Present is for the action Update of whenMatched only: remove it"
        raise BadSpec(Reason.INVALID_SPEC, message, field=f"{where}.columns")
    if clause.values:
        message = "Present takes columns by their names: remove set, or name columns that differ in source.mapping"
        raise BadSpec(Reason.INVALID_SPEC, message, field=f"{where}.columns")


def _bind_when(where: str, clause: MergeClause, role: Role, sides: Sides) -> Predicate | None:
    if clause.when is None:
        return None
    predicate = parse_predicate(clause.when, field=f"{where}.when")
    columns = {"source": sides.source, "target": sides.target}
    types = {f"{side}.{column.name}": column.type for side in role.sides for column in columns[side]}
    return check_types(predicate, types, field=f"{where}.when", zone=sides.zone)


def _bind_assigned(
    path: str, clause: MergeClause, role: Role, sides: Sides
) -> tuple[dict[str, str], dict[str, Value | None]]:
    """Source columns and literals by target column; without a choice, columns feed those of their own name."""
    if clause.values:
        values, literals = _chosen(path, clause.values, role, sides)
    elif "source" in role.sides:
        values, literals = _values_by_name(sides, clause.action), {}
    else:
        message = "an Update of rows that the source does not have needs set, with a literal for each column"
        raise BadSpec(Reason.INVALID_SPEC, message, field=path)
    if "source" in role.sides:
        _keep_sequence(path, sides, values, literals)
    _check_assignable(path, values, sides)
    return values, literals


def _chosen(
    path: str, texts: Mapping[str, str], role: Role, sides: Sides
) -> tuple[dict[str, str], dict[str, Value | None]]:
    values: dict[str, str] = {}
    literals: dict[str, Value | None] = {}
    targets = by_name(sides.target)
    for column, text in texts.items():
        if column not in targets:
            raise BadSpec(Reason.COLUMN_NOT_FOUND, f"the table has no column {column!r}", field=path)
        value = check_assigned(text, role, f"{path}.{column}")
        if isinstance(value, ColumnRef):
            values[column] = value.name
        else:
            literals[column] = _bind_literal(f"{path}.{column}", value, targets[column], sides.zone)
    return values, literals


def _bind_literal(field_name: str, value: Constant | None, target: MergeColumn, zone: tzinfo) -> Value | None:
    if value is None:
        if target.required:
            message = f"{target.name!r} is required in the table and cannot be null"
            raise BadSpec(Reason.INVALID_SPEC, message, field=field_name)
        return None
    try:
        return fit_literal(value.value, target.type, zone)
    except Unfit as error:
        message = f"{value.value!s} does not fit {target.name!r}, which is {target.type}: {error}"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field_name) from None


def _keep_sequence(path: str, sides: Sides, values: dict[str, str], literals: Mapping[str, Value | None]) -> None:
    """Every row that is written keeps the sequence of its change; nothing else may go there."""
    if sides.stored is None:
        return
    target, source = sides.stored
    if target in literals or values.get(target, source) != source:
        message = f"{target!r} keeps the sequence of each row's last change and is written by the merge: remove it"
        raise BadSpec(Reason.INVALID_SPEC, message, field=f"{path}.{target}")
    values[target] = source


def _values_by_name(sides: Sides, action: MergeAction) -> dict[str, str]:
    """Target columns fed by the source's mapping, else by equal name; key columns of an insert by their key pair."""
    names = {column.name for column in sides.source}
    values = {column.name: column.name for column in sides.target if column.name in names}
    values |= {one.column: one.from_ for one in sides.mapping if one.from_ in names}
    if action is MergeAction.INSERT:
        values |= {key.target: key.source for key in sides.keys}
    if sides.stored is not None:
        values[sides.stored[0]] = sides.stored[1]
    return values


def _defaults(target: Sequence[MergeColumn], values: Mapping[str, str]) -> dict[str, Value | None]:
    return {c.name: c.default for c in target if c.default is not None and c.name not in values}


def _check_required(path: str, target: Sequence[MergeColumn], fed: Mapping[str, object]) -> None:
    missing = [column.name for column in target if column.required and column.name not in fed]
    if missing:
        message = f"{missing[0]!r} is required in the table and nothing feeds it: map a source column to it"
        raise BadSpec(Reason.SOURCE_COLUMN_MISSING, message, field=path)


_TYPE_NAME = re.compile(r"[(<\[]")
#: The type of a source column that holds no value, which feeds every column.
UNKNOWN = "unknown"
_WIDER = {
    "int": {"long", "float", "double", "decimal"},
    "long": {"decimal", "double", "float", "int"},
    "float": {"double", "int", "long"},
    "double": {"float", "int", "long"},
    "decimal": {"int", "long"},
    "date": {"timestamp"},
}


def _check_assignable(path: str, values: Mapping[str, str], sides: Sides) -> None:
    """Values must fit by family; whether each value fits its width is checked on the data."""
    targets, sources = by_name(sides.target), by_name(sides.source)
    for column, origin in values.items():
        if column not in targets:
            raise BadSpec(Reason.COLUMN_NOT_FOUND, f"the table has no column {column!r}", field=path)
        if origin not in sources:
            message = f"the source has no column {origin!r}"
            raise BadSpec(Reason.SOURCE_COLUMN_MISSING, message, field=f"{path}.{column}")
        into, of = targets[column].type, sources[origin].type
        left, right = (_TYPE_NAME.split(kind, maxsplit=1)[0] for kind in (into, of))
        if UNKNOWN not in (left, right) and left != right and left not in _WIDER.get(right, ()):
            message = f"{origin!r} is {of} in the source and cannot feed a {into} column"
            raise BadSpec(Reason.SCHEMA_MISMATCH, message, field=f"{path}.{column}")

"""What the clauses of a merge may say: conditions, chosen columns, literals and expressions, bound to both schemas.

Called by ``merges.plan_merge``. Every refusal is one sentence that names the field. Must not know rows or files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo

from skipstone_core.columntypes import MOVED_ONLY, is_opaque
from skipstone_core.contract.requests import ColumnMapping, MergeAction, MergeClause
from skipstone_core.errors import BadSpec
from skipstone_core.keys import KeyType
from skipstone_core.language.expressions import (
    NULL_TYPE,
    Atom,
    Cast,
    ValueExpression,
    check_expression,
    columns_of,
    is_castable,
    plain_type,
    with_sides,
)
from skipstone_core.language.literals import Unfit, fit_literal
from skipstone_core.language.operands import DefaultValue
from skipstone_core.language.parser import Assigned, parse_assigned, parse_predicate
from skipstone_core.language.paths import join_path, like_hint, split_path
from skipstone_core.language.predicates import ColumnRef, Constant, Predicate, Value, check_types
from skipstone_core.reasons import Reason


@dataclass(frozen=True, kw_only=True)
class MergeColumn:
    """A column of one side: ``type`` is an Iceberg type name. ``default``: what inserts write when nothing feeds it.

    ``is_field``: it is a field within a column, which feeds no column by its name alone and is fed by none.
    ``lacks``: paths of fields within it that the table's column has and no file of the source; ``lacks_in_some``: and
    not all files of the source.
    """

    name: str
    type: str
    required: bool = False
    default: Value | None = None
    is_field: bool = False
    lacks: frozenset[str] = frozenset()
    lacks_in_some: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class BoundKey:
    """A merge key with the type in which both sides compare."""

    target: str
    source: str
    type: KeyType


@dataclass(frozen=True, kw_only=True)
class BoundClause:
    """A clause ready for the kernels. Target columns get what ``values`` (source columns), ``literals`` or
    ``expressions`` say; no column is in two of them. ``present``: those whose source column a row does not have stay as
    they are. ``fields``: those that are fields within columns, by their paths. ``kept``: by column, the paths of fields
    within it that stay as they are. ``read``: columns of the table that hold these fields, or that expressions read.
    """

    action: MergeAction
    when: Predicate | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    literals: Mapping[str, Value | None] = field(default_factory=dict)
    expressions: Mapping[str, ValueExpression] = field(default_factory=dict)
    present: bool = False
    fields: frozenset[str] = frozenset()
    kept: Mapping[str, frozenset[str]] = field(default_factory=dict)
    read: frozenset[str] = frozenset()

    @property
    def assigned(self) -> frozenset[str]:
        """The target columns that it gives a value, or of which a field gets one."""
        names = (*self.values, *self.literals, *self.expressions)
        return frozenset(split_path(name)[0] if name in self.fields else name for name in names)

    def computed_from(self, side: str) -> frozenset[str]:
        """The columns of ``side`` that its expressions read; of the table also those whose fields get a value."""
        if side == "target":
            return self.read
        columns = (column for expression in self.expressions.values() for column in expression.columns)
        return frozenset(column.name for column in columns if column.side == side)


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


def bind_values(path: str, values: Mapping[str, str], role: Role, sides: Sides) -> BoundClause:
    """What gives each of some target columns its value, as in ``set`` of a clause. Raises BadSpec naming the field."""
    bound = _chosen(path, MergeClause(action=MergeAction.INSERT, values=dict(values)), role, sides)
    _check_assignable(path, bound, sides)
    return bound


def check_assigned(text: str, role: Role, field_name: str = "") -> Assigned:
    """What ``text`` of set or values assigns: a source column, a literal, the default, (None) null or an expression.

    Columns come with their side. Raises BadSpec for text that does not parse, and for a side that has no row here.
    """
    value = parse_assigned(text, field=field_name)
    if value is None or isinstance(value, Constant | DefaultValue):
        return value
    term = with_sides(Atom(value) if isinstance(value, ColumnRef) else value)
    wrong = next((column for column in columns_of(term) if column.side not in role.sides), None)
    if wrong is not None and wrong.side == "source":
        message = f"{text} is a column" if isinstance(value, ColumnRef) else f"{wrong} is a column of the source"
        hint = "name columns as target.x, write texts in single quotes"
        raise BadSpec(Reason.INVALID_SPEC, f"{message}, and these rows have no source row: {hint}", field=field_name)
    if wrong is not None:
        message = f"{wrong} is a column of the table, and these rows are not in it: name columns as source.x"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field_name)
    if isinstance(term, Atom) and isinstance(term.operand, ColumnRef) and term.operand.side == "source":
        return term.operand
    return term


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
    bound = replace(_bind_assigned(path, clause, role, sides), when=when, present=bool(clause.present))
    if clause.action is MergeAction.INSERT:
        bound = replace(bound, literals={**_defaults(sides.target, bound), **bound.literals})
        _check_required(path, sides.target, bound.assigned)
        _check_inserted_keys(path, sides, bound.assigned)
    return bound


def _check_inserted_keys(path: str, sides: Sides, fed: Collection[str]) -> None:
    """Refuse new rows without the struct that holds their key. A key that is a column may be null, as in MERGE INTO."""
    targets = by_name(sides.target)
    for key in sides.keys:
        column = targets[key.target]
        root = _root(column)
        if column.is_field and root not in fed:
            message = f"{key.target} is a key, and nothing feeds {root!r}, so new rows would not have their key"
            raise BadSpec(Reason.SOURCE_COLUMN_MISSING, f"{message}: assign {root} in values", field=path)


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
    return check_types(predicate, _types(role, sides), field=f"{where}.when", zone=sides.zone)


def _types(role: Role, sides: Sides) -> dict[str, str]:
    """The columns that a clause can name, as ``source.x`` and ``target.y``, with their types."""
    columns = {"source": sides.source, "target": sides.target}
    return {f"{side}.{column.name}": column.type for side in role.sides for column in columns[side]}


def _bind_assigned(path: str, clause: MergeClause, role: Role, sides: Sides) -> BoundClause:
    """What feeds which target column; without a choice, columns feed those of their own name."""
    if clause.values:
        bound = _chosen(path, clause, role, sides)
    elif "source" in role.sides:
        bound = BoundClause(action=clause.action, values=_values_by_name(sides, clause.action))
        if clause.action is MergeAction.UPDATE:
            bound = _keep_lacking(path, sides, bound, clause)
    else:
        message = "an Update of rows that the source does not have needs set, with a value for each column"
        raise BadSpec(Reason.INVALID_SPEC, message, field=path)
    if "source" in role.sides:
        bound = _keep_sequence(path, sides, bound)
    _check_assignable(path, bound, sides)
    return bound


def _chosen(path: str, clause: MergeClause, role: Role, sides: Sides) -> BoundClause:
    values: dict[str, str] = {}
    literals: dict[str, Value | None] = {}
    expressions: dict[str, ValueExpression] = {}
    targets = by_name(sides.target)
    for column, text in (clause.values or {}).items():
        if column not in targets:
            raise _no_target(column, targets, path)
        value = check_assigned(text, role, f"{path}.{column}")
        if isinstance(value, ColumnRef):
            values[column] = value.name
        elif value is None or isinstance(value, Constant):
            literals[column] = _bind_literal(f"{path}.{column}", value, targets[column], sides.zone)
        elif isinstance(value, DefaultValue):
            literals[column] = _bind_default(f"{path}.{column}", text, targets[column], sides)
        else:
            types = _types(role, sides)
            expression = check_expression(value, types, text=text, field=f"{path}.{column}", zone=sides.zone)
            expressions[column] = _into(expression, targets[column])
    named = (*values, *literals, *expressions)
    read = {column for term in expressions.values() for column in term.columns if column.side == "target"}
    fields = frozenset(name for name in named if targets[name].is_field)
    _check_fields(path, named, fields, role)
    return BoundClause(
        action=clause.action,
        values=values,
        literals=literals,
        expressions=expressions,
        fields=fields,
        read=frozenset(
            [_root(targets[column.name]) for column in read] + [_root(targets[name]) for name in sorted(fields)]
        ),
    )


def _root(column: MergeColumn) -> str:
    """The column of the table that a column is, or that holds a field."""
    return split_path(column.name)[0] if column.is_field else column.name


def _check_fields(path: str, named: Sequence[str], fields: frozenset[str], role: Role) -> None:
    """Refuse fields of new rows, and a field beside what holds it."""
    for name in sorted(fields):
        parts = split_path(name)
        if role is NOT_MATCHED:
            message = f"{name} is a field within a column, and a new row needs the whole column: assign {parts[0]}"
            raise BadSpec(Reason.INVALID_SPEC, message, field=f"{path}.{name}")
        whole = next((join_path(parts[:n]) for n in range(1, len(parts)) if join_path(parts[:n]) in named), None)
        if whole is not None:
            message = f"{name} is a field within {whole}, which gets a value too: remove one of them"
            raise BadSpec(Reason.INVALID_SPEC, message, field=f"{path}.{name}")


def _into(expression: ValueExpression, target: MergeColumn) -> ValueExpression:
    """The expression in the type of its column. Raises BadSpec when its values are of another family."""
    into = plain_type(target.type)
    if is_opaque(target.type):
        raise _unmade(target, expression.field)
    if expression.type == into:
        return expression
    if not (expression.type == NULL_TYPE or _feeds(expression.type, into)) or not is_castable(into):
        message = f"{expression.text!r} is {expression.type} and cannot feed {target.name!r}, which is {target.type}"
        raise BadSpec(Reason.SCHEMA_MISMATCH, f"{message}: {_cast_hint(into)}", field=expression.field)
    return replace(expression, root=Cast(expression.root, into))


def _unmade(target: MergeColumn, path: str) -> BadSpec:
    message = (
        f"{target.name!r} is {target.type} in the table, and {MOVED_ONLY}: leave it out of the columns that the clause "
        "gives a value, which set and values name"
    )
    return BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field=path)


def _no_target(column: str, targets: Mapping[str, MergeColumn], path: str) -> BadSpec:
    message = f"the table has no column {column!r}: {like_hint(column, targets)}"
    return BadSpec(Reason.COLUMN_NOT_FOUND, message, field=path)


def _bind_literal(field_name: str, value: Constant | None, target: MergeColumn, zone: tzinfo) -> Value | None:
    if value is None:
        if target.required:
            message = f"{target.name!r} is required in the table and cannot be null"
            raise BadSpec(Reason.INVALID_SPEC, message, field=field_name)
        return None
    if is_opaque(target.type):
        raise _unmade(target, field_name)
    try:
        return fit_literal(value.value, target.type, zone)
    except Unfit as error:
        message = f"{value.value!s} does not fit {target.name!r}, which is {target.type}: {error}"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field_name) from None


def _bind_default(field_name: str, text: str, target: MergeColumn, sides: Sides) -> Value | None:
    """The default that the table has for new rows of a column, null without one."""
    own = text.strip()
    if own in by_name(sides.source):
        message = f"{own} is also a column of the source: write source.{own} for it, or the value of the default"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field_name)
    if target.default is None and target.required:
        message = f"{target.name!r} is required in the table and has no default: write a value"
        raise BadSpec(Reason.INVALID_SPEC, message, field=field_name)
    return target.default


def _keep_sequence(path: str, sides: Sides, bound: BoundClause) -> BoundClause:
    """Every row that is written keeps the sequence of its change; nothing else may go there."""
    if sides.stored is None:
        return bound
    target, source = sides.stored
    if target in bound.assigned and bound.values.get(target) != source:
        message = f"{target!r} keeps the sequence of each row's last change and is written by the merge: remove it"
        raise BadSpec(Reason.INVALID_SPEC, message, field=f"{path}.{target}")
    return replace(bound, values={**bound.values, target: source})


def _values_by_name(sides: Sides, action: MergeAction) -> dict[str, str]:
    """Target columns fed by the source's mapping, else by equal name; key columns of an insert by their key pair."""
    names = {column.name for column in sides.source if not column.is_field}
    values = {column.name: column.name for column in sides.target if column.name in names and not column.is_field}
    fed = {column.name for column in sides.source}
    values |= {mapped.column: mapped.from_ for mapped in sides.mapping if mapped.from_ in fed}
    if action is MergeAction.INSERT:
        fields = {column.name for column in sides.target if column.is_field}
        values |= {key.target: key.source for key in sides.keys if key.target not in fields}
    if sides.stored is not None:
        values[sides.stored[0]] = sides.stored[1]
    return values


def _keep_lacking(path: str, sides: Sides, bound: BoundClause, clause: MergeClause) -> BoundClause:
    """``bound`` without a change to fields that structs of the source lack. Raises BadSpec where only some do."""
    sources = by_name(sides.source)
    for column, origin in bound.values.items():
        given = sources[origin]
        unsure = given.lacks | given.lacks_in_some if clause.present else given.lacks_in_some
        if unsure:
            files = "files" if unsure <= given.lacks else "some files"
            message = f"{files} of the source lack the field {min(unsure)!r} within {origin!r}, and an Update of "
            way_out = f"{column!r} would make it null: write it into all files, or name the fields that change in set"
            raise BadSpec(Reason.SOURCE_COLUMN_MISSING, f"{message}{way_out}", field=path)
    kept = {column: sources[origin].lacks for column, origin in bound.values.items() if sources[origin].lacks}
    return replace(bound, kept=kept, read=bound.read | kept.keys())


def _defaults(target: Sequence[MergeColumn], bound: BoundClause) -> dict[str, Value | None]:
    return {
        c.name: c.default for c in target if c.default is not None and c.name not in bound.assigned and not c.is_field
    }


def _check_required(path: str, target: Sequence[MergeColumn], fed: Collection[str]) -> None:
    missing = next(
        (column for column in target if column.required and not column.is_field and column.name not in fed), None
    )
    if missing is None:
        return
    if is_opaque(missing.type):
        message = (
            f"{missing.name!r} is {missing.type} and required in the table, and {MOVED_ONLY}: leave out the Insert, or "
            "make the column optional"
        )
        raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field=path)
    message = f"{missing.name!r} is required in the table and nothing feeds it: map a source column to it"
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


def _check_assignable(path: str, bound: BoundClause, sides: Sides) -> None:
    """Values must fit by family; whether each value fits its width is checked on the data."""
    targets, sources = by_name(sides.target), by_name(sides.source)
    for column, origin in bound.values.items():
        if column not in targets:
            raise _no_target(column, targets, path)
        if targets[column].is_field and column not in bound.fields:
            message = f"{column} is a field within a column of the table: name it in set, not in source.mapping"
            raise BadSpec(Reason.COLUMN_NOT_FOUND, message, field=path)
        if origin not in sources:
            message = f"the source has no column {origin!r}: {like_hint(origin, sources)}"
            raise BadSpec(Reason.SOURCE_COLUMN_MISSING, message, field=f"{path}.{column}")
        into, of = targets[column].type, sources[origin].type
        if is_opaque(into):
            raise _unmade(targets[column], f"{path}.{column}")
        if not _feeds(of, into):
            message = f"{origin!r} is {of} in the source and cannot feed {column!r}, which is {into}"
            raise BadSpec(Reason.SCHEMA_MISMATCH, f"{message}: {_cast_hint(into)}", field=f"{path}.{column}")


def _feeds(of: str, into: str) -> bool:
    left, right = (_TYPE_NAME.split(kind, maxsplit=1)[0] for kind in (into, of))
    return UNKNOWN in (left, right) or left == right or left in _WIDER.get(right, ())


def _cast_hint(into: str) -> str:
    return (
        f"write cast(… as {plain_type(into)})" if is_castable(plain_type(into)) else f"give it a value of type {into}"
    )

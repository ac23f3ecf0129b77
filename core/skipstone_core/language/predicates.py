"""Predicates of resources: the tree and its check against column types.

Used for ``when`` conditions of merges. No functions, no subqueries, no SQL text reaches an engine. Must not know where
columns come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from typing import Literal, NoReturn

from skipstone_core.errors import BadSpec
from skipstone_core.keys import KeyFamily, key_type
from skipstone_core.language.paths import is_path, like_hint
from skipstone_core.reasons import Reason

#: Bytes are of binary and fixed columns, and the 16 bytes of a UUID; resources cannot write them.
Value = bool | int | float | Decimal | str | date | datetime | bytes
Operator = Literal["=", "!=", "<", "<=", ">", ">="]
#: Whose columns a merge can name.
SIDES = ("source", "target")


@dataclass(frozen=True)
class ColumnRef:
    """A column. ``side`` is ``source`` or ``target`` in merges, else empty. ``name`` may be a path: see ``paths``."""

    side: str
    name: str

    def __str__(self) -> str:
        return f"{self.side}.{self.name}" if self.side else self.name


@dataclass(frozen=True)
class Constant:
    """A literal value; never null."""

    value: Value


Operand = ColumnRef | Constant


@dataclass(frozen=True)
class Comparison:
    """``left op right``; null when either is null."""

    op: Operator
    left: Operand
    right: Operand


@dataclass(frozen=True)
class InList:
    """``operand in (values)``."""

    operand: Operand
    values: tuple[Constant, ...]


@dataclass(frozen=True)
class IsNull:
    """``operand is null``; never null itself."""

    operand: Operand


@dataclass(frozen=True)
class StartsWith:
    """``operand like 'prefix%'``."""

    operand: Operand
    prefix: str


@dataclass(frozen=True)
class Not:
    """Negation; null stays null."""

    inner: Node


@dataclass(frozen=True)
class And:
    """Conjunction of two or more."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Or:
    """Disjunction of two or more."""

    parts: tuple[Node, ...]


Node = Comparison | InList | IsNull | StartsWith | Not | And | Or


@dataclass(frozen=True)
class Predicate:
    """A parsed predicate with the text it came from. Picklable."""

    root: Node
    text: str

    @property
    def columns(self) -> frozenset[ColumnRef]:
        """Every column that is named."""
        return frozenset(operand for operand in _operands(self.root) if isinstance(operand, ColumnRef))


class UnsupportedPredicate(Exception):
    """A literal or a shape that the grammar lets through and the language does not."""


def check_types(predicate: Predicate, types: Mapping[str, str], *, field: str = "", zone: tzinfo = UTC) -> Predicate:
    """Check names and types; literals are turned into the kind of value they are compared with.

    ``types``: column (``source.x``) to Iceberg type name. ``zone`` gives timestamp literals without offset their
    meaning when compared with timestamptz. Raises BadSpec for unknown columns and types that do not compare.
    """
    try:
        return replace(predicate, root=_checked(predicate.root, _Types(types, zone)))
    except UnsupportedPredicate as error:
        refuse(field, str(error))


def refuse(field: str, message: str) -> NoReturn:
    """Raise BadSpec for the predicate in ``field``."""
    raise BadSpec(Reason.INVALID_SPEC, message, field=field) from None


def children(node: Node) -> tuple[Node, ...]:
    """The nodes below ``node``."""
    match node:
        case And() | Or():
            return node.parts
        case Not():
            return (node.inner,)
        case _:
            return ()


def _operands(node: Node) -> Iterator[Operand]:
    match node:
        case Comparison():
            yield from (node.left, node.right)
        case InList() | IsNull() | StartsWith():
            yield node.operand
        case _:
            for child in children(node):
                yield from _operands(child)


_NUMBERS = frozenset({KeyFamily.INTEGER, KeyFamily.DECIMAL, KeyFamily.FLOAT})
_COMPARED = _NUMBERS | {
    KeyFamily.BOOLEAN,
    KeyFamily.STRING,
    KeyFamily.BINARY,
    KeyFamily.DATE,
    KeyFamily.TIMESTAMP,
    KeyFamily.TIMESTAMPTZ,
}


@dataclass(frozen=True)
class _Types:
    columns: Mapping[str, str]
    zone: tzinfo


def _checked(node: Node, types: _Types) -> Node:
    match node:
        case Comparison():
            left, right = _checked_pair(node.left, node.right, types)
            return Comparison(node.op, left, right)
        case InList():
            return InList(node.operand, _checked_items(node, types))
        case IsNull():
            _type_name(node.operand, types)
            return node
        case StartsWith():
            if _family(node.operand, types) is not KeyFamily.STRING:
                raise UnsupportedPredicate(f"like needs a string, {_shown(node.operand)} is none")
            return node
        case Not():
            return Not(_checked(node.inner, types))
        case And() | Or():
            return type(node)(tuple(_checked(part, types) for part in node.parts))


def _checked_items(node: InList, types: _Types) -> tuple[Constant, ...]:
    """The values of a list, of which there may be many: where none is changed, one of each kind is looked at."""
    family = _family(node.operand, types)
    samples = {type(item.value): item for item in node.values}
    if datetime in samples or family is KeyFamily.TIMESTAMPTZ:
        return tuple(_checked_pair(node.operand, item, types)[1] for item in node.values)  # type: ignore[misc]
    for item in samples.values():
        _checked_pair(node.operand, item, types)
    return node.values


def _checked_pair(left: Operand, right: Operand, types: _Types) -> tuple[Operand, Operand]:
    a, b = _family(left, types), _family(right, types)
    if KeyFamily.BINARY in (a, b) and not any(_is_bytes(operand) for operand in (left, right)):
        raise _only_null(left if a is KeyFamily.BINARY else right, types)
    left, right = _placed(left, b, types.zone), _placed(right, a, types.zone)
    a, b = _family(left, types), _family(right, types)
    if a is b or {a, b} <= _NUMBERS or {a, b} == {KeyFamily.DATE, KeyFamily.TIMESTAMP}:
        return left, right
    raise UnsupportedPredicate(f"{_shown(left)} ({a}) and {_shown(right)} ({b}) do not compare")


def _placed(operand: Operand, other: KeyFamily, zone: tzinfo) -> Operand:
    """A date or timestamp literal without offset, compared with timestamptz, means that time in ``zone``."""
    if not isinstance(operand, Constant) or other is not KeyFamily.TIMESTAMPTZ:
        return operand
    match operand.value:
        case datetime() as moment if moment.tzinfo is None:
            return Constant(moment.replace(tzinfo=zone))
        case date() as day if not isinstance(day, datetime):
            return Constant(datetime.combine(day, time(), tzinfo=zone))
        case _:
            return operand


def _family(operand: Operand, types: _Types) -> KeyFamily:
    if isinstance(operand, Constant):
        return _constant_family(operand.value)
    kind = key_type(_type_name(operand, types))
    if kind is None or kind.family not in _COMPARED:
        raise _only_null(operand, types)
    return kind.family


def _only_null(operand: Operand, types: _Types) -> UnsupportedPredicate:
    return UnsupportedPredicate(f"{_shown(operand)} is {_type_name(operand, types)}, which can only be tested for null")


def _is_bytes(operand: Operand) -> bool:
    return isinstance(operand, Constant) and isinstance(operand.value, bytes)


def _type_name(operand: Operand, types: _Types) -> str:
    if isinstance(operand, Constant):
        return _constant_family(operand.value)
    if (name := types.columns.get(str(operand))) is None:
        raise missing_column(operand, types.columns)
    return name


def missing_column(operand: ColumnRef, types: Mapping[str, str]) -> UnsupportedPredicate:
    """Return the error for a column that is none of ``types``."""
    lead, like = f"there is no column {operand}", {name.lower(): name for name in types}.get(str(operand).lower())
    if like is not None:
        return UnsupportedPredicate(f"{lead}: write {like}, names are exact")
    sides = sorted({name.split(".", 1)[0] for name in types if "." in name} & {*SIDES})
    if not operand.side and sides:
        named = [f"{side}.{operand.name}" for side in sides]
        return UnsupportedPredicate(f"{lead}: write {' or '.join([name for name in named if name in types] or named)}")
    if operand.side == "target" and is_path(operand.name):
        return UnsupportedPredicate(f"{lead}: fields within columns of the table cannot be named, name a whole column")
    start = f"{operand.side}." if operand.side else ""
    own = [name.removeprefix(start) for name in types if name.startswith(start)]
    return UnsupportedPredicate(f"{lead}: {like_hint(operand.name, own)}")


_FAMILIES: Mapping[type, KeyFamily] = {
    bool: KeyFamily.BOOLEAN,
    int: KeyFamily.INTEGER,
    Decimal: KeyFamily.DECIMAL,
    float: KeyFamily.FLOAT,
    str: KeyFamily.STRING,
    bytes: KeyFamily.BINARY,
    date: KeyFamily.DATE,
}


def _constant_family(value: Value) -> KeyFamily:
    if isinstance(value, datetime):
        return KeyFamily.TIMESTAMPTZ if value.tzinfo else KeyFamily.TIMESTAMP
    return _FAMILIES[type(value)]


def _shown(operand: Operand) -> str:
    return str(operand) if isinstance(operand, ColumnRef) else repr(operand.value)

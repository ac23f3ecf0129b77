"""Predicates of resources: the tree, its check against column types, and the meaning of each node.

Used for ``when`` conditions of merges. No functions, no subqueries, no SQL text reaches an engine. ``evaluate`` is the
definition; the array version in the data plane is tested against it. Must not know where columns come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from typing import Any, Literal, NoReturn

from skipstone_core.errors import BadSpec
from skipstone_core.keys import KeyFamily, float_order, key_type
from skipstone_core.reasons import Reason

Value = bool | int | float | Decimal | str | date | datetime
Operator = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class ColumnRef:
    """A column. ``side`` is ``source`` or ``target`` in merges, else empty."""

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


class Refused(Exception):
    """A literal or a shape that the grammar lets through and the language does not."""


def evaluate(predicate: Predicate, row: Mapping[str, Value | None]) -> bool | None:
    """The value of a checked predicate on one row, keyed by ``source.x``, ``target.y`` or the bare name."""
    return _evaluate(predicate.root, row)


def check_types(predicate: Predicate, types: Mapping[str, str], *, field: str = "", zone: tzinfo = UTC) -> Predicate:
    """Check names and types; literals are turned into the kind of value they are compared with.

    ``types``: column (``source.x``) to Iceberg type name. ``zone`` gives timestamp literals without offset their
    meaning when compared with timestamptz. Raises BadSpec for unknown columns and types that do not compare.
    """
    try:
        return replace(predicate, root=_checked(predicate.root, _Types(types, zone)))
    except Refused as error:
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


# --- meaning ---


def _evaluate(node: Node, row: Mapping[str, Value | None]) -> bool | None:
    match node:
        case Comparison():
            return compare(node.op, _value(node.left, row), _value(node.right, row))
        case InList():
            return any_of([compare("=", _value(node.operand, row), item.value) for item in node.values])
        case IsNull():
            return _value(node.operand, row) is None
        case StartsWith():
            value = _value(node.operand, row)
            return None if value is None else str(value).startswith(node.prefix)
        case Not():
            inner = _evaluate(node.inner, row)
            return None if inner is None else not inner
        case Or():
            return any_of([_evaluate(part, row) for part in node.parts])
        case And():
            negated = any_of([_negated(_evaluate(part, row)) for part in node.parts])
            return _negated(negated)


def any_of(parts: list[bool | None]) -> bool | None:
    """SQL's OR over values that may be null."""
    return True if True in parts else (None if None in parts else False)


def compare(op: Operator, left: Value | None, right: Value | None) -> bool | None:
    """SQL's comparison with Spark's order of floats; null when either side is null."""
    if left is None or right is None:
        return None
    a, b = _comparable(left, right)
    match op:
        case "=":
            return bool(a == b)
        case "!=":
            return bool(a != b)
        case "<":
            return bool(a < b)
        case "<=":
            return bool(a <= b)
        case ">":
            return bool(a > b)
        case ">=":
            return bool(a >= b)


def _negated(value: Value | None) -> bool | None:
    return None if value is None else not value


def _value(operand: Operand, row: Mapping[str, Value | None]) -> Value | None:
    return operand.value if isinstance(operand, Constant) else row[str(operand)]


def _comparable(left: Value, right: Value) -> tuple[Any, Any]:
    if isinstance(left, float) or isinstance(right, float):
        return float_order(float(left)), float_order(float(right))  # type: ignore[arg-type]
    if isinstance(left, datetime) or isinstance(right, datetime):
        return _instant(left), _instant(right)
    if isinstance(left, str) and isinstance(right, str):
        return left.encode(), right.encode()
    return left, right


def _instant(value: Value) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return datetime.combine(value, time(), tzinfo=UTC)  # type: ignore[arg-type]


# --- types ---

_NUMBERS = frozenset({KeyFamily.INTEGER, KeyFamily.DECIMAL, KeyFamily.FLOAT})
_COMPARED = _NUMBERS | {
    KeyFamily.BOOLEAN,
    KeyFamily.STRING,
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
            _family(node.operand, types)
            values = tuple(_checked_pair(node.operand, item, types)[1] for item in node.values)
            return InList(node.operand, values)  # type: ignore[arg-type]
        case IsNull():
            _type_name(node.operand, types)
            return node
        case StartsWith():
            if _family(node.operand, types) is not KeyFamily.STRING:
                raise Refused(f"like needs a string, {_shown(node.operand)} is none")
            return node
        case Not():
            return Not(_checked(node.inner, types))
        case And() | Or():
            return type(node)(tuple(_checked(part, types) for part in node.parts))


def _checked_pair(left: Operand, right: Operand, types: _Types) -> tuple[Operand, Operand]:
    a, b = _family(left, types), _family(right, types)
    left, right = _placed(left, b, types.zone), _placed(right, a, types.zone)
    a, b = _family(left, types), _family(right, types)
    if a is b or {a, b} <= _NUMBERS or {a, b} == {KeyFamily.DATE, KeyFamily.TIMESTAMP}:
        return left, right
    raise Refused(f"{_shown(left)} ({a}) and {_shown(right)} ({b}) do not compare")


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
        raise Refused(f"{_shown(operand)} is {_type_name(operand, types)}, which can only be tested for null")
    return kind.family


def _type_name(operand: Operand, types: _Types) -> str:
    if isinstance(operand, Constant):
        return _constant_family(operand.value)
    if (name := types.columns.get(str(operand))) is None:
        raise Refused(f"there is no column {_shown(operand)}{_hint(operand, types)}")
    return name


def _hint(operand: ColumnRef, types: _Types) -> str:
    sides = sorted({name.split(".", 1)[0] for name in types.columns if "." in name})
    if not operand.side and sides:
        return f": write {' or '.join(f'{side}.{operand.name}' for side in sides)}"
    return ""


def _constant_family(value: Value) -> KeyFamily:
    match value:
        case bool():
            return KeyFamily.BOOLEAN
        case int():
            return KeyFamily.INTEGER
        case Decimal():
            return KeyFamily.DECIMAL
        case float():
            return KeyFamily.FLOAT
        case str():
            return KeyFamily.STRING
        case datetime():
            return KeyFamily.TIMESTAMPTZ if value.tzinfo else KeyFamily.TIMESTAMP
        case date():
            return KeyFamily.DATE


def _shown(operand: Operand) -> str:
    return str(operand) if isinstance(operand, ColumnRef) else repr(operand.value)

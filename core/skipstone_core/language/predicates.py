"""Predicates of resources: the tree and its check against column types.

Used for ``when`` conditions of merges. Operands are columns, literals and expressions; no subqueries, and no SQL text
reaches an engine. Must not know where columns come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Literal

from skipstone_core.keys import KeyFamily, key_type
from skipstone_core.language.expressions import (
    NULL_TYPE,
    Atom,
    Term,
    ValueExpression,
    columns_of,
    constant_type,
    is_castable,
    plain_type,
    shown,
    typed_term,
)
from skipstone_core.language.operands import (
    SIDES,
    ColumnRef,
    Constant,
    UnsupportedPredicate,
    Value,
    missing_column,
    refuse,
)

__all__ = [
    "SIDES",
    "And",
    "ColumnRef",
    "Comparison",
    "Computed",
    "Constant",
    "InList",
    "IsNull",
    "Like",
    "Node",
    "Not",
    "Operand",
    "Operator",
    "Or",
    "Predicate",
    "StartsWith",
    "UnsupportedPredicate",
    "Value",
    "Wildcard",
    "check_types",
    "children",
    "columns_of_operand",
    "computes",
    "missing_column",
    "operands_of",
    "refuse",
]

_SHOWN = 80
Operator = Literal["=", "!=", "<", "<=", ">", ">="]


class Wildcard(Enum):
    """What stands for other text in a pattern of LIKE: any text, or one character."""

    ANY = "%"
    ONE = "_"


@dataclass(frozen=True)
class Computed:
    """A value that is computed: of numbers, texts, ``coalesce`` and the like, or ``null``.

    ``text``, ``field`` and ``zone`` are known once the predicate is checked; its term then has types.
    """

    term: Term
    text: str = ""
    field: str = ""
    zone: tzinfo = UTC

    @property
    def expression(self) -> ValueExpression:
        """The checked term as what a clause assigns."""
        return ValueExpression(self.term, self.text, self.field, self.zone)

    @property
    def is_null(self) -> bool:
        """Return whether it is the literal ``null``."""
        return isinstance(self.term, Atom) and self.term.operand is None


Operand = ColumnRef | Constant | Computed


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
class Like:
    """``operand like pattern`` for a pattern that is more than a prefix. ``parts``: ``%``, ``_``, and texts between."""

    operand: Operand
    parts: tuple[Wildcard | str, ...]

    @property
    def pattern(self) -> str:
        """The pattern as it is written."""
        signs = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\"})
        return "".join(part.value if isinstance(part, Wildcard) else part.translate(signs) for part in self.parts)


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


Node = Comparison | InList | IsNull | StartsWith | Like | Not | And | Or


@dataclass(frozen=True)
class Predicate:
    """A parsed predicate with the text it came from. Picklable."""

    root: Node
    text: str

    @property
    def columns(self) -> frozenset[ColumnRef]:
        """Every column that is named."""
        return frozenset(column for operand in operands_of(self.root) for column in columns_of_operand(operand))

    @property
    def shown(self) -> str:
        """Its text as sentences name it."""
        text = " ".join(self.text.split())
        return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")

    @property
    def computes(self) -> bool:
        """Return whether it computes values, which can fail in a row."""
        return computes(self.root)


def check_types(predicate: Predicate, types: Mapping[str, str], *, field: str = "", zone: tzinfo = UTC) -> Predicate:
    """Check names and types; literals are turned into the kind of value they are compared with.

    ``types``: column (``source.x``) to Iceberg type name. ``zone`` gives timestamp literals without offset their
    meaning when compared with timestamptz. Raises BadSpec for unknown columns and types that do not compare.
    """
    try:
        return Predicate(_checked(predicate.root, _Types(types, zone, field)), predicate.text)
    except UnsupportedPredicate as error:
        refuse(field, str(error))


def children(node: Node) -> tuple[Node, ...]:
    """The nodes below ``node``."""
    match node:
        case And() | Or():
            return node.parts
        case Not():
            return (node.inner,)
        case _:
            return ()


def operands_of(node: Node) -> Iterator[Operand]:
    """The operands of all tests below ``node``."""
    pending = [node]
    while pending:
        part = pending.pop()
        match part:
            case Comparison():
                yield from (part.left, part.right)
            case InList() | IsNull() | StartsWith() | Like():
                yield part.operand
            case _:
                pending += reversed(children(part))


def columns_of_operand(operand: Operand) -> Iterator[ColumnRef]:
    """The columns that an operand names."""
    match operand:
        case ColumnRef():
            yield operand
        case Computed():
            yield from columns_of(operand.term)
        case Constant():
            pass


def computes(node: Node) -> bool:
    """Return whether a part of ``node`` computes values."""
    return any(isinstance(operand, Computed) and not operand.is_null for operand in operands_of(node))


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
    field: str


def _checked(node: Node, types: _Types) -> Node:
    match node:
        case Comparison():
            left, right = _checked_pair(_typed(node.left, types), _typed(node.right, types), types)
            return Comparison(node.op, left, right)
        case InList():
            operand = _typed(node.operand, types)
            return InList(operand, _checked_items(operand, node.values, types))
        case IsNull():
            operand = _typed(node.operand, types)
            _type_name(operand, types)
            return IsNull(operand)
        case StartsWith() | Like():
            operand = _typed(node.operand, types)
            if _family(operand, types) not in (KeyFamily.STRING, None):
                name = _shown(operand)
                message = (
                    f"like needs a string and {name} is {_type_name(operand, types)}: write cast({name} as string)"
                )
                raise UnsupportedPredicate(message)
            return replace(node, operand=operand)
        case Not():
            return Not(_checked(node.inner, types))
        case And() | Or():
            return type(node)(tuple(_checked(part, types) for part in node.parts))


def _typed(operand: Operand, types: _Types) -> Operand:
    """An operand whose term has types."""
    if not isinstance(operand, Computed):
        return operand
    return Computed(typed_term(operand.term, types.columns), shown(operand.term), types.field, types.zone)


def _checked_items(operand: Operand, values: tuple[Constant, ...], types: _Types) -> tuple[Constant, ...]:
    """The values of a list, of which there may be many: where none is changed, one of each kind is looked at."""
    family = _family(operand, types)
    samples = {type(item.value): item for item in values}
    if datetime in samples or family is KeyFamily.TIMESTAMPTZ:
        return tuple(_checked_pair(operand, item, types)[1] for item in values)  # type: ignore[misc]
    for item in samples.values():
        _checked_pair(operand, item, types)
    return values


def _checked_pair(left: Operand, right: Operand, types: _Types) -> tuple[Operand, Operand]:
    a, b = _family(left, types), _family(right, types)
    if a is None or b is None:
        return left, right
    if KeyFamily.BINARY in (a, b) and not any(_is_bytes(operand) for operand in (left, right)):
        raise _only_null(left if a is KeyFamily.BINARY else right, types)
    left, right = _placed(left, b, types.zone), _placed(right, a, types.zone)
    a, b = _family(left, types), _family(right, types)
    if a is b or {a, b} <= _NUMBERS or {a, b} == {KeyFamily.DATE, KeyFamily.TIMESTAMP}:
        return left, right
    raise UnsupportedPredicate(
        f"{_shown(left)} ({a}) and {_shown(right)} ({b}) do not compare: {_way_out(left, right, types)}"
    )


def _way_out(left: Operand, right: Operand, types: _Types) -> str:
    """What to write instead of a comparison of two types."""
    if Constant(value=True) in (left, right):
        return f"write a comparison, such as {_shown(left)} != 0"
    for text, other in ((left, right), (right, left)):
        if _family(text, types) is not KeyFamily.STRING:
            continue
        if isinstance(text, Constant):
            return _unquoted(text, _family(other, types))
        into = plain_type(_type_name(other, types))
        if isinstance(other, Constant):
            into = {"int": "long"}.get(into, "decimal(38,18)" if into.startswith("decimal") else into)
        return f"write cast({_shown(text)} as {into})"
    into = plain_type(_type_name(right, types))
    if is_castable(into) and not isinstance(left, Constant):
        return f"write cast({_shown(left)} as {into})"
    return "give both sides one type"


def _unquoted(text: Constant, other: KeyFamily | None) -> str:
    """How a literal of another type is written."""
    match other:
        case KeyFamily.DATE:
            return "write date '2024-12-31'"
        case KeyFamily.TIMESTAMP | KeyFamily.TIMESTAMPTZ:
            return "write timestamp '2024-12-31 23:59:59'"
        case KeyFamily.BOOLEAN:
            return "write true or false"
        case _:
            return f"write {_shown(text)[1:-1]} without quotes"


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


def _family(operand: Operand, types: _Types) -> KeyFamily | None:
    """What an operand compares with; None for what is always null."""
    if isinstance(operand, Constant):
        return _constant_family(operand.value)
    name = _type_name(operand, types)
    if isinstance(operand, Computed) and name == NULL_TYPE:
        return None
    kind = key_type(name)
    if kind is None or kind.family not in _COMPARED:
        raise _only_null(operand, types)
    return kind.family


def _only_null(operand: Operand, types: _Types) -> UnsupportedPredicate:
    name = _type_name(operand, types)
    way_out = ": compare its fields" if name.startswith("struct") else ""
    return UnsupportedPredicate(f"{_shown(operand)} is {name}, which can only be tested for null{way_out}")


def _is_bytes(operand: Operand) -> bool:
    return isinstance(operand, Constant) and isinstance(operand.value, bytes)


def _type_name(operand: Operand, types: _Types) -> str:
    match operand:
        case Constant():
            return constant_type(operand)
        case Computed():
            return operand.term.type
        case ColumnRef():
            if (name := types.columns.get(str(operand))) is None:
                raise missing_column(operand, types.columns)
            return name


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
    match operand:
        case ColumnRef():
            return str(operand)
        case Constant():
            return repr(operand.value)
        case Computed():
            return operand.text

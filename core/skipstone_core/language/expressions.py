"""Expressions of resources: what a clause writes into a column when it is more than a column or a literal.

The tree, and the check that gives each part its type by the rules of Spark's ANSI SQL. Pure: no functions of an engine,
no SQL text. Must not know where columns come from, or how arrays are computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Literal, TypeAlias

from skipstone_core.language.operands import ColumnRef, Constant, UnsupportedPredicate, missing_column, refuse

MAX_PARTS = 64
MAX_DIGITS = 38
#: What a decimal quotient or product keeps of its scale when it has more digits than a decimal can have.
_KEPT_SCALE = 6
ArithmeticOperator = Literal["+", "-", "*", "/", "%"]
FunctionName = Literal["coalesce", "concat", "round", "to_date"]
FUNCTIONS: tuple[FunctionName, ...] = ("coalesce", "concat", "round", "to_date")
#: The type of a bare ``null``, and of a column that holds no value and whose files tell no type.
NULL_TYPE = "null"
_UNKNOWN = "unknown"
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_INTEGERS = {"int": 10, "long": 20}
_FLOATS = frozenset({"float", "double"})
_TEXTS = frozenset({"int", "long", "boolean", "date", "timestamp", "timestamptz"})
_CASTABLE = frozenset({"boolean", "int", "long", "float", "double", "string", "date", "timestamp", "timestamptz"})
_MOMENTS = frozenset({"date", "timestamp", "timestamptz"})


@dataclass(frozen=True)
class Atom:
    """A column, a literal, or (None) null. ``type``: an Iceberg type name, empty before the check, as of all nodes."""

    operand: ColumnRef | Constant | None
    type: str = ""


@dataclass(frozen=True)
class Negative:
    """``-inner``."""

    inner: Term
    type: str = ""


@dataclass(frozen=True)
class Arithmetic:
    """``left op right``; null when either is null."""

    op: ArithmeticOperator
    left: Term
    right: Term
    type: str = ""


@dataclass(frozen=True)
class Call:
    """``name(args)``: the first that is not null, texts one after the other, a number rounded half away from zero, or
    the day of a timestamp.
    """

    name: FunctionName
    args: tuple[Term, ...]
    type: str = ""


@dataclass(frozen=True)
class Cast:
    """``cast(inner as type)``; the check adds those that operators and functions need."""

    inner: Term
    type: str


Term: TypeAlias = Atom | Negative | Arithmetic | Call | Cast


@dataclass(frozen=True)
class ValueExpression:
    """A checked expression with the text it came from and the field that holds it. Picklable.

    ``zone``: in which its casts place times without offset.
    """

    root: Term
    text: str
    field: str
    zone: tzinfo = UTC

    @property
    def type(self) -> str:
        """Its Iceberg type name."""
        return self.root.type

    @property
    def columns(self) -> frozenset[ColumnRef]:
        """Every column that is named."""
        return frozenset(columns_of(self.root))


def columns_of(term: Term) -> Iterator[ColumnRef]:
    """Every column below ``term``."""
    for part in walk(term):
        if isinstance(part, Atom) and isinstance(part.operand, ColumnRef):
            yield part.operand


def walk(term: Term) -> Iterator[Term]:
    """``term`` and all that it is made of."""
    pending = [term]
    while pending:
        part = pending.pop()
        yield part
        match part:
            case Negative() | Cast():
                pending.append(part.inner)
            case Arithmetic():
                pending += [part.right, part.left]
            case Call():
                pending += reversed(part.args)


def with_sides(term: Term) -> Term:
    """``term`` with ``source`` as the side of columns that are written without one."""
    match term:
        case Atom(operand=ColumnRef(side="") as column):
            return replace(term, operand=replace(column, side="source"))
        case Atom():
            return term
        case Negative() | Cast():
            return replace(term, inner=with_sides(term.inner))
        case Arithmetic():
            return replace(term, left=with_sides(term.left), right=with_sides(term.right))
        case Call():
            return replace(term, args=tuple(map(with_sides, term.args)))


def check_expression(
    term: Term, types: Mapping[str, str], *, text: str, field: str, zone: tzinfo = UTC
) -> ValueExpression:
    """Give every part its type. ``types``: column (``source.x``) to Iceberg type name.

    Raises BadSpec for unknown columns and for types that do not go together.
    """
    try:
        return ValueExpression(typed_term(term, types), text, field, zone)
    except UnsupportedPredicate as error:
        refuse(field, str(error))


def typed_term(term: Term, types: Mapping[str, str]) -> Term:
    """``term`` with the types of its parts. Raises UnsupportedPredicate as ``check_expression`` raises BadSpec."""
    return _checked(term, types)


def decimal_of(type_name: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for other types."""
    match = _DECIMAL.fullmatch(type_name)
    return (int(match[1]), int(match[2])) if match else None


def plain_type(type_name: str) -> str:
    """A type name as expressions write it: ``decimal(9,2)`` without blanks."""
    return type_name.strip().lower().replace(" ", "") if "<" not in type_name else type_name


def is_castable(type_name: str) -> bool:
    """Return whether ``cast`` goes to a type."""
    known = decimal_of(type_name)
    return known[1] <= known[0] <= MAX_DIGITS and known[0] > 0 if known else type_name in _CASTABLE


def _checked(term: Term, types: Mapping[str, str]) -> Term:
    match term:
        case Atom():
            return replace(term, type=_leaf_type(term, types))
        case Negative():
            inner = _checked(term.inner, types)
            kind = _number(inner, "-")
            return Negative(_as(inner, kind), kind)
        case Arithmetic():
            return _arithmetic(term, _checked(term.left, types), _checked(term.right, types))
        case Call():
            args = tuple(_checked(arg, types) for arg in term.args)
            return _CALLS[term.name](args)
        case Cast():
            return _cast(_checked(term.inner, types), term.type)


def _leaf_type(leaf: Atom, types: Mapping[str, str]) -> str:
    match leaf.operand:
        case None:
            return NULL_TYPE
        case ColumnRef() as column:
            if (name := types.get(str(column))) is None:
                raise missing_column(column, types)
            return NULL_TYPE if name == _UNKNOWN else plain_type(name)
        case Constant():
            return constant_type(leaf.operand)


def constant_type(constant: Constant) -> str:
    """The Iceberg type name of a literal."""
    match constant.value:
        case bool():
            return "boolean"
        case int() as number:
            return "int" if _has_bits(number, 31) else "long" if _has_bits(number, 63) else _digits(constant)
        case Decimal():
            return _digits(constant)
        case float():
            return "double"
        case datetime() as moment:
            return "timestamptz" if moment.tzinfo else "timestamp"
        case date():
            return "date"
        case bytes():
            return "binary"
        case _:
            return "string"


def _has_bits(number: int, bits: int) -> bool:
    return -(1 << bits) <= number < 1 << bits


def _digits(constant: Constant) -> str:
    """The decimal type of a literal, by its digits as they are written."""
    number = Decimal(str(constant.value)).as_tuple()
    scale = -int(number.exponent)
    precision = max(len(number.digits), scale)
    if precision > MAX_DIGITS:
        raise UnsupportedPredicate(f"{shown(Atom(constant))} has more than {MAX_DIGITS} digits: write fewer")
    return f"decimal({precision},{scale})"


def shown(term: Term) -> str:
    """A part as sentences name it."""
    match term:
        case Atom():
            return _shown_leaf(term)
        case Negative():
            return f"-{shown(term.inner)}"
        case Arithmetic():
            return f"{shown(term.left)} {term.op} {shown(term.right)}"
        case Call():
            return f"{term.name}({', '.join(map(shown, term.args))})"
        case Cast():
            return f"cast({shown(term.inner)} as {term.type})"


def _shown_leaf(leaf: Atom) -> str:
    match leaf.operand:
        case Constant(value=str() | bytes() as text):
            return repr(text)
        case Constant(value=value):
            return str(value)
        case None:
            return "null"
        case ColumnRef() as column:
            return str(column)


def _number(term: Term, op: str) -> str:
    if term.type == NULL_TYPE:
        return "int"
    if term.type in _INTEGERS or term.type in _FLOATS or decimal_of(term.type):
        return term.type
    raise UnsupportedPredicate(f"{op} needs numbers and {shown(term)} is {term.type}: cast it, as in cast(x as long)")


def _arithmetic(term: Arithmetic, left: Term, right: Term) -> Term:
    kinds = _number(left, term.op), _number(right, term.op)
    if _FLOATS.intersection(kinds):
        common = "float" if kinds == ("float", "float") and term.op != "/" else "double"
    elif any(map(decimal_of, kinds)):
        sides = _as_decimal(left), _as_decimal(right)
        return Arithmetic(term.op, *sides, type=_decimal_result(term.op, sides[0].type, sides[1].type))
    elif term.op == "/":
        common = "double"
    else:
        common = "long" if "long" in kinds else "int"
    return Arithmetic(term.op, _as(left, common), _as(right, common), type=common)


def _as(term: Term, type_name: str) -> Term:
    return term if term.type == type_name else Cast(term, type_name)


def _as_decimal(term: Term) -> Term:
    """A whole number is a decimal of the digits that its type can have, a literal of those that it has."""
    if decimal_of(term.type):
        return term
    return _as(term, _decimal_digits(term))


def _decimal_digits(term: Term) -> str:
    if isinstance(term, Atom) and isinstance(term.operand, Constant):
        return _digits(term.operand)
    return f"decimal({_INTEGERS.get(term.type, 1)},0)"


def _decimal_result(op: ArithmeticOperator, left: str, right: str) -> str:
    """Precision and scale of a result as in Spark: when they need more than 38 digits, the scale gives way."""
    (p1, s1), (p2, s2) = decimal_of(left) or (1, 0), decimal_of(right) or (1, 0)
    match op:
        case "+" | "-":
            scale = max(s1, s2)
            precision = max(p1 - s1, p2 - s2) + scale + 1
        case "*":
            precision, scale = p1 + p2 + 1, s1 + s2
        case "/":
            scale = max(_KEPT_SCALE, s1 + p2 + 1)
            precision = p1 - s1 + s2 + scale
        case "%":
            scale = max(s1, s2)
            precision = min(p1 - s1, p2 - s2) + scale
    if precision > MAX_DIGITS:
        scale = max(MAX_DIGITS - (precision - scale), min(scale, _KEPT_SCALE))
        precision = MAX_DIGITS
    return f"decimal({max(precision, 1)},{scale})"


def _coalesce(args: tuple[Term, ...]) -> Term:
    common = _common(args)
    if common is None:
        given = ", ".join(f"{shown(arg)} is {arg.type}" for arg in args)
        raise UnsupportedPredicate(f"coalesce takes values of one type, and {given}: cast them to one type")
    if common == NULL_TYPE:
        raise UnsupportedPredicate("coalesce has nothing but null: write null alone")
    return Call("coalesce", tuple(_as(arg, common) for arg in args), common)


def _common(args: tuple[Term, ...]) -> str | None:
    """The type that holds the values of all, if there is one."""
    kinds = {arg.type for arg in args} - {NULL_TYPE}
    if len(kinds) < 2:
        return next(iter(kinds), NULL_TYPE)
    if kinds <= _MOMENTS:
        return next(iter(kinds - {"date"})) if len(kinds - {"date"}) == 1 else None
    if not all(kind in _INTEGERS or kind in _FLOATS or decimal_of(kind) for kind in kinds):
        return None
    if kinds & _FLOATS:
        return "double"
    if kinds <= set(_INTEGERS):
        return "long"
    digits = [decimal_of(_as_decimal(arg).type) or (1, 0) for arg in args if arg.type != NULL_TYPE]
    scale = max(scale for _, scale in digits)
    precision = max(precision - scale for precision, scale in digits) + scale
    return f"decimal({precision},{scale})" if precision <= MAX_DIGITS else None


def _concat(args: tuple[Term, ...]) -> Term:
    for arg in args:
        if arg.type not in ("string", NULL_TYPE):
            message = f"concat takes texts and {shown(arg)} is {arg.type}: write cast({shown(arg)} as string)"
            raise UnsupportedPredicate(message)
    return Call("concat", tuple(_as(arg, "string") for arg in args), "string")


def _round(args: tuple[Term, ...]) -> Term:
    digits = args[1].operand if len(args) == 2 and isinstance(args[1], Atom) else None
    if not isinstance(digits, Constant) or type(digits.value) is not int or not 0 <= digits.value <= MAX_DIGITS:
        raise UnsupportedPredicate("round takes a number and the digits to keep after the point: write round(x, 2)")
    if args[0].type == NULL_TYPE:
        return args[0]
    known = decimal_of(args[0].type)
    if known is None and args[0].type != "double":
        message = f"round takes a decimal or double and {shown(args[0])} is {args[0].type}: leave out round"
        raise UnsupportedPredicate(message)
    if known is None:
        return Call("round", args, "double")
    scale = min(known[1], digits.value)
    return Call("round", args, f"decimal({min(known[0] - known[1] + 1 + scale, MAX_DIGITS)},{scale})")


def _to_date(args: tuple[Term, ...]) -> Term:
    if len(args) != 1 or args[0].type not in {*_MOMENTS, NULL_TYPE}:
        raise UnsupportedPredicate("to_date takes one timestamp: write to_date(source.x), and cast texts first")
    return _as(args[0], "date") if args[0].type == NULL_TYPE else Call("to_date", args, "date")


_CALLS: Mapping[FunctionName, Callable[[tuple[Term, ...]], Term]] = {
    "coalesce": _coalesce,
    "concat": _concat,
    "round": _round,
    "to_date": _to_date,
}


def _cast(inner: Term, type_name: str) -> Term:
    kind = plain_type(type_name)
    if not is_castable(kind):
        takes = "boolean, int, long, float, double, decimal(p,s), string, date, timestamp or timestamptz"
        raise UnsupportedPredicate(f"cast to {type_name} is not possible: cast to {takes}")
    if inner.type not in (kind, NULL_TYPE) and not _is_cast(inner.type, kind):
        hint = "cast it to a decimal first" if inner.type in _FLOATS and kind == "string" else "leave out the cast"
        raise UnsupportedPredicate(f"{shown(inner)} is {inner.type}, which is not cast to {kind}: {hint}")
    return _as(inner, kind)


def _is_cast(of: str, into: str) -> bool:
    numbers = {*_INTEGERS, *_FLOATS}
    if into == "string":
        return of in _TEXTS or decimal_of(of) is not None
    if of == "string":
        return True
    if of in numbers or decimal_of(of):
        return into in numbers or decimal_of(into) is not None
    return of in _MOMENTS and into in _MOMENTS

"""The value of a predicate on one row: the plain definition that the data plane's array version is tested against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, time
from typing import Any

from skipstone_core.keys import float_order
from skipstone_core.language.expressions import Arithmetic, Atom, Call, Cast, Term
from skipstone_core.language.predicates import (
    And,
    Comparison,
    Computed,
    Constant,
    InList,
    IsNull,
    Like,
    Node,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Value,
    Wildcard,
)


def evaluate(predicate: Predicate, row: Mapping[str, Value | None]) -> bool | None:
    """The value of a checked predicate on one row, keyed by ``source.x``, ``target.y`` or the bare name."""
    return _evaluate(predicate.root, row)


def _evaluate(node: Node, row: Mapping[str, Value | None]) -> bool | None:
    match node:
        case Not():
            inner = _evaluate(node.inner, row)
            return None if inner is None else not inner
        case Or():
            return any_of([_evaluate(part, row) for part in node.parts])
        case And():
            negated = any_of([_negated(_evaluate(part, row)) for part in node.parts])
            return _negated(negated)
        case _:
            return _tested(node, row)


def _tested(node: Comparison | InList | IsNull | StartsWith | Like, row: Mapping[str, Value | None]) -> bool | None:
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
        case Like():
            value = _value(node.operand, row)
            return None if value is None else is_like(str(value), node.parts)


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


def is_like(text: str, parts: tuple[Wildcard | str, ...]) -> bool:
    """Whether a text is like a pattern, by trying every length of ``%``."""
    if not parts:
        return not text
    first, rest = parts[0], parts[1:]
    if first is Wildcard.ANY:
        return any(is_like(text[start:], rest) for start in range(len(text) + 1))
    if first is Wildcard.ONE:
        return bool(text) and is_like(text[1:], rest)
    return text.startswith(first) and is_like(text.removeprefix(first), rest)


def _negated(value: Value | None) -> bool | None:
    return None if value is None else not value


def _value(operand: Operand, row: Mapping[str, Value | None]) -> Value | None:
    match operand:
        case Constant():
            return operand.value
        case Computed():
            return _computed(operand.term, row)
        case _:
            return row[str(operand)]


def _computed(term: Term, row: Mapping[str, Value | None]) -> Value | None:
    """Of the expressions only coalesce, whole remainders and casts to wider types."""
    match term:
        case Atom():
            return None if term.operand is None else _value(term.operand, row)
        case Cast():
            return _computed(term.inner, row)
        case Call(name="coalesce"):
            return next((value for arg in term.args if (value := _computed(arg, row)) is not None), None)
        case Arithmetic(op="%"):
            left, right = (_computed(side, row) for side in (term.left, term.right))
            return None if left is None or right is None else int(math.fmod(left, right))  # type: ignore[arg-type]
        case _:
            raise NotImplementedError(str(term))


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

"""Filters of engines as predicates that are never stronger: a row that passes the filter never fails the predicate.

Called by who plans scans, which prunes files by predicates. Where engines disagree about a row, the predicate is true
for it: Iceberg's Java library takes -0.0 for less than 0.0, which for Spark are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from skipstone_core.language.filters import IDENTITY, AllOf, Always, AnyOf, ColumnTest, Filter, Never, Unjudged
from skipstone_core.language.predicates import (
    And,
    ColumnRef,
    Comparison,
    Constant,
    InList,
    IsNull,
    Node,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Value,
)

_COMPARISONS: Mapping[str, Operator] = {"=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
#: What is asked of a zero instead, so that it holds for both zeros.
_OF_ZERO: Mapping[Operator, Operator] = {"<": "<=", ">": ">="}
#: A list of no values holds for no row.
_NEVER = InList(Constant(value=True), ())


def predicate_of(tree: Filter, names: Mapping[int, str]) -> Predicate | None:
    """The predicate of the columns in ``names`` (field id to name); None when the filter says nothing of them."""
    root = _node(tree, names)
    return Predicate(root, "a filter") if root else None


def _node(tree: Filter, names: Mapping[int, str]) -> Node | None:
    match tree:
        case Always() | Unjudged():
            return None
        case Never():
            return _NEVER
        case ColumnTest():
            return _tested(tree, names)
        case AllOf():
            kept = [node for part in tree.parts if (node := _node(part, names))]
            return And(tuple(kept)) if len(kept) > 1 else next(iter(kept), None)
        case AnyOf():
            parts = [_node(part, names) for part in tree.parts]
            known = tuple(node for node in parts if node)
            return Or(known) if len(known) == len(parts) else None


def _tested(test: ColumnTest, names: Mapping[int, str]) -> Node | None:
    name = names.get(test.term.field_id)
    if name is None or test.term.transform != IDENTITY:
        return None
    column = ColumnRef("", name)
    return _compared(column, test) if test.values else _UNARY[test.operator](column)


_UNARY: Mapping[str, Callable[[ColumnRef], Node | None]] = {
    "is-null": IsNull,
    "not-null": lambda column: Not(IsNull(column)),
    "is-nan": lambda column: Comparison("=", column, Constant(math.nan)),
    "not-nan": lambda _: None,
}


def _compared(column: ColumnRef, test: ColumnTest) -> Node | None:
    value = test.values[0]
    match test.operator:
        case "starts-with":
            return StartsWith(column, str(value))
        case "not-starts-with":
            return Or((IsNull(column), Not(StartsWith(column, str(value)))))
        case "in":
            return InList(column, tuple(map(Constant, test.values)))
        case "!=" | "not-in":
            return _differs(column, test.values)
        case operator:
            asked = _COMPARISONS[operator]
            return Comparison(_OF_ZERO.get(asked, asked) if _is_zero(value) else asked, column, Constant(value))


def _differs(column: ColumnRef, values: tuple[Value, ...]) -> Node | None:
    """True for null, as Iceberg has it; a zero of floats is not asked for, since one of the two may differ from it."""
    kept = tuple(Constant(value) for value in values if not _is_zero(value))
    if not kept:
        return None
    test: Node = Comparison("!=", column, kept[0]) if len(kept) == 1 else Not(InList(column, kept))
    return Or((IsNull(column), test))


def _is_zero(value: Value) -> bool:
    return isinstance(value, float) and value == 0.0

"""Filters that Spark pushes into the data source, as predicates.

Called by the data source. A filter that is not understood exactly is left out: Spark checks all of them again.
Must not decide what is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from skipstone_core.errors import BadSpec
from skipstone_core.language import predicates
from skipstone_core.language.predicates import (
    ColumnRef,
    Comparison,
    Constant,
    InList,
    Node,
    Operator,
    StartsWith,
    Value,
)

_COMPARISONS: Mapping[type[Filter], Operator] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def understood(pushed: Filter, schema: Schema) -> Node | None:
    """``pushed`` as a checked node on top-level columns of ``schema``; None when it cannot be told exactly."""
    node = _node(pushed)
    if node is None:
        return None
    types = {field.name: str(field.field_type) for field in schema.fields}
    try:
        return predicates.check_types(predicates.Predicate(node, str(pushed)), types).root
    except BadSpec:
        return None


def _node(pushed: Filter) -> Node | None:
    match pushed:
        case Not(EqualNullSafe() | In()):
            # Both are about nulls in a way that the plain negation is not.
            return None
        case Not(child):
            inner = _node(child)
            return None if inner is None else predicates.Not(inner)
        case _:
            path: tuple[str, ...] = getattr(pushed, "attribute", ())
            return _leaf(pushed, ColumnRef("", path[0])) if len(path) == 1 else None


def _leaf(pushed: Filter, column: ColumnRef) -> Node | None:
    match pushed:
        case IsNull():
            return predicates.IsNull(column)
        case IsNotNull():
            return predicates.Not(predicates.IsNull(column))
        case StringStartsWith(_, str(prefix)):
            return StartsWith(column, prefix)
        case In(_, values):
            return _in_list(column, values)
        case EqualNullSafe(_, None):
            return predicates.IsNull(column)
        case EqualNullSafe(_, value):
            return _comparison("=", column, value)
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return _comparison(_COMPARISONS[type(pushed)], column, pushed.value)
        case _:
            return None


def _comparison(op: Operator, column: ColumnRef, value: object) -> Node | None:
    return Comparison(op, column, Constant(value)) if isinstance(value, Value) else None


def _in_list(column: ColumnRef, values: tuple[object, ...]) -> Node | None:
    """A null in the list makes no row match; a list of nothing else is left to Spark."""
    known = [value for value in values if value is not None]
    if not known or not all(isinstance(value, Value) for value in known):
        return None
    return InList(column, tuple(Constant(value) for value in known if isinstance(value, Value)))

"""Evaluates checked predicates on Arrow columns with SQL's three-valued logic.

Called by the merge kernels for ``when`` conditions. Tested against the scalar definition in the core. As in Spark, what
is computed and can fail is computed only for rows that the parts before it, in AND and OR, do not decide.
Must not parse or check: it takes what the core has checked.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache
from skipstone_core.keys import float_order
from skipstone_core.language.predicates import (
    And,
    ColumnRef,
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
    Wildcard,
    computes,
)

from skipstone.kernels.canonical import ordered_floats
from skipstone.kernels.computing.expressions import compute

Columns = Mapping[str, pa.Array]
Comparable: TypeAlias = Any

_EXACT = pa.decimal256(76, 38)
_WHOLE = pa.decimal128(38, 0)
_DAY_MICROSECONDS = Decimal(86_400_000_000)
#: Lists are remembered as Arrow has them, so many literals in all; to convert shorter ones costs nothing.
_MOST_LITERALS, _SHORT_LIST = 1 << 17, 16
_COMPARE: Mapping[Operator, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def evaluate_predicate(predicate: Predicate, columns: Columns, rows: int) -> pa.Array:
    """True, false or null for each of ``rows`` rows; ``columns`` are keyed as ``source.x`` and ``target.y``.

    Raises BadData (BAD_RECORDS) as ``compute`` does, for a row whose result depends on the value that fails.
    """
    result = _evaluate(predicate.root, columns, rows)
    return result if isinstance(result, pa.Array) else pa.array([result.as_py()] * rows, type=pa.bool_())


def _evaluate(node: Node, columns: Columns, rows: int) -> Comparable:
    match node:
        case Not():
            return pc.invert(_evaluate(node.inner, columns, rows))
        case And() | Or() if any(map(computes, node.parts)):
            return _in_order(node, columns, rows)
        case And():
            return reduce(pc.and_kleene, [_evaluate(part, columns, rows) for part in node.parts])
        case Or():
            return reduce(pc.or_kleene, [_evaluate(part, columns, rows) for part in node.parts])
        case _:
            return _tested(node, columns, rows)


def _tested(node: Comparison | InList | IsNull | StartsWith | Like, columns: Columns, rows: int) -> Comparable:
    match node:
        case Comparison():
            left, right = (_operand(operand, columns, rows) for operand in (node.left, node.right))
            return _compare(node.op, left, right)
        case InList():
            return _in_list(node, columns, rows)
        case IsNull():
            return pc.is_null(_operand(node.operand, columns, rows))
        case StartsWith():
            return pc.starts_with(_text(node.operand, columns, rows), pattern=node.prefix)
        case Like():
            return pc.match_substring_regex(_text(node.operand, columns, rows), pattern=_pattern(node))


def _in_order(node: And | Or, columns: Columns, rows: int) -> pa.Array:
    """A conjunction or disjunction, whose parts are evaluated where those before them leave it open."""
    joined, decided = (pc.and_kleene, False) if isinstance(node, And) else (pc.or_kleene, True)
    result = pa.array(np.full(rows, not decided), pa.bool_())
    for part in node.parts:
        open_rows = pc.indices_nonzero(pc.fill_null(pc.not_equal(result, decided), fill_value=True))
        if len(open_rows) == rows or not computes(part):
            result = joined(result, _evaluate(part, columns, rows))
        else:
            named = {str(column) for column in Predicate(part, "").columns}
            some = {name: columns[name].take(open_rows) for name in named}
            results = evaluate_predicate(Predicate(part, ""), some, len(open_rows))
            places = np.zeros(rows, dtype=np.int64)
            is_open = np.zeros(rows, dtype=bool)
            places[open_rows] = np.arange(len(open_rows))
            is_open[open_rows] = True
            neutral = pa.array([not decided], pa.bool_())
            spread = pa.concat_arrays([results, neutral]).take(pa.array(np.where(is_open, places, len(results))))
            result = joined(result, spread)
    return result


def _text(operand: Operand, columns: Columns, rows: int) -> Comparable:
    value = _operand(operand, columns, rows)
    return value.cast(pa.string()) if pa.types.is_null(value.type) else value


def _pattern(node: Like) -> str:
    """The regular expression of a pattern; its wildcards also stand for ends of lines."""
    signs = {Wildcard.ANY: ".*", Wildcard.ONE: "."}
    texts = (signs[part] if isinstance(part, Wildcard) else re.escape(part) for part in node.parts)
    return rf"(?s)\A{''.join(texts)}\z"


def _in_list(node: InList, columns: Columns, rows: int) -> Comparable:
    """Literals of one type are looked for together: lists are long. One of no values holds for no row."""
    if not node.values:
        return pa.scalar(value=False)
    operand = _operand(node.operand, columns, rows)
    if isinstance(operand, pa.Scalar) or pa.types.is_null(operand.type):
        return reduce(pc.or_kleene, [_compare("=", operand, _scalar(value)) for value in node.values])
    matches = []
    for values in _literals(node):
        keys, wanted = _comparable(operand, values)
        matches.append(pc.is_in(keys, value_set=wanted))
    return pc.if_else(pc.is_valid(operand), reduce(pc.or_, matches), pa.scalar(None, pa.bool_()))


#: By the identity of a list, which is held so that no other has it: comparing lists takes as long as converting one.
_known: LRUCache[int, tuple[InList, tuple[pa.Array, ...]]] = LRUCache(
    _MOST_LITERALS, getsizeof=lambda known: 1 + len(known[0].values)
)
_lock = threading.Lock()


def _literals(node: InList) -> tuple[pa.Array, ...]:
    """The literals of a list by their types; it is evaluated on batch after batch."""
    with _lock:
        known = _known.get(id(node))
    if known is not None:
        return known[1]
    groups: dict[pa.DataType, list[pa.Scalar]] = {}
    for value in map(_scalar, node.values):
        groups.setdefault(value.type, []).append(value)
    made = tuple(pa.array([value.as_py() for value in values], kind) for kind, values in groups.items())
    with _lock:
        if _SHORT_LIST < len(node.values) < _known.maxsize:
            _known[id(node)] = (node, made)
    return made


def _compare(op: Operator, a: Comparable, b: Comparable) -> Comparable:
    for null, other in ((a, b), (b, a)):
        if pa.types.is_null(null.type):
            are_scalars = isinstance(null, pa.Scalar) and isinstance(other, pa.Scalar)
            return (
                pa.scalar(None, pa.bool_()) if are_scalars else pa.nulls(max(_length(null), _length(other)), pa.bool_())
            )
    return _COMPARE[op](*_comparable(a, b))


def _length(value: Comparable) -> int:
    return 0 if isinstance(value, pa.Scalar) else len(value)


def _operand(operand: Operand, columns: Columns, rows: int) -> Comparable:
    match operand:
        case ColumnRef():
            return columns[str(operand)]
        case Constant():
            return _scalar(operand)
        case Computed():
            return compute(operand.expression, columns, rows)


def _scalar(constant: Constant) -> pa.Scalar:
    match constant.value:
        case bool() | float() | str() | bytes():
            return pa.scalar(constant.value)
        case int() as number:
            return pa.scalar(number, pa.int64()) if abs(number) < 1 << 63 else pa.scalar(Decimal(number))
        case Decimal() as number:
            return pa.scalar(number)
        case datetime() as moment:
            return pa.scalar(moment, pa.timestamp("us", tz="UTC" if moment.tzinfo else None))
        case date() as day:
            return pa.scalar(day, pa.date32())


def _comparable(left: Comparable, right: Comparable) -> tuple[Comparable, Comparable]:
    """Both sides in a type in which Arrow compares as the rule says."""
    types = (left.type, right.type)
    if any(pa.types.is_floating(kind) for kind in types):
        return _ordered(left), _ordered(right)
    if any(pa.types.is_decimal(kind) for kind in types):
        return pc.cast(left, _EXACT), pc.cast(right, _EXACT)
    if any(pa.types.is_timestamp(kind) for kind in types):
        zone = next((kind.tz for kind in types if pa.types.is_timestamp(kind)), None)
        common = pa.timestamp("us", tz="UTC" if zone else None)
        try:
            return pc.cast(left, common), pc.cast(right, common)
        except pa.ArrowInvalid:
            if not any(pa.types.is_date(kind) for kind in types):
                raise
            return _microseconds(left), _microseconds(right)
    for test, common in _COMMON:
        if all(test(kind) for kind in types):
            return pc.cast(left, common), pc.cast(right, common)
    return left, right


def _microseconds(value: Comparable) -> Comparable:
    """Days and moments as decimals: there are days for which timestamps have no number."""
    if not pa.types.is_date(value.type):
        return pc.cast(pc.cast(pc.cast(value, pa.timestamp("us", tz=value.type.tz)), pa.int64()), _WHOLE)
    days = pc.cast(pc.cast(value, pa.int32()), pa.decimal128(10, 0))
    return pc.cast(pc.multiply(days, pa.scalar(_DAY_MICROSECONDS)), _WHOLE)


_COMMON: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_boolean, pa.int8()),
    (pa.types.is_integer, pa.int64()),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), pa.large_binary()),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind), pa.large_binary()),
)


def _ordered(value: Comparable) -> Comparable:
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        return pa.scalar(None if number is None else float_order(float(number)), pa.int64())
    return ordered_floats(value)

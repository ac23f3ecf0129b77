"""Evaluates checked predicates on Arrow columns with SQL's three-valued logic.

Called by the merge kernels for ``when`` conditions. Tested against the scalar definition in the core.
Must not parse or check: it takes what the core has checked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache
from skipstone_core.keys import float_order
from skipstone_core.language.predicates import (
    And,
    ColumnRef,
    Comparison,
    Constant,
    InList,
    IsNull,
    Node,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    StartsWith,
)

from skipstone.kernels.canonical import ordered_floats

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
    """True, false or null for each of ``rows`` rows; ``columns`` are keyed as ``source.x`` and ``target.y``."""
    result = _evaluate(predicate.root, columns)
    return result if isinstance(result, pa.Array) else pa.array([result.as_py()] * rows, type=pa.bool_())


def _evaluate(node: Node, columns: Columns) -> Comparable:
    match node:
        case Comparison():
            return _compare(node.op, node.left, node.right, columns)
        case InList():
            return _in_list(node, columns)
        case IsNull():
            return pc.is_null(_operand(node.operand, columns))
        case StartsWith():
            return pc.starts_with(_operand(node.operand, columns), pattern=node.prefix)
        case Not():
            return pc.invert(_evaluate(node.inner, columns))
        case And():
            return reduce(pc.and_kleene, [_evaluate(part, columns) for part in node.parts])
        case Or():
            return reduce(pc.or_kleene, [_evaluate(part, columns) for part in node.parts])


def _in_list(node: InList, columns: Columns) -> Comparable:
    """Literals of one type are looked for together: lists are long. One of no values holds for no row."""
    if not node.values:
        return pa.scalar(value=False)
    operand = _operand(node.operand, columns)
    if isinstance(operand, pa.Scalar):
        return reduce(pc.or_kleene, [_compare("=", node.operand, value, columns) for value in node.values])
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


def _compare(op: Operator, left: Operand, right: Operand, columns: Columns) -> Comparable:
    a, b = _operand(left, columns), _operand(right, columns)
    return _COMPARE[op](*_comparable(a, b))


def _operand(operand: Operand, columns: Columns) -> Comparable:
    if isinstance(operand, ColumnRef):
        return columns[str(operand)]
    return _scalar(operand)


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

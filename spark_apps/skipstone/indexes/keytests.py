"""Predicates as tests on stored keys: what an index or a file's bounds can say about "may be TRUE".

Made once per query from a checked predicate; lookup and the query planner read it. Negations are at the leaves and
what neither an index nor bounds can judge is ``Maybe``. Must not decide whether a row matches: filters do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType
from skipstone_core.keys import KeyFamily, key_type
from skipstone_core.language.predicates import (
    And,
    ColumnRef,
    Comparison,
    Computed,
    Constant,
    InList,
    IsNull,
    Node,
    Not,
    Operand,
    Operator,
    Or,
    StartsWith,
    Value,
)
from skipstone_core.stats import least_above

from skipstone.indexes.keys import arrow_type, storage_type, stored_keys, stored_literals

NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_WIDE = Context(prec=80)
_FLOAT_LIMIT = 10**300
#: Whole numbers below this are in the range of a column as they are.
_PLAIN_INTEGERS = 10**15
_FAMILIES = {bool: KeyFamily.BOOLEAN, str: KeyFamily.STRING, bytes: KeyFamily.BINARY}
_NO_ROW = pc.scalar(bool(0))
MIRRORED: dict[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True)
class Maybe:
    """Nothing is known: every row may match."""


@dataclass(frozen=True)
class NoKey:
    """No row matches."""


@dataclass(frozen=True)
class Points:
    """The key is one of ``values`` (stored form, sorted, unique, no nulls)."""

    field_id: int
    values: pa.Array


@dataclass(frozen=True)
class Range:
    """The key lies between two stored values; None: no bound."""

    field_id: int
    lower: pa.Scalar | None = None
    upper: pa.Scalar | None = None
    lower_open: bool = False
    upper_open: bool = False


@dataclass(frozen=True)
class Null:
    """The key is null (``expected``) or not null."""

    field_id: int
    expected: bool


@dataclass(frozen=True)
class AllTests:
    """Every part may hold."""

    parts: tuple[Test, ...]


@dataclass(frozen=True)
class AnyTest:
    """Some part may hold."""

    parts: tuple[Test, ...]


Test = Maybe | NoKey | Points | Range | Null | AllTests | AnyTest


def plan_test(node: Node, schema: Schema, side: str = "") -> Test:
    """The test of a predicate that ``check_types`` passed against ``schema``; ``side``: of its columns, in merges."""
    types = {str(ColumnRef(side, field.name)): (field.field_id, field.field_type) for field in schema.fields}
    return _test(node, types, negated=False)


def is_tested_whole(node: Node, schema: Schema, side: str = "") -> bool:
    """Return whether the test of a predicate covers all of it: a test leaves out what columns cannot decide."""
    types = {str(ColumnRef(side, field.name)): (field.field_id, field.field_type) for field in schema.fields}
    return _is_tested_whole(node, types, negated=False)


_Types = Mapping[str, tuple[int, IcebergType]]


def _is_tested_whole(node: Node, types: _Types, *, negated: bool) -> bool:
    match node:
        case Not():
            return _is_tested_whole(node.inner, types, negated=not negated)
        case And() | Or():
            return all(_is_tested_whole(part, types, negated=negated) for part in node.parts)
        case _:
            return not isinstance(_test(node, types, negated=negated), Maybe)


def _test(node: Node, types: _Types, *, negated: bool) -> Test:
    match node:
        case Not():
            return _test(node.inner, types, negated=not negated)
        case And() | Or():
            parts = tuple(_test(part, types, negated=negated) for part in node.parts)
            return all_of(parts) if isinstance(node, And) is not negated else any_of(parts)
        case IsNull():
            return _null_test(node, types, negated=negated)
        case Comparison():
            return _comparison_test(node, types, negated=negated)
        case InList() if not negated:
            return _list_test(node, types)
        case StartsWith() if not negated:
            return _prefix_test(node, types)
        case _:
            return Maybe()


def points_of(column: NestedField, values: pa.ChunkedArray) -> Test:
    """The test that a column has one of ``values``, which are of its type and not null."""
    storage = storage_type(column.field_type)
    if storage is None:
        return Maybe()
    keys = stored_keys(values.combine_chunks(), storage)
    return _merged_points([Points(column.field_id, keys)]) if len(keys) else NoKey()


def all_of(parts: tuple[Test, ...]) -> Test:
    """Conjunction, simplified."""
    kept = tuple(part for part in parts if not isinstance(part, Maybe))
    if any(isinstance(part, NoKey) for part in kept):
        return NoKey()
    if len(kept) < 2:
        return kept[0] if kept else Maybe()
    return AllTests(kept)


def any_of(parts: tuple[Test, ...]) -> Test:
    """Disjunction, simplified; points of one column become one set of points."""
    kept = tuple(part for part in parts if not isinstance(part, NoKey))
    if any(isinstance(part, Maybe) for part in kept):
        return Maybe()
    points = [part for part in kept if isinstance(part, Points)]
    columns = {part.field_id for part in points}
    merged = tuple(_merged_points([part for part in points if part.field_id == column]) for column in sorted(columns))
    kept = (*merged, *(part for part in kept if not isinstance(part, Points)))
    if len(kept) < 2:
        return kept[0] if kept else NoKey()
    return AnyTest(kept)


def _merged_points(points: list[Points]) -> Points:
    values = pa.concat_arrays([part.values for part in points]).unique()
    return Points(points[0].field_id, values.take(pc.sort_indices(values)))


def _null_test(node: IsNull, types: _Types, *, negated: bool) -> Test:
    if _is_null(node.operand):
        return NoKey() if negated else Maybe()
    if isinstance(node.operand, Constant):
        return Maybe() if negated else NoKey()
    known = _column(node.operand, types)
    if known is None:
        return Maybe()
    field_id, kind = known
    return Null(field_id, not negated) if storage_type(kind) else Maybe()


def _list_test(node: InList, types: _Types) -> Test:
    """One set of points, made at once: lists may be long."""
    if _is_null(node.operand):
        return NoKey()
    if isinstance(node.operand, Constant):
        equal = (Comparison("=", node.operand, value) for value in node.values)
        return any_of(tuple(_comparison_test(equality, types, negated=False) for equality in equal))
    column = _column(node.operand, types)
    if column is None:
        return Maybe()
    field_id, kind = column
    values = [constant.value for constant in node.values]
    known = list[object](values) if _are_own(values, kind) else _equal_to(values, kind)
    if known is None:
        return Maybe()
    return _merged_points([Points(field_id, stored_literals(known, kind))]) if known else NoKey()


def _are_own(values: list[Value], kind: IcebergType) -> bool:
    """Return whether values are all such as a column holds, without a look at each by the rules for others."""
    if isinstance(kind, IntegerType | LongType):
        return all(type(value) is int and abs(value) < _PLAIN_INTEGERS for value in values)
    return isinstance(kind, StringType) and all(isinstance(value, str) for value in values)


def _equal_to(values: list[Value], kind: IcebergType) -> list[object] | None:
    """The values of a column that equal some of others; None when that cannot be told."""
    bounds = [_bound("=", value, kind) for value in values]
    known = [bound[1] for bound in bounds if bound is not None]
    return [value for value in known if value is not None] if len(known) == len(bounds) else None


def _prefix_test(node: StartsWith, types: _Types) -> Test:
    column = _column(node.operand, types)
    if column is None or not node.prefix:
        return Maybe()
    field_id, _ = column
    upper = least_above(node.prefix)
    return Range(
        field_id,
        lower=pa.scalar(node.prefix),
        upper=None if upper is None else pa.scalar(upper),
        upper_open=True,
    )


def _comparison_test(node: Comparison, types: _Types, *, negated: bool) -> Test:
    op, left, right = NEGATED[node.op] if negated else node.op, node.left, node.right
    if _is_null(left) or _is_null(right):
        return NoKey()
    if isinstance(left, Constant):
        op, left, right = MIRRORED[op], right, left
    column = _column(left, types)
    if column is None or not isinstance(right, Constant) or op == "!=":
        return Maybe()
    field_id, kind = column
    bound = _bound(op, right.value, kind)
    if bound is None:
        return Maybe()
    return _bound_test(field_id, kind, *bound)


def _is_null(operand: Operand) -> bool:
    """Return whether an operand is null in every row: a test of it is never true, nor is its negation."""
    return isinstance(operand, Computed) and operand.is_null


def _column(operand: Operand, types: _Types) -> tuple[int, IcebergType] | None:
    """The column that an operand is; None for what is computed, and for columns of another side."""
    return types.get(str(operand)) if isinstance(operand, ColumnRef) else None


def _bound_test(field_id: int, kind: IcebergType, op: Operator, value: object) -> Test:
    if value is None:
        return NoKey()
    stored = stored_literals([value], kind)
    match op:
        case "=":
            return Points(field_id, stored)
        case "<" | "<=":
            return Range(field_id, upper=stored[0], upper_open=op == "<")
        case _:
            return Range(field_id, lower=stored[0], lower_open=op == ">")


def _bound(op: Operator, value: Value, kind: IcebergType) -> tuple[Operator, object] | None:
    """The comparison in the column's own type; a None value means never, None means that it cannot be told here."""
    column = key_type(str(kind))
    family = None if column is None else column.family
    match value:
        case bool() | str() | bytes():
            return (op, value) if family is _FAMILIES[type(value)] else None
        case float() if family is KeyFamily.FLOAT:
            return (op, value)
        case int() | Decimal() if family is KeyFamily.FLOAT:
            return (op, float(value)) if abs(Decimal(value)) < _FLOAT_LIMIT else None
        case int() | Decimal() if family in (KeyFamily.INTEGER, KeyFamily.DECIMAL):
            return _number_bound(op, Decimal(value), kind)
        case datetime():
            return _moment_bound(op, value, family)
        case date():
            return (
                (op, value) if family is KeyFamily.DATE else _moment_bound(op, datetime.combine(value, time()), family)
            )
        case _:
            return None


def _moment_bound(op: Operator, value: datetime, family: KeyFamily | None) -> tuple[Operator, object] | None:
    expected = KeyFamily.TIMESTAMP if value.tzinfo is None else KeyFamily.TIMESTAMPTZ
    return (op, value) if family is expected else None


def _number_bound(op: Operator, value: Decimal, kind: IcebergType) -> tuple[Operator, object] | None:
    """Round a number onto the column's scale without changing which column values pass."""
    column = key_type(str(kind))
    scale = column.scale if column else 0
    rounding = ROUND_FLOOR if op in ("<", "<=", ">") else ROUND_CEILING
    if not value.is_finite() or max(value.adjusted(), 0) + scale + 2 > (18 if storage_type(kind) == "long" else 38):
        return None
    rounded = value.quantize(Decimal(1).scaleb(-scale), rounding=rounding, context=_WIDE)
    if rounded == value:
        return op, _number(rounded, kind)
    # 1.5 on integers: < and <= become <= 1, > becomes > 1, >= becomes >= 2, = never holds
    exact: dict[Operator, Operator] = {"<": "<=", "<=": "<=", ">": ">", ">=": ">="}
    return (exact[op], _number(rounded, kind)) if op != "=" else (op, None)


def _number(value: Decimal, kind: IcebergType) -> object:
    return value if storage_type(kind) != "long" else int(value)


def index_expression(test: Test, keys: Mapping[int, tuple[str, str]]) -> pc.Expression | None:
    """The test as an Arrow filter on key columns; None when the index cannot judge it.

    ``keys``: field id to (name of the key column, storage type).
    """
    match test:
        case Points() | Range() | Null():
            return _leaf_expression(test, *keys[test.field_id]) if test.field_id in keys else None
        case AllTests():
            known = [part for part in (index_expression(part, keys) for part in test.parts) if part is not None]
            return _folded(known, conjunction=True) if known else None
        case AnyTest():
            arms = [index_expression(part, keys) for part in test.parts]
            known = [arm for arm in arms if arm is not None]
            return _folded(known, conjunction=False) if len(known) == len(arms) else None
        case NoKey():
            return _NO_ROW
        case Maybe():
            return None


def _folded(parts: list[pc.Expression], *, conjunction: bool) -> pc.Expression:
    result = parts[0]
    for part in parts[1:]:
        result = result & part if conjunction else result | part
    return result


def _leaf_expression(test: Points | Range | Null, name: str, storage: str) -> pc.Expression:
    field = pc.field(name)
    if isinstance(test, Null):
        return field.is_null() if test.expected else field.is_valid()
    if isinstance(test, Points):
        return field == test.values[0] if len(test.values) == 1 else field.isin(test.values.cast(arrow_type(storage)))
    bounds = []
    if test.lower is not None:
        bounds.append(field > test.lower if test.lower_open else field >= test.lower)
    if test.upper is not None:
        bounds.append(field < test.upper if test.upper_open else field <= test.upper)
    return _folded(bounds, conjunction=True)


def tested_columns(test: Test) -> frozenset[int]:
    """Field ids of all columns that a test names."""
    match test:
        case Points() | Range() | Null():
            return frozenset({test.field_id})
        case AllTests() | AnyTest():
            return frozenset().union(*(tested_columns(part) for part in test.parts))
        case _:
            return frozenset()


def not_null(test: Test) -> frozenset[int]:
    """Field ids of the columns that a test, or a part of its conjunction, only says of that they hold a value."""
    parts = test.parts if isinstance(test, AllTests) else (test,)
    return frozenset(part.field_id for part in parts if isinstance(part, Null) and not part.expected)


def narrowed_columns(test: Test) -> frozenset[int]:
    """Field ids of all columns of which a test says more than that they hold a value."""
    parts = test.parts if isinstance(test, AllTests) else (test,)
    others = (part for part in parts if not (isinstance(part, Null) and not part.expected))
    return frozenset().union(*(tested_columns(part) for part in others))


def bounds_leading(test: Test, field_id: int) -> bool:
    """Return whether the test narrows the column ``field_id``: only then is a sorted index faster than a scan."""
    match test:
        case Points() | Range() | Null():
            return test.field_id == field_id and not (isinstance(test, Null) and not test.expected)
        case AllTests():
            return any(bounds_leading(part, field_id) for part in test.parts)
        case AnyTest():
            return all(bounds_leading(part, field_id) for part in test.parts)
        case NoKey():
            return True
        case Maybe():
            return False

"""Filters read from the JSON of PyIceberg's own client: no row that PyIceberg keeps fails the predicate made of them.

`make test` takes a few random cases, `make soak-expressions` SKIPSTONE_SOAK_CASES others each time.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import expression_evaluator, rewrite_not
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone_core.language.filterpredicates import predicate_of
from skipstone_core.language.filters import Filter, Unjudged, leaves
from skipstone_core.language.icebergjson import FilterColumns, read_filter
from skipstone_core.language.predicates import check_types

from tests.examples import cases
from tests.unit.filter_cases import KINDS, ODD, Column, arrow_column, nearest_float, random_value, rows, schemas, stored

_COMPARISONS = (EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
#: Types of which both libraries have one order, and whose values of one type are all literals that fit it.
_CLEAR = tuple(
    kind for kind in KINDS if kind.name.partition("(")[0] in {"boolean", "int", "long", "string", "date", "timestamp"}
)


class _Case(NamedTuple):
    columns: list[Column]
    data: list[list[Any]]
    expression: BooleanExpression
    case_sensitive: bool


def _literals(column: Column) -> st.SearchStrategy[Any]:
    """Values of the column's type. PyIceberg makes no literal of NaN, and rounds floats only where it reads rows."""
    match column.kind.name:
        case "float":
            return random_value(column.kind).filter(lambda value: value == nearest_float(value))
        case _:
            return random_value(column.kind).filter(lambda value: value == value)  # noqa: PLR0124


@st.composite
def _tests(draw: st.DrawFn, columns: list[Column], odd: bool) -> BooleanExpression:
    column = draw(st.sampled_from(columns))
    fitting = _literals(column)
    match draw(st.sampled_from(["compare", "compare", "list", "null", "nan", "prefix"])):
        case "compare":
            test = draw(st.sampled_from(_COMPARISONS))
            return test(column.name, draw(fitting | st.sampled_from(ODD) if odd else fitting))
        case "list":
            return draw(st.sampled_from([In, NotIn]))(column.name, draw(st.lists(fitting, max_size=4)))
        case "nan" if odd:
            return draw(st.sampled_from([IsNaN, NotNaN]))(column.name)
        case "prefix" if column.kind.name == "string":
            return draw(st.sampled_from([StartsWith, NotStartsWith]))(column.name, draw(fitting))
        case _:
            return draw(st.sampled_from([IsNull, NotNull]))(column.name)


def _trees(columns: list[Column], *, odd: bool) -> st.SearchStrategy[BooleanExpression]:
    return st.recursive(
        _tests(columns, odd),
        lambda inner: st.builds(And, inner, inner) | st.builds(Or, inner, inner) | st.builds(Not, inner),
        max_leaves=6,
    )


@st.composite
def _cases(draw: st.DrawFn, kinds: tuple[Any, ...] = KINDS, *, odd: bool = True) -> _Case:
    columns = draw(schemas(kinds))
    return _Case(columns, draw(rows(columns)), draw(_trees(columns, odd=odd)), draw(st.booleans()))


def _sent(case: _Case) -> Any:
    """The filter as PyIceberg's client writes it; names in another case where case does not count."""
    request = PlanTableScanRequest(filter=case.expression)
    decoded = json.loads(request.model_dump_json(by_alias=True, exclude_none=True))["filter"]
    return decoded if case.case_sensitive else _uppercase(decoded)


def _uppercase(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: value.upper() if key == "term" else _uppercase(value) for key, value in node.items()}


def _read(case: _Case) -> Filter:
    names = {column.name: column.field_id for column in case.columns}
    types = {column.field_id: column.kind.name for column in case.columns}
    return read_filter(_sent(case), FilterColumns((names,), types), case_sensitive=case.case_sensitive)


def _kept_by_us(case: _Case, tree: Filter) -> list[bool]:
    predicate = predicate_of(tree, {column.field_id: column.name for column in case.columns})
    if predicate is None:
        return [True] * len(case.data)
    checked = check_types(predicate, {column.name: column.kind.name for column in case.columns})
    arrays = {column.name: arrow_column(column, case.data, place) for place, column in enumerate(case.columns)}
    return [kept is True for kept in evaluate_predicate(checked, arrays, len(case.data)).to_pylist()]


def _type(column: Column) -> PrimitiveType:
    return PrimitiveType.model_validate(column.kind.name)


def _kept_by_pyiceberg(case: _Case) -> list[bool] | None:
    """None: PyIceberg refuses the filter, for its types."""
    fields = (
        NestedField(column.field_id, column.name, _type(column), required=column.is_required) for column in case.columns
    )
    try:
        keeps = expression_evaluator(Schema(*fields), rewrite_not(case.expression), case_sensitive=True)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return [bool(keeps(Record(*map(stored, row)))) for row in case.data]


@settings(max_examples=cases(400, 6000))
@given(_cases())
def test_no_row_that_pyiceberg_keeps_fails_the_predicate(case: _Case) -> None:
    tree = _read(case)
    ours, theirs = _kept_by_us(case, tree), _kept_by_pyiceberg(case)
    event(f"refused {theirs is None}, kept all {all(ours)}")
    for row, is_kept, must_keep in zip(case.data, ours, theirs or [], strict=theirs is not None):
        assert is_kept or not must_keep, row


@settings(max_examples=cases(200, 3000))
@given(_cases(_CLEAR, odd=False))
def test_a_filter_of_values_that_fit_means_what_pyiceberg_says(case: _Case) -> None:
    tree = _read(case)
    assert not [leaf for leaf in leaves(tree) if isinstance(leaf, Unjudged)]
    assert _kept_by_us(case, tree) == _kept_by_pyiceberg(case)


def test_everything_is_a_filter() -> None:
    case = _Case([], [], AlwaysTrue(), case_sensitive=True)
    assert _kept_by_us(case, _read(case)) == []

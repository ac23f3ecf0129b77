"""Filters read from the JSON of PyIceberg's own client: no row that PyIceberg keeps fails the predicate made of them.

`make test` takes a few random cases, `make soak-expressions` more of them, others each time.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from hypothesis import given, settings
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
from skipstone_core.language.filters import Always, Filter, Unjudged, leaves

from tests.examples import cases
from tests.unit.filter_cases import (
    CLEAR,
    KINDS,
    ODD,
    Column,
    kept_by_predicate,
    literals_of,
    nearest_float,
    read_of,
    rows,
    schemas,
    stored,
    verdicts,
)

_COMPARISONS = (EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


class _Case(NamedTuple):
    columns: list[Column]
    data: list[list[Any]]
    expression: BooleanExpression
    case_sensitive: bool


def _literals(column: Column, place: int, data: list[list[Any]]) -> st.SearchStrategy[Any]:
    """PyIceberg rounds literals to floats only where it reads rows, not where it evaluates them."""
    literals = literals_of(column, place, data)
    return literals.map(nearest_float) if column.kind.name == "float" else literals


@st.composite
def _tests(draw: st.DrawFn, columns: list[Column], data: list[list[Any]], odd: bool) -> BooleanExpression:
    place, column = draw(st.sampled_from([*enumerate(columns)]))
    fitting = _literals(column, place, data)
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


def _trees(columns: list[Column], data: list[list[Any]], *, odd: bool) -> st.SearchStrategy[BooleanExpression]:
    return st.recursive(
        _tests(columns, data, odd),
        lambda inner: st.builds(And, inner, inner) | st.builds(Or, inner, inner) | st.builds(Not, inner),
        max_leaves=6,
    )


@st.composite
def _cases(draw: st.DrawFn, kinds: tuple[Any, ...] = KINDS, *, odd: bool = True) -> _Case:
    columns = draw(schemas(kinds))
    data = draw(rows(columns))
    return _Case(columns, data, draw(_trees(columns, data, odd=odd)), draw(st.booleans()))


def _sent(case: _Case) -> Any:
    """The filter as PyIceberg's client writes it; names in another case where case does not count."""
    decoded = _as_sent(case.expression)
    return decoded if case.case_sensitive else _uppercase(decoded)


def _as_sent(expression: BooleanExpression) -> Any:
    request = PlanTableScanRequest(filter=expression)
    return json.loads(request.model_dump_json(by_alias=True, exclude_none=True))["filter"]


def sent_filters(columns: list[Column], data: list[list[Any]]) -> st.SearchStrategy[tuple[BooleanExpression, Any]]:
    """Random filters on a table, as PyIceberg has them and as it sends them."""
    return _trees(columns, data, odd=True).map(lambda expression: (expression, _as_sent(expression)))


def _uppercase(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: value.upper() if key == "term" else _uppercase(value) for key, value in node.items()}


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


def _read(case: _Case) -> Filter:
    return read_of(case.columns, _sent(case), case_sensitive=case.case_sensitive)


def test_no_row_that_pyiceberg_keeps_fails_the_predicate() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=cases(120, 6000))
    @given(_cases())
    def check(case: _Case) -> None:
        ours, theirs = kept_by_predicate(case.columns, case.data, _read(case)), _kept_by_pyiceberg(case)
        seen.update(verdicts(ours, theirs))
        for row, is_kept, must_keep in zip(case.data, ours, theirs or [], strict=theirs is not None):
            assert is_kept or not must_keep, row

    check()
    print(f"\nPyIceberg: {dict(seen)}")


def test_a_filter_of_values_that_fit_means_what_pyiceberg_says() -> None:
    @settings(max_examples=cases(60, 3000))
    @given(_cases(CLEAR, odd=False))
    def check(case: _Case) -> None:
        tree = _read(case)
        assert not [leaf for leaf in leaves(tree) if isinstance(leaf, Unjudged)]
        assert kept_by_predicate(case.columns, case.data, tree) == _kept_by_pyiceberg(case)

    check()


def test_everything_is_a_filter() -> None:
    case = _Case([], [], AlwaysTrue(), case_sensitive=True)
    assert isinstance(_read(case), Always)

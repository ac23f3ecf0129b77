"""Predicates on Arrow columns mean what they mean on single rows, nulls, NaN and zeros included."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone_core.language.expressions import Arithmetic, Atom, Call
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
    Or,
    Predicate,
    StartsWith,
    Value,
    Wildcard,
    check_types,
)

from tests.unit.scalar_predicates import evaluate

COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "source.i": ("long", pa.int64()),
    "target.j": ("int", pa.int32()),
    "source.d": ("decimal(9, 2)", pa.decimal128(9, 2)),
    "target.e": ("decimal(38, 10)", pa.decimal128(38, 10)),
    "source.x": ("double", pa.float64()),
    "target.y": ("float", pa.float32()),
    "source.s": ("string", pa.string()),
    "target.t": ("string", pa.large_string()),
    "source.b": ("boolean", pa.bool_()),
    "source.day": ("date", pa.date32()),
    "target.at": ("timestamp", pa.timestamp("us")),
    "source.seen": ("timestamptz", pa.timestamp("us", tz="UTC")),
}
TEXTS = ["", "a", "a\nb", "ab", "abc", "é", "\uffff", "\U0001f600", "b\x00"]
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 1.0, 1.5, math.inf, math.nan]
DECIMALS = [Decimal(text) for text in ("-1.50", "0", "1", "1.50", "9999999.99")]
DAYS = [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)]
MOMENTS = [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime(2024, 2, 29, 12)]  # noqa: DTZ001
INSTANTS = [moment.replace(tzinfo=UTC) for moment in MOMENTS]
NUMBERS = ["source.i", "target.j", "source.d", "target.e", "source.x", "target.y"]
GROUPS: list[tuple[list[str], list[Value]]] = [
    (NUMBERS, [-2, 0, 1, 5, 2**62, *DECIMALS, *FLOATS]),
    (["source.s", "target.t"], list(TEXTS)),
    (["source.b"], [True, False]),
    (["source.day", "target.at"], [*DAYS, *MOMENTS]),
    (["source.seen"], list(INSTANTS)),
]
VALUES: dict[str, list[Value]] = {
    "source.i": [-2, 0, 1, 2**62],
    "target.j": [-2, 0, 1, 5],
    "source.d": list(DECIMALS),
    "target.e": list(DECIMALS),
    "source.x": list(FLOATS),
    "target.y": list(FLOATS),
    "source.s": list(TEXTS),
    "target.t": list(TEXTS),
    "source.b": [True, False],
    "source.day": list(DAYS),
    "target.at": list(MOMENTS),
    "source.seen": list(INSTANTS),
}


def column(name: str) -> ColumnRef:
    side, bare = name.split(".")
    return ColumnRef(side, bare)


def computed(column: ColumnRef, values: list[Value]) -> st.SearchStrategy[Computed]:
    """A column where it is not null, a remainder of whole numbers, or null."""
    first, null = Atom(column), Atom(None)
    terms = [Call("coalesce", (first, Atom(Constant(value)))) for value in values[:3]]
    if str(column) in ("source.i", "target.j"):
        terms += [Arithmetic("%", first, Atom(Constant(number))) for number in (3, -3, 1)]
    return st.sampled_from([*terms, Call("coalesce", (null, first)), null]).map(Computed)


@st.composite
def leaves(draw: st.DrawFn) -> Node:
    names, values = draw(st.sampled_from(GROUPS))
    left = column(draw(st.sampled_from(names)))
    constants = st.sampled_from(values).map(Constant)
    match draw(st.integers(0, 5)):
        case 0:
            return IsNull(left)
        case 4 if names[0] == "source.s":
            parts = st.sampled_from([Wildcard.ANY, Wildcard.ONE, "a", "b\x00", "\U0001f600", ".", "\n"])
            return Like(left, tuple(draw(st.lists(parts, max_size=4))))
        case 5:
            return Comparison(draw(st.sampled_from(["=", "<", "!="])), draw(computed(left, values)), draw(constants))
        case 1:
            return InList(left, tuple(draw(st.lists(constants, max_size=3))))
        case 2 if names[0] == "source.s":
            return StartsWith(left, draw(st.sampled_from(TEXTS)))
        case _:
            right = draw(constants | st.sampled_from(names).map(column))
            return Comparison(draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), left, right)


nodes = st.recursive(
    leaves(),
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts)))
    ),
    max_leaves=6,
)
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(nodes, rows)
def test_arrays_mean_what_rows_mean(root: Node, data: list[dict[str, Value | None]]) -> None:
    types = {name: iceberg for name, (iceberg, _) in COLUMNS.items()}
    predicate = check_types(Predicate(root, ""), types)
    arrays = {name: pa.array([row[name] for row in data], kind) for name, (_, kind) in COLUMNS.items()}
    found = evaluate_predicate(predicate, arrays, len(data)).to_pylist()
    assert found == [evaluate(predicate, row) for row in data]


def test_a_predicate_without_columns_holds_for_every_row() -> None:
    predicate = Predicate(Comparison("=", Constant(1), Constant(1)), "1 = 1")
    assert evaluate_predicate(predicate, {}, 3).to_pylist() == [True, True, True]


def test_lists_that_are_gone_are_not_taken_for_later_ones() -> None:
    columns = {"source.n": pa.array(range(40))}
    for start in [*range(20), *range(20)]:
        wanted = InList(ColumnRef("source", "n"), tuple(Constant(start + n) for n in range(20)))
        for _ in range(2):
            found = evaluate_predicate(Predicate(wanted, ""), columns, 40)
            assert [n for n, is_in in enumerate(found.to_pylist()) if is_in] == [*range(start, start + 20)]


@pytest.mark.parametrize("operand", [ColumnRef("source", "b"), Constant(value=False)], ids=["column", "constant"])
def test_a_list_of_no_values_holds_for_no_row(operand: ColumnRef | Constant) -> None:
    """A condition that can never hold is such a list; a row need not be null to fail it."""
    columns = {"source.b": pa.array([True, None])}
    never = InList(operand, ())
    for root, expected in ((never, False), (Not(never), True), (Or((never, IsNull(Constant(1)))), False)):
        predicate = Predicate(root, "")
        assert evaluate_predicate(predicate, columns, 2).to_pylist() == [expected] * 2, root
        assert [evaluate(predicate, {"source.b": value}) for value in (True, None)] == [expected] * 2, root


@settings(max_examples=60)
@given(st.lists(st.decimals(min_value=-(10**17), max_value=10**17, places=15), min_size=20, max_size=20, unique=True))
def test_decimals_are_compared_with_floats_as_the_nearest_ones(decimals: list[Decimal]) -> None:
    column, values = ColumnRef("source", "x"), tuple(map(Constant, decimals))
    floats = pa.array([float(one) for one in decimals])
    tests: list[Node] = [InList(column, values), InList(column, values[:3])]
    tests += [Comparison("=", column, one) for one in values[:3]]
    for root, count in zip(tests, (20, 3, 1, 1, 1), strict=True):
        found = evaluate_predicate(Predicate(root, ""), {"source.x": floats}, 20)
        assert sum(one is True for one in found.to_pylist()) >= count
    stored = pa.array(decimals, pa.decimal128(38, 15))
    same = Comparison("=", ColumnRef("source", "d"), ColumnRef("source", "x"))
    found = evaluate_predicate(Predicate(same, ""), {"source.d": stored, "source.x": floats}, 20)
    assert found.to_pylist() == [True] * 20

"""Conditions of Spark plans in our terms: TRUE stays TRUE whatever is left out, and what is left out has a code."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.query.plans.analysis.catalyst import Node, read_tree
from skipstone.query.plans.analysis.expressions import Translator, find_moments, is_narrowing, why_not
from skipstone.query.plans.analysis.literals import Hidden
from skipstone.query.plans.analysis.texts import shown
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing.residuals import MAX_VALUES, residual_of
from skipstone_core.language import predicates as core

from tests.unit.scalar_predicates import any_of, compare, evaluate

COLUMNS = {
    1: ("a", "int"),
    2: ("b", "int"),
    3: ("t", "timestamptz"),
    4: ("u", "uuid"),
    5: ("s", "string"),
    6: ("v", "binary"),
    7: ("w", "fixed[1]"),
}
TYPES = {1: "integer", 2: "integer", 3: "timestamp", 4: "string", 5: "string", 6: "binary", 7: "binary"}
Tree = list[dict[str, Any]]
Row = dict[str, Any]


def tree(name: str, /, *children: Tree, **fields: Any) -> Tree:
    """A node as Catalyst writes it, before its children."""
    head = {"class": f"org.apache.spark.sql.catalyst.expressions.{name}", "num-children": len(children), **fields}
    return [head, *(node for child in children for node in child)]


def column(number: int) -> Tree:
    """An attribute."""
    return tree("AttributeReference", name="x", dataType=TYPES[number], exprId={"id": number})


def literal(value: object, kind: str = "integer") -> Tree:
    """A literal, which JSON holds as text."""
    return tree("Literal", value=None if value is None else str(value).lower(), dataType=kind)


def nothing(node: Node) -> Any:
    """Of a value that is not hidden here."""
    raise LookupError(node.name)


def fields(literal: Node) -> list[str]:
    """Of a row: here its text holds them."""
    return str(literal.fields["value"]).strip("[]").split(",")


def translated(condition: Tree) -> core.Node | None:
    """What may be TRUE where the condition is."""
    node = read_tree(condition)
    hidden = Hidden(lambda _: 1_500_000, lambda _: b"\x01", lambda _: None, fields, nothing)
    return Translator(COLUMNS, hidden, find_moments(node)).may_be_true(node)


def texts(*values: str) -> list[Tree]:
    """Literals of text."""
    return [literal(value, "string") for value in values]


ROW = {"type": "struct", "fields": [{"name": "x", "type": "integer"}, {"name": "y", "type": "integer"}]}


def row(*values: int | None) -> Tree:
    """A literal of a row, which JSON holds as one text."""
    return tree("Literal", value=f"[{','.join('null' if one is None else str(one) for one in values)}]", dataType=ROW)


def columns(*numbers: int) -> Tree:
    """A row of columns."""
    named = [part for number in numbers for part in (literal("x", "string"), column(number))]
    return tree("CreateNamedStruct", *named, dataType=ROW)


NUMBERS = st.one_of(st.none(), st.integers(-2, 2))
ROWS = st.builds(row, NUMBERS, NUMBERS)
COMPARISONS = ["EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"]
LEAVES = st.one_of(
    st.builds(
        lambda name, numbers, value, mirrored: tree(name, *([value, columns(*numbers)][:: -1 if mirrored else 1])),
        st.sampled_from(COMPARISONS),
        st.sampled_from([(1, 2), (2, 1), (1, 1)]),
        ROWS,
        st.booleans(),
    ),
    st.builds(lambda rows: tree("In", columns(1, 2), *rows), st.lists(ROWS, min_size=1, max_size=3)),
    st.builds(
        lambda name, number, value, mirrored: tree(name, *([literal(value), column(number)][:: -1 if mirrored else 1])),
        st.sampled_from(COMPARISONS),
        st.sampled_from([1, 2]),
        NUMBERS,
        st.booleans(),
    ),
    st.builds(
        lambda number, values: tree("In", column(number), *map(literal, values)),
        st.sampled_from([1, 2]),
        st.lists(NUMBERS, min_size=1, max_size=3),
    ),
    st.builds(lambda name, number: tree(name, column(number)), st.sampled_from(["IsNull", "IsNotNull"]), st.just(1)),
    st.builds(lambda value: literal(value, "boolean"), st.sampled_from([True, False, None])),
    st.just(tree("LessThan", column(1), column(2))),
)


def in_cases(conditions: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """Values that depend on conditions."""
    simple = st.one_of(st.sampled_from([column(1), column(2)]), st.builds(literal, NUMBERS))
    values = st.one_of(simple, st.builds(lambda *parts: tree("Coalesce", *parts), simple, simple))
    return st.one_of(
        st.builds(lambda *parts: tree("If", *parts), conditions, values, values),
        st.builds(lambda *parts: tree("CaseWhen", *parts), conditions, values, conditions, values),
        st.builds(lambda *parts: tree("CaseWhen", *parts), conditions, values, values),
        st.builds(lambda *parts: tree("Coalesce", *parts), values, values, values),
    )


CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda one, other: tree("And", one, other), inner, inner),
        st.builds(lambda one, other: tree("Or", one, other), inner, inner),
        st.builds(lambda one: tree("Not", one), inner),
        st.builds(
            lambda name, value, number: tree(name, value, literal(number)),
            st.sampled_from(COMPARISONS),
            in_cases(inner),
            NUMBERS,
        ),
        st.builds(
            lambda value, numbers: tree("In", value, *map(literal, numbers)),
            in_cases(inner),
            st.lists(NUMBERS, min_size=1, max_size=3),
        ),
        st.builds(lambda *parts: tree("If", *parts), inner, inner, inner),
        st.builds(lambda *parts: tree("CaseWhen", *parts), inner, inner, inner, inner),
        st.builds(lambda *parts: tree("Coalesce", *parts), inner, inner),
    ),
    max_leaves=6,
)


def comparing(op: core.Operator) -> Callable[..., bool | None]:
    """SQL's comparison; in rows, nulls are values, and the least."""

    def compared(left: Any, right: Any) -> bool | None:
        if isinstance(left, tuple) and isinstance(right, tuple):
            return ORDER[op](
                [(one is not None, one or 0) for one in left], [(one is not None, one or 0) for one in right]
            )
        return compare(op, left, right)

    return compared


ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def first_case(*parts: Any) -> Any:
    """The value of the first condition that is TRUE, or the last part when there is one more."""
    for condition, value in zip(parts[::2], parts[1::2], strict=False):
        if condition is True:
            return value
    return parts[-1] if len(parts) % 2 else None


#: What Spark makes of the values of an expression's children; None is null.
MEANINGS: dict[str, Callable[..., bool | None]] = {
    "And": lambda *parts: False if False in parts else None if None in parts else True,
    "Or": lambda *parts: any_of(list(parts)),
    "Not": lambda part: None if part is None else not part,
    "IsNull": lambda part: part is None,
    "IsNotNull": lambda part: part is not None,
    "EqualNullSafe": lambda left, right: left == right,
    "In": lambda operand, *items: any_of([comparing("=")(operand, item) for item in items]),
    "If": lambda condition, then, otherwise: then if condition is True else otherwise,
    "CaseWhen": first_case,
    "Coalesce": lambda *parts: next((part for part in parts if part is not None), None),
    "CreateNamedStruct": lambda *parts: parts[1::2],
    "EqualTo": comparing("="),
    "LessThan": comparing("<"),
    "LessThanOrEqual": comparing("<="),
    "GreaterThan": comparing(">"),
    "GreaterThanOrEqual": comparing(">="),
}


def value_of(node: Node, row: Row) -> Any:
    """The value that Spark gives a condition on one row, None for null."""
    if node.name == "AttributeReference":
        return row[COLUMNS[node.fields["exprId"]["id"]][0]]
    if node.name != "Literal":
        return MEANINGS[node.name](*(value_of(child, row) for child in node.children))
    text, kind = node.fields["value"], node.fields["dataType"]
    if text is None or kind == "string":
        return text
    if isinstance(kind, dict):
        return tuple(None if one == "null" else int(one) for one in fields(node))
    return text == "true" if kind == "boolean" else int(text)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(condition=CONDITIONS, a=NUMBERS, b=NUMBERS)
def test_where_a_condition_is_true_its_translation_is(condition: Tree, a: int | None, b: int | None) -> None:
    row = {"a": a, "b": b}
    found = translated(condition)
    if found is not None and value_of(read_tree(condition), row) is True:
        assert evaluate(core.Predicate(found, ""), row) is True, shown(found)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(condition=CONDITIONS)
def test_a_translation_can_be_checked_and_shown(condition: Tree) -> None:
    found = translated(condition)
    if found is not None:
        types = dict(COLUMNS.values())
        assert core.check_types(core.Predicate(found, shown(found)), types)


SHOWN = {
    "a = 1": tree("EqualTo", column(1), literal(1)),
    "a in (1, 2)": tree("In", column(1), literal(1), literal(None), literal(2)),
    "(a >= 1 and b is not null)": tree(
        "And", tree("Not", tree("LessThan", column(1), literal(1))), tree("IsNotNull", column(2))
    ),
    "a < 1": tree("And", tree("IsNotNull", column(1)), tree("LessThan", column(1), literal(1))),
    "a is null": tree("EqualNullSafe", literal(None), column(1)),
    "t < 1970-01-01 00:00:01.500000+00:00": tree("LessThan", column(3), literal("in some zone", "timestamp")),
    "s like 'ab%'": tree("StartsWith", column(5), literal("ab", "string")),
    "u is null": tree("IsNull", column(4)),
    "u = 00000000000000000000000000000007": tree("EqualTo", column(4), literal(f"{UUID(int=7)}", "string")),
    "u in (00000000000000000000000000000007)": tree(
        "In", column(4), *(literal(text, "string") for text in ("{" + f"{UUID(int=7)}" + "}", f"{UUID(int=7)}"))
    ),
    "(u >= ab000000000000000000000000000000 and u <= abffffffffffffffffffffffffffffff)": tree(
        "StartsWith", column(4), literal("ab", "string")
    ),
    "u < ab000000000000000000000000000000": tree("LessThanOrEqual", column(4), literal("ab", "string")),
    "u > 00000000000000000000000000000007": tree("GreaterThan", column(4), literal(f"{UUID(int=7)}", "string")),
    "v = 01": tree("EqualTo", column(6), literal("[B@1234", "binary")),
    "w in (01)": tree("In", column(7), literal("[B@1234", "binary")),
    "(a = 1 and b = 2)": tree("EqualTo", columns(1, 2), row(1, 2)),
    "(a in (1, 3) and b in (2, 4) and ((a = 1 and b = 2) or (a = 3 and b = 4)))": tree(
        "In", columns(1, 2), row(1, 2), row(3, 4)
    ),
    "((a in (1) or a is null) and b in (2) and ((a = 1 and b = 2) or (a is null and b = 2)))": tree(
        "In", columns(1, 2), row(1, 2), row(None, 2)
    ),
    "(a > 1 or (a = 1 and b >= 2))": tree("GreaterThanOrEqual", columns(1, 2), row(1, 2)),
    "(a < 1 or (a = 1 and (b < 2 or b is null)) or a is null)": tree("LessThan", columns(1, 2), row(1, 2)),
    "(b = 1 and a = 7)": tree(
        "EqualTo", tree("If", tree("EqualTo", column(2), literal(1)), column(1), literal(0)), literal(7)
    ),
    "b = 1": tree("EqualTo", tree("If", tree("EqualTo", column(2), literal(1)), *texts("x", "y")), *texts("x")),
    "(b > 0 or a = 7)": tree(
        "EqualTo", tree("CaseWhen", tree("GreaterThan", column(2), literal(0)), literal(7), column(1)), literal(7)
    ),
    "(a in (7, 8) or (a is null and b in (7, 8)))": tree(
        "In", tree("Coalesce", column(1), column(2), literal(-1)), literal(7), literal(8)
    ),
    "false": literal(None, "boolean"),
}


@pytest.mark.parametrize(("text", "condition"), SHOWN.items(), ids=SHOWN.keys())
def test_what_is_understood(text: str, condition: Tree) -> None:
    found = translated(condition)
    assert found is not None
    assert shown(found) == text


def test_arms_of_an_or_are_one_list_of_which_the_first_ones_are_shown() -> None:
    arms = [tree("And", *(tree("EqualTo", column(at), literal(number)) for at in (1, 2))) for number in range(1_000)]
    while len(arms) > 1:
        arms = [tree("Or", *arms[at : at + 2]) if at + 1 < len(arms) else arms[at] for at in range(0, len(arms), 2)]
    found = translated(arms[0])
    assert isinstance(found, core.Or)
    assert len(found.parts) == 1_000
    assert shown(found).endswith("(a = 9 and b = 9) or 990 more)")
    assert shown(core.And((found, core.IsNull(core.ColumnRef("", "a"))))).endswith("990 more) and 1 more)")


NOT_UNDERSTOOD = {
    "a UUID below a text": tree("LessThan", column(4), literal("x", "string")),
    "bytes that are no column's": tree("EqualTo", column(5), literal("x", "binary")),
    "a literal of another type": tree("EqualTo", column(1), literal(1, "long")),
    "a collated literal": tree("EqualTo", column(5), literal("x", "string collate UTF8_LCASE")),
    "bytes that are not text": tree("EqualTo", column(5), literal("\ufffd", "string")),
    "a column of another relation": tree(
        "EqualTo", tree("AttributeReference", name="a", dataType="integer", exprId={"id": 9}), literal(1)
    ),
    "not in": tree("Not", tree("In", column(1), literal(1))),
    "one arm": tree("Or", tree("EqualTo", column(1), literal(1)), tree("Like", column(5), literal("%x", "string"))),
    "not of a conjunction with an unknown part": tree(
        "Not", tree("And", tree("LessThan", column(1), literal(1)), tree("Rand"))
    ),
}


@pytest.mark.parametrize("condition", NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD.keys())
def test_what_is_not_understood_is_left_out(condition: Tree) -> None:
    assert translated(condition) is None
    both = translated(tree("And", condition, tree("EqualTo", column(2), literal(2))))
    assert both is not None
    assert shown(both) == "b = 2"


def test_tests_for_null_that_spark_infers_narrow_nothing() -> None:
    found = translated(tree("IsNotNull", column(1)))
    assert found is not None
    assert not is_narrowing(found)
    assert why_not(read_tree(tree("IsNotNull", column(1)))) is None


def test_codes_say_the_most_telling_reason() -> None:
    cast = tree("EqualTo", tree("Cast", column(1), dataType="string"), literal("1", "string"))
    collated = tree("EqualTo", tree("Cast", column(5), dataType="string collate UTF8_LCASE"), literal("1", "string"))
    assert why_not(read_tree(tree("Like", column(5), literal("%x", "string")))) is Refusal.CONDITION
    assert why_not(read_tree(tree("And", cast, tree("Rand")))) is Refusal.CAST
    assert why_not(read_tree(tree("And", collated, cast))) is Refusal.COLLATED


def residual(root: core.Node) -> Any:
    """The residual of a predicate."""
    return residual_of(core.Predicate(root, ""))


def test_residuals_say_only_what_iceberg_understands_alike() -> None:
    a, x = core.ColumnRef("", "a"), core.ColumnRef("", "x")
    equal = core.Comparison("=", a, core.Constant(1))
    assert residual(equal) == {"type": "eq", "term": "a", "value": 1}
    assert residual(core.Comparison("<", x, core.Constant(0.0))) is None
    assert residual(core.And((equal, core.Comparison("<", x, core.Constant(0.0))))) == residual(equal)
    assert residual(core.Or((equal, core.Comparison("<", x, core.Constant(0.0))))) is None
    assert residual(core.Not(core.IsNull(a))) is None
    assert residual(core.Or((equal, core.Comparison("=", core.ColumnRef("", "b"), core.Constant(1))))) is None
    assert residual(core.InList(a, ())) is None
    assert residual(core.InList(a, tuple(map(core.Constant, range(MAX_VALUES + 1))))) is None

"""What is read from the filters that engines send: forms of both libraries, names, literals, and what is refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone_core.errors import BadSpec
from skipstone_core.language.filterpredicates import predicate_of
from skipstone_core.language.filters import (
    AllOf,
    Always,
    AnyOf,
    ColumnTest,
    Filter,
    FilterOperator,
    Never,
    Term,
    Unjudged,
    columns_of,
)
from skipstone_core.language.icebergjson import MOST_LEVELS, MOST_NODES, MOST_VALUES, FilterColumns, read_filter
from skipstone_core.language.predicates import check_types

NAMES = {"id": 1, "d": 2, "s": 3, "at": 4, "seen": 5, "x": 6, "f": 7, "n": 8, "b": 9, "u": 10, "fx": 11, "ok": 12}
NAMES |= {"big": 13, "nested": 14, "nested.part": 15, "clock": 16, "nanos": 17, "n0": 18}
TYPES = {
    1: "int",
    2: "date",
    3: "string",
    4: "timestamp",
    5: "timestamptz",
    6: "double",
    7: "float",
    8: "decimal(9, 2)",
    9: "binary",
    10: "uuid",
    11: "fixed[2]",
    12: "boolean",
    13: "long",
    14: "struct<15: part: optional int>",
    15: "int",
    16: "time",
    17: "timestamp_ns",
    18: "decimal(38, 0)",
}
COLUMNS = FilterColumns((NAMES,), TYPES)
UUID_TEXT, UUID_BYTES = "00010203-0405-0607-0809-0A0b0c0d0e0f", bytes(range(16))


def read(tree: Any, *, case_sensitive: bool = True) -> Filter:
    return read_filter(tree, COLUMNS, case_sensitive=case_sensitive)


def compare(operator: str, term: Any, value: Any) -> dict[str, Any]:
    return {"type": operator, "term": term, "value": value}


def column_test(name: str, operator: FilterOperator, *values: Any) -> ColumnTest:
    return ColumnTest(Term(NAMES[name]), operator, values)


FORMS: list[tuple[Any, Filter]] = [
    (True, Always()),
    (False, Never()),
    ({"type": "literal", "value": False}, Never()),
    ({"type": "true"}, Always()),
    (compare("eq", "id", 5), column_test("id", "=", 5)),
    (compare("EQ", "id", {"type": "literal", "value": 5}), column_test("id", "=", 5)),
    (compare("not_eq", {"type": "reference", "term": "id"}, 5), column_test("id", "!=", 5)),
    (compare("lt", {"type": "reference", "name": "id"}, 5), column_test("id", "<", 5)),
    (compare("lt-eq", {"type": "reference", "id": 1}, 5), column_test("id", "<=", 5)),
    ({"type": "gt", "left": {"type": "reference", "name": "id"}, "right": 5}, column_test("id", ">", 5)),
    ({"type": "is-null", "child": {"type": "reference", "name": "id"}}, column_test("id", "is-null")),
    ({"type": "is-null", "term": "nested"}, column_test("nested", "is-null")),
    ({"type": "not-null", "term": "nested.part"}, column_test("nested.part", "not-null")),
    ({"type": "is-nan", "term": "x"}, column_test("x", "is-nan")),
    ({"type": "not-nan", "term": "f"}, column_test("f", "not-nan")),
    ({"type": "is-nan", "term": "id"}, Never()),
    ({"type": "in", "term": "id", "values": [5, 7, 5]}, column_test("id", "in", 5, 7)),
    ({"type": "in", "term": "id", "values": {"type": "literals", "values": [5, 7]}}, column_test("id", "in", 5, 7)),
    ({"type": "in", "term": "id", "values": []}, Never()),
    ({"type": "not-in", "term": "id", "values": []}, Always()),
    ({"type": "not-in", "term": "id", "values": [5]}, column_test("id", "!=", 5)),
    ({"type": "in", "term": "id", "values": [2**31, 5, -(2**40)]}, column_test("id", "=", 5)),
    ({"type": "not-starts-with", "term": "s", "value": "a"}, column_test("s", "not-starts-with", "a")),
    (
        compare("eq", {"type": "transform", "transform": "Bucket[16]", "term": "id"}, 3),
        ColumnTest(Term(1, "bucket[16]"), "=", (3,)),
    ),
    (
        compare("gt", {"type": "transform", "transform": "day", "term": "seen"}, 3),
        ColumnTest(Term(5, "day"), ">", (date(1970, 1, 4),)),
    ),
    (
        compare("starts-with", {"type": "transform", "transform": "truncate[4]", "term": "s"}, "ab"),
        ColumnTest(Term(3, "truncate[4]"), "starts-with", ("ab",)),
    ),
    (
        compare("lt", {"type": "transform", "transform": "identity", "term": {"type": "reference", "term": "id"}}, 3),
        column_test("id", "<", 3),
    ),
]


@pytest.mark.parametrize(
    ("tree", "expected"), FORMS, ids=lambda value: json.dumps(value) if isinstance(value, dict) else ""
)
def test_forms_of_both_libraries_are_read(tree: Any, expected: Filter) -> None:
    assert read(tree) == expected


LITERALS: list[tuple[str, Any, Any]] = [
    ("id", "5", 5),
    ("big", -(2**63), -(2**63)),
    ("d", 19_782, date(2024, 2, 29)),
    ("d", -1, date(1969, 12, 31)),
    ("d", "2024-02-29", date(2024, 2, 29)),
    ("at", -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    ("at", "2024-02-29T12:00:00.5", datetime(2024, 2, 29, 12, 0, 0, 500000)),  # noqa: DTZ001
    ("at", "2024-02-29T12:00:00.123456000", datetime(2024, 2, 29, 12, 0, 0, 123456)),  # noqa: DTZ001
    ("seen", 0, datetime(1970, 1, 1, tzinfo=UTC)),
    ("seen", "2024-02-29T12:00:00+02:00", datetime(2024, 2, 29, 10, tzinfo=UTC)),
    ("seen", "2024-02-29T12:00Z", datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ("seen", "2024-02-29T12:00:00", datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ("x", 5, 5.0),
    ("x", "-Infinity", -math.inf),
    ("x", 0.1, 0.1),
    ("f", 0.1, 0.10000000149011612),
    ("f", "Infinity", math.inf),
    ("n", "1.50", Decimal("1.50")),
    ("n", "1.5", Decimal("1.50")),
    ("n", "1.555", Decimal("1.555")),
    ("n", 1, Decimal("1.00")),
    ("n", 1.1, Decimal("1.10")),
    ("n0", "1E+3", Decimal(1000)),
    ("b", "00fF", b"\x00\xff"),
    ("b", "", b""),
    ("fx", "00ff", b"\x00\xff"),
    ("u", UUID_TEXT, UUID_BYTES),
    ("ok", True, True),
    ("s", "5", "5"),
]


@pytest.mark.parametrize(("name", "literal", "expected"), LITERALS, ids=str)
def test_literals_are_read_in_the_type_of_the_column(name: str, literal: Any, expected: Any) -> None:
    found = read(compare("eq", name, literal))
    assert isinstance(found, ColumnTest)
    assert (found.values, type(found.values[0])) == ((expected,), type(expected))


UNFIT: list[tuple[str, Any]] = [
    ("id", True),
    ("id", 5.0),
    ("id", "5.5"),
    ("ok", 1),
    ("s", 5),
    ("s", "\ud800"),
    ("d", "2024-02-30"),
    ("d", "2024-02-29T00:00:00"),
    ("d", 20_000_000),
    ("at", "2024-02-29"),
    ("at", "2024-02-29T12:00:00Z"),
    ("at", "2024-02-29T12:00:00.1234567"),
    ("at", 2**63 - 1),
    ("seen", "9999-12-31T23:59:59-02:00"),
    ("x", math.nan),
    ("x", "NaN"),
    ("x", None),
    ("x", 10**400),
    ("f", 3.5e38),
    ("f", 2**53 + 1),
    ("n", 2.675),
    ("n", "1e999"),
    ("n", "1e-99"),
    ("n", "one"),
    ("n0", 10**38),
    ("b", "0"),
    ("b", "xx"),
    ("fx", "00"),
    ("u", "1-2-3-4-5"),
    ("clock", 5),
    ("nanos", 5),
    ("nested", 5),
]


@pytest.mark.parametrize(("name", "literal"), UNFIT, ids=str)
def test_a_literal_that_does_not_fit_says_nothing(name: str, literal: Any) -> None:
    field_id = NAMES[name]
    found = [read(compare("eq", name, literal)), read({"type": "not-in", "term": name, "values": [literal, literal]})]
    for tree in [*found, read({"type": "not", "child": compare("lt", name, literal)})]:
        assert isinstance(tree, Unjudged)
        assert columns_of(tree) == {field_id}


@pytest.mark.parametrize(
    "tree",
    [
        compare("eq", {"type": "transform", "transform": "zorder", "term": "id"}, 3),
        compare("eq", {"type": "transform", "transform": "bucket[0]", "term": "id"}, 3),
        compare("eq", {"type": "transform", "transform": "hour", "term": "d"}, 3),
        compare("like", "id", "x"),
        compare("starts-with", "id", "1"),
    ],
    ids=json.dumps,
)
def test_what_nobody_knows_is_not_judged(tree: Any) -> None:
    assert columns_of(read(tree)) == columns_of(read({"type": "not", "child": tree}))
    assert isinstance(read(tree), Unjudged)


def test_uuids_have_no_order_that_both_libraries_know() -> None:
    assert isinstance(read(compare("lt", "u", UUID_TEXT)), Unjudged)


@pytest.mark.parametrize(("operator", "above", "below"), [("lt", Always(), Never()), ("gt-eq", Never(), Always())])
def test_integers_beyond_the_type_decide_the_test(operator: str, above: Filter, below: Filter) -> None:
    assert (read(compare(operator, "id", 2**40)), read(compare(operator, "id", -(2**70)))) == (above, below)
    assert read(compare("eq", "id", 2**31)) == Never()
    assert (read(compare("gt", "id", 2**31 - 1)), read(compare("lt", "big", -(2**63)))) == (Never(), Never())
    assert read({"type": "not", "child": compare("eq", "id", 2**31)}) == Always()


NEGATED: list[tuple[str, FilterOperator]] = [
    ("eq", "!="),
    ("not-eq", "="),
    ("lt", ">="),
    ("lt-eq", ">"),
    ("gt", "<="),
    ("gt-eq", "<"),
    ("starts-with", "not-starts-with"),
]


@pytest.mark.parametrize(("operator", "negated"), [("gt", "<="), ("gt-eq", "<")])
def test_a_negated_comparison_of_floats_finds_nan(operator: str, negated: FilterOperator) -> None:
    tests = (column_test("f", negated, 1.5), column_test("f", "is-nan"))
    assert read({"type": "not", "child": compare(operator, "f", 1.5)}) == AnyOf(tests)
    assert read({"type": "not", "child": compare(operator, "id", 5)}) == column_test("id", negated, 5)


@pytest.mark.parametrize(("operator", "expected"), NEGATED)
def test_negations_are_moved_into_tests(operator: str, expected: FilterOperator) -> None:
    tree = {"type": "not", "child": compare(operator, "s", "a")}
    assert read(tree) == column_test("s", expected, "a")
    assert read({"type": "not", "child": tree}) == read(compare(operator, "s", "a"))
    pair = {"type": "and", "left": tree, "right": {"type": "is-null", "term": "id"}}
    assert read({"type": "not", "child": pair}) == AnyOf(
        (read(compare(operator, "s", "a")), column_test("id", "not-null"))
    )


def test_constants_vanish_from_conjunctions_and_disjunctions() -> None:
    known = compare("eq", "id", 5)
    assert read({"type": "and", "left": True, "right": known}) == read(known)
    assert read({"type": "and", "left": known, "right": False}) == Never()
    assert read({"type": "or", "left": known, "right": True}) == Always()
    assert read({"type": "or", "left": False, "right": known}) == read(known)


def test_chains_become_one_node_however_long_they_are() -> None:
    tree: Any = compare("eq", "id", 0)
    for number in range(1, 20_000):
        tree = {"type": "or", "left": tree, "right": compare("eq", "id", number)}
    found = read(tree)
    assert isinstance(found, AnyOf)
    assert [part.values[0] for part in found.parts if isinstance(part, ColumnTest)] == list(range(20_000))


def nested(levels: int) -> Any:
    tree: Any = compare("eq", "id", 5)
    for level in range(levels):
        tree = {"type": ("and", "or")[level % 2], "left": tree, "right": compare("gt", "id", level)}
    return tree


def test_the_deepest_filter_that_is_read_can_be_evaluated() -> None:
    tree = read(nested(MOST_LEVELS))
    predicate = predicate_of(tree, {1: "id"})
    assert predicate is not None
    checked = check_types(predicate, {"id": "int"})
    assert evaluate_predicate(checked, {"id": pa.array([5, -1])}, 2).to_pylist() == [False, False]


LONG = {"type": "in", "term": "id", "values": [1] * (MOST_VALUES + 1)}
CHAIN = compare("eq", "id", 5)
for _ in range(17):
    CHAIN = {"type": "and", "left": CHAIN, "right": CHAIN}
REFUSED: list[tuple[Any, str]] = [
    (None, "a part is neither true, false nor an object"),
    ("true", "a part is neither true, false nor an object"),
    ({}, "a part has no type"),
    ({"type": 5}, "a part has no type"),
    ({"type": "and", "left": True}, "a part of the type and has no right"),
    ({"type": "not"}, "a part of the type not has no child"),
    ({"type": "eq", "term": "id"}, "a part of the type eq has no value"),
    ({"type": "in", "term": "id", "value": 5}, "a part of the type in has no values"),
    ({"type": "in", "term": "id", "values": 5}, "the values of a list are not an array"),
    ({"type": "literal", "value": 5}, "a literal that stands alone is neither true nor false"),
    ({"type": "like"}, "a part of the type like has no term"),
    (compare("eq", "id", [5]), "a value is neither a text, a number nor a boolean"),
    (compare("eq", "id", {"type": "literal", "value": {"type": "literal", "value": 5}}), "a value is neither"),
    (compare("eq", 5, 5), "a term is neither a column's name, a reference nor a transform"),
    (compare("eq", {"type": "apply", "function": "f"}, 5), "a term is neither a column's name"),
    (compare("eq", {"type": "reference", "term": {"type": "reference", "term": "id"}}, 5), "is not a text"),
    (compare("eq", {"type": "transform", "term": "id"}, 5), "the transform of a term has no name"),
    (
        compare(
            "eq",
            {"type": "transform", "transform": "day", "term": {"type": "transform", "transform": "day", "term": "at"}},
            5,
        ),
        "a transform of a transform has no meaning",
    ),
    (compare("eq", "nope", 5), "the table has no column 'nope': name one of at, b, big, clock, d and 13 more"),
    (compare("eq", "ID", 5), "the table has no column 'ID': write 'id', names are exact"),
    (nested(MOST_LEVELS + 1), f"nests deeper than {MOST_LEVELS} levels"),
    (CHAIN, f"has more than {MOST_NODES} parts"),
    (LONG, f"a list has more than {MOST_VALUES} values"),
]


@pytest.mark.parametrize(("tree", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_malformed_and_hostile_filters_are_refused_in_a_sentence(tree: Any, sentence: str) -> None:
    with pytest.raises(BadSpec, match=r"^filter: ") as refusal:
        read(tree)
    assert sentence in str(refusal.value)


def test_negations_within_negations_are_refused_before_they_overflow() -> None:
    tree: Any = True
    for _ in range(100_000):
        tree = {"type": "not", "child": tree}
    with pytest.raises(BadSpec, match="nests deeper"):
        read(tree)


def test_names_in_any_case_when_case_does_not_count() -> None:
    assert read(compare("eq", "ID", 5), case_sensitive=False) == column_test("id", "=", 5)
    alike = FilterColumns(({"a": 1, "A": 2},), {1: "int", 2: "int"})
    assert read_filter(compare("eq", "A", 5), alike, case_sensitive=True) == ColumnTest(Term(2), "=", (5,))
    with pytest.raises(BadSpec, match="the name 'a' is of several columns if case does not count"):
        read_filter(compare("eq", "a", 5), alike, case_sensitive=False)


def test_names_of_two_schemas_go_by_field_id() -> None:
    """A name that only one schema knows is of its field; one that both know differently may be of either."""
    columns = FilterColumns(({"a": 1, "b": 2}, {"new": 1, "b": 3}), {1: "long", 2: "int", 3: "int"})
    for name in ("a", "new"):
        assert read_filter(compare("eq", name, 5), columns, case_sensitive=True) == ColumnTest(Term(1), "=", (5,))
    again = read_filter(compare("eq", "b", 5), columns, case_sensitive=True)
    assert isinstance(again, Unjudged)
    assert columns_of(again) == {2, 3}


def test_columns_that_every_table_has_are_of_no_file_and_say_nothing() -> None:
    for name in ("_file", "_partition.g"):
        assert columns_of(read(compare("eq", name, "x"))) == frozenset()
        assert isinstance(read(compare("eq", name, "x")), Unjudged)


def kept(tree: Any, name: str, column: pa.Array) -> list[bool]:
    predicate = predicate_of(read(tree), {NAMES[name]: name})
    if predicate is None:
        return [True] * len(column)
    checked = check_types(predicate, {name: TYPES[NAMES[name]]})
    return [bool(value) for value in evaluate_predicate(checked, {name: column}, len(column)).to_pylist()]


FLOATS = pa.array([None, -0.0, 0.0, 1.0, math.nan, math.inf])


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("lt", 0.0, [False, True, True, False, False, False]),
        ("gt", -0.0, [False, True, True, True, True, True]),
        ("eq", 0.0, [False, True, True, False, False, False]),
        ("not-eq", 0.0, [True] * 6),
        ("not-eq", 1.0, [True, True, True, False, True, True]),
        ("gt-eq", 1.0, [False, False, False, True, True, True]),
        ("lt-eq", "Infinity", [False, True, True, True, False, True]),
    ],
)
def test_no_zero_and_no_nan_is_lost(operator: str, value: Any, expected: list[bool]) -> None:
    assert kept(compare(operator, "x", value), "x", FLOATS) == expected


def test_tests_of_nan_and_null() -> None:
    assert kept({"type": "is-nan", "term": "x"}, "x", FLOATS) == [False, False, False, False, True, False]
    assert kept({"type": "not-nan", "term": "x"}, "x", FLOATS) == [True] * 6
    assert kept({"type": "is-null", "term": "x"}, "x", FLOATS) == [True, False, False, False, False, False]
    assert kept({"type": "not-in", "term": "x", "values": [0.0, 1.0, -0.0]}, "x", FLOATS) == [
        True,
        True,
        True,
        False,
        True,
        True,
    ]
    assert kept(False, "x", FLOATS) == [False] * 6


def test_a_decimal_of_another_scale_excludes_nothing_from_a_list() -> None:
    """Java's lists tell 1.5 and 1.50 apart; its comparisons do not."""
    column = pa.array([None, Decimal("1.50"), Decimal("2.50")], pa.decimal128(9, 2))
    assert kept({"type": "not-in", "term": "n", "values": ["1.5", "2.50"]}, "n", column) == [True, True, False]
    assert kept({"type": "in", "term": "n", "values": ["1.5", "7.00"]}, "n", column) == [False, True, False]
    assert kept(compare("not-eq", "n", "1.5"), "n", column) == [True, False, True]


def test_what_is_not_known_of_a_part_says_nothing_of_the_whole() -> None:
    known, unknown = compare("eq", "id", 5), compare("eq", "nested.part", 5)
    transformed = compare("eq", {"type": "transform", "transform": "bucket[16]", "term": "id"}, 3)
    for other in (unknown, transformed, compare("eq", "id", "x")):
        assert predicate_of(read({"type": "or", "left": known, "right": other}), {1: "id"}) is None
        both = read({"type": "and", "left": known, "right": other})
        assert predicate_of(both, {1: "id"}) == predicate_of(read(known), {1: "id"})
    assert isinstance(read({"type": "and", "left": known, "right": unknown}), AllOf)

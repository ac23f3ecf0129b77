"""The predicate language: what parses, what is refused and where, and SQL's three-valued logic."""

from __future__ import annotations

import operator
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.errors import BadSpec
from skipstone_core.language.parser import MAX_DEPTH, parse_predicate
from skipstone_core.language.predicates import Value, check_types

from tests.unit.scalar_predicates import compare, evaluate

TYPES = {
    "source.op": "string",
    "source.n": "long",
    "source.price": "decimal(9, 2)",
    "source.x": "double",
    "source.flag": "boolean",
    "source.day": "date",
    "source.at": "timestamp",
    "source.seen": "timestamptz",
    "source.tags": "list<string>",
    "source.raw": "binary",
    "target.n": "int",
    "target.day": "date",
}
ROW: dict[str, Value | None] = {
    "source.op": "D",
    "source.n": 5,
    "source.price": Decimal("9.90"),
    "source.x": float("nan"),
    "source.flag": True,
    "source.day": date(2024, 2, 29),
    "source.at": datetime(2024, 2, 29, 12, 30),  # noqa: DTZ001
    "source.seen": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    "source.tags": None,
    "source.raw": None,
    "target.n": None,
    "target.day": date(2024, 3, 1),
}


def value_of(text: str, row: dict[str, Value | None] = ROW) -> bool | None:
    return evaluate(check_types(parse_predicate(text), TYPES, zone=ZoneInfo("Europe/Madrid")), row)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("source.op = 'D'", True),
        ("source.op != 'D'", False),
        ("source.op <> 'D'", False),
        ("source.n >= 5 and source.n < 6", True),
        ("source.n = 5.0", True),
        ("source.n > -1e3", True),
        ("source.price = 9.9", True),
        ("source.price > source.n", True),
        ("source.flag", True),
        ("not source.flag", False),
        ("source.flag = false", False),
        ("source.day = date '2024-02-29'", True),
        ("source.at > source.day", True),
        ("source.at = timestamp '2024-02-29 12:30:00'", True),
        ("source.seen = timestamp '2024-02-29 13:30:00'", True),
        ("source.seen = timestamp '2024-02-29T12:30:00Z'", True),
        ("source.seen >= date '2024-02-29'", True),
        ("source.op in ('I', 'D')", True),
        ("source.op not in ('I', 'D')", False),
        ("source.n in (1, 2.5)", False),
        ("source.n between 5 and 6", True),
        ("source.n not between 5 and 6", False),
        ("source.op like 'D%'", True),
        ("source.op not like 'x%'", True),
        ("source.op like '%'", True),
        ("source.op like '%d'", False),
        ("source.op like '%D'", True),
        ("source.op like '_'", True),
        ("source.op like '__'", False),
        ("source.op like 'D_%'", False),
        ("source.op like ''", False),
        ("source.op not like '%x%'", True),
        ("null like '%x'", None),
        ("source.n = null", None),
        ("NULL != source.n", None),
        ("not (source.n = null)", None),
        ("source.n in (5, null)", True),
        ("source.n in (1, null)", None),
        ("source.n not in (1, null)", None),
        ("source.n not in (5, null)", False),
        ("source.n in (1, source.n)", True),
        ("null", None),
        ("null is null", True),
        ("null and source.flag", None),
        ("null and not source.flag", False),
        ("null or source.flag", True),
        ("source.n <=> 5", True),
        ("source.n <=> target.n", False),
        ("not (source.n <=> target.n)", True),
        ("target.n <=> null", True),
        ("source.n <=> null", False),
        ("target.n <=> target.n", True),
        ("source.x <=> source.x", True),
        ("source.n == 5", True),
        ("source.n % 2 = 1", True),
        ("target.n % 2 = 1", None),
        ("(source.n) % 2 = 1 and (source.flag)", True),
        ("coalesce(target.n, 7) = 7", True),
        ("coalesce(target.n, source.n) between 5 and 5", True),
        ("coalesce(null, source.flag)", True),
        ("coalesce(target.n, 1) is null", False),
        ("coalesce(source.op, 'x') like 'D%'", True),
        ("coalesce(target.n, 2) in (1, 2)", True),
        ("source.tags is null and source.raw is null", True),
        ("source.n is not null", True),
        ("target.n = 1", None),
        ("not target.n = 1", None),
        ("target.n = 1 or source.flag", True),
        ("target.n = 1 and source.flag", None),
        ("target.n = 1 and not source.flag", False),
        ("target.n in (1, 2)", None),
        ("source.n in (1, 2) or target.n in (1, 2)", None),
        ("source.x = source.x", True),
        ("source.x > 1e308", True),
        ("SOURCE.n = 5 OR FALSE", "unknown"),
        ("(source.n = 5)", True),
        ("source.n = 5 or source.n = 6 and source.n = 7", True),
        ("`source`.`n` = 5", True),
    ],
)
def test_value_of_a_predicate(text: str, expected: object) -> None:
    if expected == "unknown":
        with pytest.raises(BadSpec, match=r"no column SOURCE\.n"):
            value_of(text)
        return
    assert value_of(text) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a = 'b' collate UTF8_LCASE",
            "'collate' is not expected here: texts are compared as UTF8_BINARY compares them",
        ),
        ("", "at position 1: the text ends too early: write a condition such as"),
        ("source.n =", "at position 11: the text ends too early"),
        (
            "lower(source.op) = 'd'",
            "at position 1: lower(…) is not known: use coalesce, concat, round, to_date or cast",
        ),
        ("source.n = 1; drop table t", "at position 13: ';' is not part of the language"),
        ("source.n = (select 1)", "at position 13: 'select' is not part of the language: queries cannot be written"),
        ("source.n = 1 +", "at position 15: the text ends too early"),
        ("(source.n = 1) = source.flag", "a condition is not a value: join conditions by and, or and not"),
        ("coalesce(source.n = 1, false)", "'=' is not expected here"),
        ("source.n + source.op > 1", "+ needs numbers and source.op is string: cast it"),
        ("coalesce(source.op, 'x') = 5", "(integer) do not compare: write cast(coalesce(source.op, 'x') as long)"),
        ("source.n = source.op", "do not compare: write cast(source.op as long)"),
        ("source.op > 2.5", "do not compare: write cast(source.op as decimal(38,18))"),
        ("source.n % 2", "source.n % 2 (integer) and True (boolean) do not compare"),
        ("coalesce(source.m, 1) = 1", "there is no column source.m"),
        ("source.n = 1 && source.flag", "at position 14: '&&' is not part of the language: write and instead"),
        ("source.n = 1 || source.flag", "concat takes texts and 1 is int"),
        ("!source.flag", "at position 1: '!' is not part of the language: write not"),
        ('source.op = "D"', "at position 13: '\"' is not part of the language: write texts in single quotes"),
        ("source.day = date '2024-13-01'", "at position 19: '2024-13-01' is not like date"),
        ("source.at = timestamp 'noon'", "is not like timestamp"),
        ("source.op = 'open", 'at position 13: "\'" is not expected here: close the quote'),
        ("source.nothing = 1", "there is no column source.nothing: name one of at, day, flag, n, op and 5 more"),
        ("n = 1", "no column n: write source.n or target.n"),
        ("source.n = '5'", "source.n (integer) and '5' (string) do not compare: write 5 without quotes"),
        ("source.n in (1, 'x')", "do not compare"),
        ("source.op = 5", "do not compare"),
        ("source.day = '2024-01-01'", "do not compare: write date '2024-12-31'"),
        ("source.at = source.seen", "do not compare: write cast(source.at as timestamptz)"),
        ("source.flag = 'true'", "do not compare: write true or false"),
        ("source.at = timestamp '2024-01-01T00:00:00Z'", "do not compare"),
        ("source.tags = 'x'", "can only be tested for null"),
        ("source.raw = 'x'", "can only be tested for null"),
        ("source.n like 'x%'", "like needs a string"),
        ("source.n", "do not compare: write a comparison, such as source.n != 0"),
        ("source.N = 1", "there is no column source.N: write source.n, names are exact"),
        ("Source.n = 1", "there is no column Source.n: write source.n, names are exact"),
        (
            "target.day.year = 1",
            "no column target.day.year: name a column of the table, or a field within one that is a struct",
        ),
    ],
)
def test_refused_predicate_names_place_and_reason(text: str, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        value_of(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_conditions_of_reads_are_told_without_sides() -> None:
    with pytest.raises(BadSpec, match=r"filter: at position 3: 'rlike' is not expected here: .* such as op = 'D'"):
        parse_predicate("a rlike 'b'", field="filter")
    with pytest.raises(BadSpec, match=r"such as source\.op = 'D'"):
        parse_predicate("a rlike 'b'", field="spec.whenMatched[0].when")


def test_refusal_names_the_field() -> None:
    with pytest.raises(BadSpec, match=r"^spec\.whenMatched\[0\]\.when: at position 1"):
        parse_predicate("=", field="spec.whenMatched[0].when")


@pytest.mark.parametrize(
    "text",
    [
        "(" * (MAX_DEPTH + 1) + "source.flag" + ")" * (MAX_DEPTH + 1),
        "not " * (MAX_DEPTH + 1) + "source.flag",
        "(" * 2000 + "source.flag",
    ],
)
def test_too_deep_is_refused(text: str) -> None:
    with pytest.raises(BadSpec, match="nested more than 32 deep"):
        parse_predicate(text)


def test_four_kilobytes_are_the_limit() -> None:
    filler = "source.n = 1 or " * 255
    assert parse_predicate(filler + "source.n = 2").text.endswith("2")
    with pytest.raises(BadSpec, match="at most 4096 bytes"):
        parse_predicate(filler + "source.op = '" + "é" * 20 + "'")


def test_long_chains_are_not_deep() -> None:
    assert value_of(" and ".join(["source.flag"] * 200)) is True


def test_parentheses_in_text_do_not_count() -> None:
    assert value_of("source.op = '" + "(" * 100 + "'") is False


def test_quotes_are_doubled_and_backticks_name_anything() -> None:
    predicate = parse_predicate("source.`a ``b`` c` = 'it''s'")
    assert [str(column) for column in predicate.columns] == ["source.a `b` c"]
    assert evaluate(predicate, {"source.a `b` c": "it's"}) is True


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"a\\%", "a\\b", True),
        (r"a\%", "a%", True),
        (r"a\%", "ab", False),
        (r"%\_", "x_", True),
        (r"%\_", "xy", False),
        ("%.%", "a.b", True),
        ("%.%", "ab", False),
        ("a%b%c", "a-b-b-c", True),
        ("a%b%c", "acb", False),
        ("%", "a\nb", True),
        ("a_b", "a\nb", True),
    ],
)
def test_patterns_of_like(pattern: str, text: str, expected: bool) -> None:
    predicate = parse_predicate(f"source.op like '{pattern}'")
    assert evaluate(predicate, {"source.op": text}) is expected


def test_like_escapes_wildcards() -> None:
    predicate = parse_predicate(r"source.op like '100\%\_%'")
    assert evaluate(predicate, {"source.op": "100%_x"}) is True
    assert evaluate(predicate, {"source.op": "100 x"}) is False


def test_keywords_are_columns_after_a_dot() -> None:
    predicate = parse_predicate("source.date = 1 and target.in = 2 and target.not = 3")
    assert {str(column) for column in predicate.columns} == {"source.date", "target.in", "target.not"}


def test_checked_predicates_travel_to_tasks() -> None:
    predicate = check_types(parse_predicate("source.n in (1, 2) and not source.flag"), TYPES)
    assert pickle.loads(pickle.dumps(predicate)) == predicate


def test_zero_has_one_value() -> None:
    assert compare("=", -0.0, 0.0) is True
    assert compare("<", -0.0, 0.0) is False


def test_strings_order_by_utf8_bytes() -> None:
    assert compare("<", "\uffff", "\U0001f600") is True


OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@settings(deadline=None)
@given(st.sampled_from(sorted(OPERATORS)), st.none() | st.integers(), st.none() | st.integers())
def test_comparison_is_null_with_null_and_python_otherwise(op: str, left: int | None, right: int | None) -> None:
    expected = None if left is None or right is None else OPERATORS[op](left, right)
    assert compare(op, left, right) is expected  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse_predicate(text)
    except BadSpec as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("number", ["1" * 39, "-" + "9" * 39, "0." + "0" * 38 + "1", "1." + "3" * 39])
def test_numbers_with_more_digits_than_a_decimal_has_are_refused(number: str) -> None:
    with pytest.raises(BadSpec, match=r"at position 5: .*… has more than 38 digits before or after the point"):
        parse_predicate(f"n = {number}")


@pytest.mark.parametrize("number", ["9" * 38, "000" + "9" * 38, "0." + "1" * 38 + "000", "1e400", "-0.0"])
def test_numbers_with_as_many_digits_as_a_decimal_has_are_taken(number: str) -> None:
    assert parse_predicate(f"n = {number}").root

"""The filters that clients get back with each file: as wide as SQL means them, and never true."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from skipstone.query.residuals import Client, ResidualRules, residual_of
from skipstone_core.errors import BadSpec
from skipstone_core.language.icebergjson import FilterColumns

NEWEST = {"k": 1, "x": 2, "u": 3, "b": 4, "new": 6}
OLDER = {"k": 1, "x": 2, "u": 3, "a": 4, "gone": 5}
TYPES = {1: "long", 2: "double", 3: "uuid", 4: "int", 5: "int", 6: "int"}


def _rules(*, newest: bool = True, client: Client = Client.PYICEBERG, older: bool = False) -> ResidualRules:
    return ResidualRules(
        columns=FilterColumns((NEWEST, OLDER) if older else (NEWEST,), TYPES),
        newest=NEWEST if newest else None,
        case_sensitive=client is not Client.SPARK,
        client=client,
    )


def _test(kind: str, term: str, value: Any = None) -> dict[str, Any]:
    return {"type": kind, "term": term} | ({} if value is None else {"value": value})


def _passes(expression: Any, x: float) -> bool:
    """What Iceberg's total order of floats says of a row, -0.0 before 0.0 and NaN last."""
    if isinstance(expression, bool):
        return expression
    rank = (math.inf, 1.0) if math.isnan(x) else (x, math.copysign(1.0, x))

    def of(value: float) -> tuple[float, float]:
        return (value, math.copysign(1.0, value))

    match kind := expression["type"]:
        case "or" | "and":
            sides = [_passes(expression[side], x) for side in ("left", "right")]
            return any(sides) if kind == "or" else all(sides)
        case "in" | "not-in":
            return any(rank == of(value) for value in expression["values"]) is (kind == "in")
        case "is-null" | "not-null" | "is-nan" | "not-nan":
            return {"is-null": False, "not-null": True, "is-nan": math.isnan(x), "not-nan": not math.isnan(x)}[kind]
        case _:
            value = of(expression["value"])
            found = {"eq": rank == value, "not-eq": rank != value, "lt": rank < value, "lt-eq": rank <= value}
            # readers skip NaN where a file's statistics say nothing of it
            found |= {"gt": not math.isnan(x) and rank > value, "gt-eq": not math.isnan(x) and rank >= value}
            return found[kind]


def _sql(kind: str, x: float, value: float) -> bool:
    """What SQL says, for which NaN is greatest and both zeros are one."""
    left = math.inf if math.isnan(x) else x
    above = math.isnan(x)
    match kind:
        case "eq":
            return left == value and not above
        case "lt":
            return left < value and not above
        case "lt-eq":
            return left <= value and not above
        case "gt":
            return left > value or above
        case _:
            return left >= value or above


@pytest.mark.parametrize("kind", ["eq", "lt", "lt-eq", "gt", "gt-eq"])
@pytest.mark.parametrize("value", [0.0, -0.0, 36.0])
@pytest.mark.parametrize("x", [0.0, -0.0, 36.0, 37.0, math.nan])
def test_no_row_of_floats_is_passed_by_that_sql_finds(kind: str, value: float, x: float) -> None:
    for asked in (_test(kind, "x", value), {"type": "not", "child": _test(_opposite(kind), "x", value)}):
        residual = residual_of(asked, _rules())
        if _sql(kind, x, value):
            assert _passes(residual, x), residual


@pytest.mark.parametrize("kind", ["eq", "lt", "lt-eq", "gt", "gt-eq"])
@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("x", [-math.inf, -1.7976931348623157e308, 0.0, 1.7976931348623157e308, math.inf, math.nan])
def test_infinity_is_told_in_numbers_that_json_has(kind: str, value: float, x: float) -> None:
    text = "Infinity" if value > 0 else "-Infinity"
    for asked in (_test(kind, "x", text), {"type": "not", "child": _test(_opposite(kind), "x", text)}):
        residual = residual_of(asked, _rules())
        assert "Infinity" not in json.dumps(residual)
        assert _passes(residual, x) is _sql(kind, x, value), residual


@pytest.mark.parametrize("x", [-math.inf, 0.0, 7.0, 8.0, math.inf, math.nan])
def test_lists_with_infinity_find_the_same(x: float) -> None:
    asked = {"type": "in", "term": "x", "values": [7.0, "Infinity", "-Infinity"]}
    residual = residual_of(asked, _rules())
    assert _passes(residual, x) is (x in (7.0, math.inf, -math.inf))
    assert _passes(residual_of({**asked, "type": "not-in"}, _rules()), x) is not _passes(residual, x)


def _opposite(kind: str) -> str:
    return {"eq": "not-eq", "lt": "gt-eq", "gt-eq": "lt", "gt": "lt-eq", "lt-eq": "gt"}[kind]


def test_lists_with_a_zero_hold_both() -> None:
    residual = residual_of({"type": "in", "term": "x", "values": [7.0, -0.0]}, _rules())
    assert _passes(residual, 0.0)
    assert _passes(residual, -0.0)
    assert not _passes(residual, 8.0)


@pytest.mark.parametrize(
    "asked",
    [
        _test("gt", "k", 5),
        _test("is-null", "x"),
        _test("lt", "x", 5.0),
        {"type": "and", "left": _test("eq", "k", 5), "right": _test("not-null", "k")},
        {"type": "eq", "term": {"type": "transform", "transform": "bucket[16]", "term": "k"}, "value": 3},
    ],
    ids=json.dumps,
)
def test_other_tests_come_back_as_they_were(asked: Any) -> None:
    assert residual_of(asked, _rules()) == asked


def test_uuids_are_judged_row_by_row_by_those_who_know_terms() -> None:
    asked = _test("eq", "u", "f79c3e09-677c-4bbd-a479-3f349cb785e7")
    assert residual_of(asked, _rules()) == asked
    assert residual_of(asked, _rules(client=Client.JAVA))["term"] == {
        "type": "transform",
        "transform": "identity",
        "term": "u",
    }


def test_names_of_another_schema_are_left_out_for_who_filters_again() -> None:
    asked = {"type": "and", "left": _test("eq", "a", 5), "right": _test("eq", "k", 7)}
    assert residual_of(asked, _rules(older=True, client=Client.SPARK)) == _test("eq", "k", 7)
    assert residual_of({**asked, "type": "or"}, _rules(older=True, client=Client.SPARK)) is True
    assert residual_of(asked, _rules(older=True, newest=False)) == asked


def test_who_filters_by_nothing_else_is_told_to_plan() -> None:
    with pytest.raises(BadSpec, match=r"^filter: it names columns that have another name .*scan-planning-mode client"):
        residual_of(_test("eq", "a", 5), _rules(older=True, client=Client.JAVA))


def test_long_chains_nest_little_and_pyiceberg_reads_them() -> None:
    asked: Any = _test("eq", "k", 0)
    for number in range(1, 500):
        asked = {"type": "or", "left": asked, "right": _test("eq", "k", number)}
    residual = residual_of(asked, _rules())
    depth, node = 0, residual
    while "left" in node:
        depth, node = depth + 1, node["left"]
    assert depth < 12
    parsed = TypeAdapter(BooleanExpression).validate_python(residual)
    assert parsed != AlwaysTrue()


def test_long_lists_are_told_to_those_who_filter_by_nothing_else() -> None:
    asked = {"type": "in", "term": "k", "values": list(range(10_000))}
    for reader in (Client.JAVA, Client.OTHER):
        assert residual_of(asked, _rules(client=reader)) == asked
    assert residual_of(asked, _rules(client=Client.SPARK)) is True
    told = residual_of(asked, _rules(client=Client.PYICEBERG))
    assert told == {"type": "or", "left": _test("is-null", "k"), "right": _test("not-null", "k")}


@pytest.mark.parametrize(
    ("version", "case_sensitive", "use_snapshot_schema", "client"),
    [
        ("Apache Iceberg 1.12.0 (commit 212aa89)", False, True, Client.SPARK),
        ("Apache Iceberg 1.12.0 (commit 212aa89)", True, True, Client.JAVA),
        ("Apache Iceberg 1.12.0 (commit 212aa89)", False, False, Client.JAVA),
        ("PyIceberg 0.12.0", True, False, Client.PYICEBERG),
        ("PyIceberg 9.0", False, True, Client.PYICEBERG),
        ("", False, True, Client.OTHER),
        ("GoIceberg 0.7.0", True, False, Client.OTHER),
    ],
)
def test_who_asks_is_known_by_name_and_by_what_it_sends(
    version: str, case_sensitive: bool, use_snapshot_schema: bool, client: Client
) -> None:
    assert Client.of(version, case_sensitive=case_sensitive, use_snapshot_schema=use_snapshot_schema) is client


def test_a_form_of_newer_versions_of_the_protocol_says_nothing_to_clients() -> None:
    newer = {"type": "is-null", "child": {"type": "reference", "name": "k"}}
    for newest in (True, False):
        assert residual_of(newer, _rules(newest=newest, client=Client.SPARK)) is True
        both = {"type": "and", "left": newer, "right": _test("eq", "k", 5)}
        assert residual_of(both, _rules(newest=newest)) == _test("eq", "k", 5)


@pytest.mark.parametrize(
    "asked",
    [
        {"type": "starts-with", "term": "s", "value": "😀"},
        {"type": "not", "child": {"type": "starts-with", "term": "s", "value": "a😀"}},
        _test("gt-eq", "k", -(2**63)),
        {"type": "in", "term": "b", "values": [5, -(2**31)]},
    ],
)
def test_spark_is_not_told_what_java_misjudges_in_truncated_partitions(asked: Any) -> None:
    columns = FilterColumns(({**NEWEST, "s": 7},), {**TYPES, 7: "string"})
    for newest, told in ((columns.schemas[0], True), (None, asked)):
        rules = ResidualRules(columns=columns, newest=newest, case_sensitive=False, client=Client.SPARK)
        found = residual_of(asked, rules)
        assert found is told if told is True else found is not True
        assert residual_of(_test("eq", "k", 7), rules) == _test("eq", "k", 7)

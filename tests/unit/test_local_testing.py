"""Tests of manifests: what their YAML may say, what counts as met, and what CI reads of it."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import LOAD_JOB, TABLE
from skipstone_local.client.manifests import read_manifests
from skipstone_local.testing.cases import read_plan
from skipstone_local.testing.judging import is_equal, judge_files, judge_object, judge_rows
from skipstone_local.testing.pairing import pair_up
from skipstone_local.testing.reports import Verdict, to_junit, verdict_lines

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders" / "test"


def plan(tmp_path: Path, *steps: Any, **more: Any) -> Path:
    (tmp_path / "skipstone-test.yaml").write_text(yaml.safe_dump({"steps": list(steps), **more}))
    return tmp_path


def test_the_example_is_read() -> None:
    first, second = read_plan(EXAMPLE).steps
    assert [path.name for path in first.apply] == [
        "01-warehouse.yaml",
        "02-table.yaml",
        "03-index.yaml",
        "04-load.yaml",
    ]
    assert first.data.keys() == {"lake/landing", "lake/feeds"}
    assert [one.title for one in second.expectations] == [
        "object mj/orders-changes-1: state Complete, rows.updated 1, rows.deleted 1, rows.inserted 1",
        "table orders: where customer = 'grace' or customer = 'barbara', 3 rows",
    ]


def test_the_page_shows_the_example() -> None:
    page = (EXAMPLE.parents[2] / "docs" / "guide" / "testing.md").read_text()
    _, _, without_comment = (EXAMPLE / "skipstone-test.yaml").read_text().partition("\n")
    assert f"```yaml\n{without_comment}```" in page
    for step in read_plan(EXAMPLE).steps:
        for one in step.expectations:
            assert f"ok      {step.name}  {one.title}\n" in page


def test_a_test_is_not_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: a}}")
    assert [one.source for one in read_manifests([str(plan(tmp_path))])] == [str(tmp_path / "a.yaml")]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"aply": "a.yaml"}, r"steps\[0\] has the unknown field 'aply': use apply, data, expect, name"),
        ({"apply": "a.yaml"}, r"steps\[0\].apply names a.yaml, which does not exist: paths are relative to"),
        ({"data": {"lake": "*.csv"}}, r"data.lake names \*.csv, which does not exist"),
        ({"expect": [{"table": "t"}]}, r"expect\[0\] expects nothing of t: add one of columns, count, files"),
        ({"expect": [{"table": "t", "state": "Ready"}]}, "has the unknown field 'state'"),
        ({"expect": [{"count": 1}]}, r"expect\[0\] is about nothing: write 'object: tbl/NAME'"),
        ({"expect": {"table": "t"}}, "expect is .* write a list"),
        (["a"], r"steps\[0\] is \['a'\]: write a mapping"),
    ],
)
def test_what_a_test_cannot_say_is_an_error(tmp_path: Path, step: Any, says: str) -> None:
    with pytest.raises(CliError, match=says):
        read_plan(plan(tmp_path, step))


def test_a_test_without_steps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="has no steps"):
        read_plan(plan(tmp_path))
    with pytest.raises(CliError, match="nothing cannot be read: it does not exist: name a file that does"):
        read_plan(tmp_path / "nothing")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(CliError, match="bytes cannot be read: it is not text in UTF-8"):
        read_plan(tmp_path / "bytes")


def test_objects_are_judged_by_state_reason_and_status() -> None:
    condition = {"type": "Failed", "status": "True", "reason": "BadRecords", "message": "row 7 has no id"}
    job = {"metadata": {}, "status": {"conditions": [condition], "rows": {"rejected": 2}}}
    assert judge_object(LOAD_JOB, job, {"state": "Failed", "reason": "BadRecords", "message": "row 7"}) == []
    assert judge_object(LOAD_JOB, job, {"status": {"rows.rejected": 2}}) == []
    assert judge_object(LOAD_JOB, job, {"state": "Complete", "message": "row 8", "status": {"rows.rejected": 3}}) == [
        "state is Failed, not Complete (row 7 has no id)",
        "the message is 'row 7 has no id', without 'row 8'",
        "status.rows.rejected is 2, not 3",
    ]
    assert judge_object(TABLE, None, {"state": "Ready"}) == ["it does not exist"]


def test_rows_are_compared_in_any_order_each_as_often() -> None:
    rows = [{"id": 1, "price": Decimal("9.90")}, {"id": 2, "price": None}, {"id": 2, "price": None}]
    wanted = {"rows": [{"id": 2}, {"id": 2, "price": None}, {"price": 9.9}], "count": 3}
    assert judge_rows(rows, wanted) == []
    assert judge_rows(rows, {"count": 2, "rows": [{"id": 2}, {"id": 3}]}) == [
        "there are 3 rows, not 2",
        "missing: {id: 3}",
        "not expected: {id: 1, price: 9.90}, {id: 2, price: None}",
    ]
    assert judge_rows([], {"rows": []}) == []
    # The first row that fits an expectation may be the only one that fits another.
    several = [{"id": 1, "v": 2}, {"id": 1, "v": 3}, {"id": 2, "v": 3}]
    assert judge_rows(several, {"rows": [{"id": 1}, {"v": 3}, {"v": 2}]}) == []
    assert judge_rows(several, {"rows": [{"v": 3}, {"v": 3}, {"id": 1}]}) == []
    assert judge_rows(several, {"rows": [{"id": 1}, {"id": 1}, {"v": 2}]}) == [
        "missing: {v: 2}",
        "not expected: {id: 2, v: 3}",
    ]
    assert judge_files(3, 9, {"files": 1}) == ["3 of 9 files are read, not 1"]


@given(st.lists(st.lists(st.integers(0, 5), unique=True), max_size=6))
def test_as_many_expectations_as_can_be_get_a_row_of_their_own(fitting: list[list[int]]) -> None:
    pairs = pair_up(fitting)
    assert all(row in fitting[expectation] for row, expectation in pairs.items())
    assert len(set(pairs.values())) == len(pairs)
    orders = itertools.permutations(range(6), len(fitting))
    assert len(pairs) == max(sum(row in rows for row, rows in zip(order, fitting, strict=True)) for order in orders)


@pytest.mark.parametrize(
    ("wanted", "seen", "equal"),
    [
        ("2026-01-02", datetime.date(2026, 1, 2), True),
        ("2026-01-02T03:04:05Z", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), True),
        ("2026-01-02T03:04:06Z", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), False),
        ("soon", datetime.date(2026, 1, 2), False),
        ("9.9", Decimal("9.90"), True),
        ("x", Decimal("9.90"), False),
        (1, True, False),
        (True, True, True),
        ("ff", b"\xff", True),
        (None, None, True),
        (1, 1.0, True),
        (9.9, Decimal("9.90"), True),
        (True, Decimal(1), False),
        (None, Decimal(1), False),
        (float("nan"), float("nan"), True),
        (-0.0, 0.0, True),
        (0.1, 0.10000000149011612, False),
        ("1", 1, False),
        (1, "1", False),
        ("2026-01-02T03:04:05", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), False),
        ("2026-01-02T04:04:05+01:00", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), True),
        ("2026-01-02", datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC).replace(tzinfo=None), True),
        ("03:04:05", datetime.time(3, 4, 5), True),
        (12, b"\x12", True),
        ("FF", b"\xff", True),
        ("ff", b"\xfe", False),
        (["9.9"], [Decimal("9.90")], True),
        ({"at": "2026-01-02"}, {"at": datetime.date(2026, 1, 2)}, True),
        ({"at": "2026-01-02"}, {"at": datetime.date(2026, 1, 2), "b": 1}, False),
        ([1], [True], False),
    ],
)
def test_values_of_yaml_stand_for_those_of_a_table(wanted: Any, seen: Any, equal: bool) -> None:
    assert is_equal(wanted, seen) is equal


def test_a_result_is_shown_and_written_for_ci() -> None:
    verdicts = [Verdict("load", "manifests are accepted", ()), Verdict("load", "table <t>", ("2 < 3", "more"), 0.25)]
    assert list(verdict_lines(verdicts)) == [
        "ok      load  manifests are accepted",
        "FAILED  load  table <t>",
        "        2 < 3",
        "        more",
        "1 of 2 expectations are met",
    ]
    suite = ElementTree.fromstring(to_junit("my tests", verdicts))
    assert suite.attrib == {"name": "my tests", "tests": "2", "failures": "1", "errors": "0", "time": "0.250"}
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("2 < 3", "2 < 3\nmore")

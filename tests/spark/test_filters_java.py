"""Filters read from the JSON of Iceberg's Java library: no row that it keeps fails the predicate made of them.

`make test` takes a few random cases, `make soak-expressions` more of them, others each time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from skipstone_core.language.filters import Unjudged, leaves

from tests.examples import cases
from tests.spark.javafilters import JavaJudge, Verdict
from tests.unit.filter_cases import CLEAR, KINDS, Column, Kind, kept_by_predicate, read_of, rows, schemas, verdicts
from tests.unit.filter_trees import cells_of, filter_trees, schema_json


class _Case(NamedTuple):
    columns: list[Column]
    data: list[list[Any]]
    tree: Any
    case_sensitive: bool


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> JavaJudge:
    return JavaJudge(spark)


@st.composite
def _cases(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS, *, odd: bool = True) -> _Case:
    columns = draw(schemas(kinds))
    data = draw(rows(columns))
    return _Case(columns, data, draw(filter_trees(columns, data, odd=odd)), draw(st.booleans()))


def _judged(java: JavaJudge, case: _Case) -> Verdict:
    return java.judge(schema_json(case.columns), case.tree, cells_of(case.data), case_sensitive=case.case_sensitive)


def test_no_row_that_java_keeps_fails_the_predicate(java: JavaJudge) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=cases(80, 4000))
    @given(_cases())
    def check(case: _Case) -> None:
        written, theirs = _judged(java, case)
        tree = read_of(case.columns, case.tree if theirs is None else written, case_sensitive=case.case_sensitive)
        ours = kept_by_predicate(case.columns, case.data, tree)
        seen.update(verdicts(ours, theirs))
        for row, is_kept, must_keep in zip(case.data, ours, theirs or [], strict=theirs is not None):
            assert is_kept or not must_keep, row

    check()
    print(f"\nJava: {dict(seen)}")


def test_a_filter_of_values_that_fit_means_what_java_says(java: JavaJudge) -> None:
    @settings(max_examples=cases(40, 2000))
    @given(_cases(CLEAR, odd=False))
    def check(case: _Case) -> None:
        written, theirs = _judged(java, case)
        tree = read_of(case.columns, written, case_sensitive=case.case_sensitive)
        assert not [leaf for leaf in leaves(tree) if isinstance(leaf, Unjudged)]
        assert kept_by_predicate(case.columns, case.data, tree) == theirs

    check()

"""Files judged by their partitions, against Iceberg's Java library: its projections rule out nothing that we keep.

`make test` takes a few random cases, `make soak-expressions` more of them, others each time.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession
from skipstone.query.partitioning import partition_mask
from skipstone_core.errors import BadSpec
from skipstone_core.language.filters import IDENTITY, ColumnTest, Filter, leaves

from tests.examples import cases
from tests.spark.javafilters import JavaClass, JavaJudge
from tests.unit.filter_cases import KINDS, Column, read_of, rows, schemas
from tests.unit.filter_trees import cells_of, filter_trees, schema_json
from tests.unit.partition_cases import partition_of, partitioned, specs, transforms_of


class _Case(NamedTuple):
    columns: list[Column]
    data: list[list[Any]]
    spec: PartitionSpec
    tree: Any


class _Verdict(NamedTuple):
    """``selects``: whether clients take the filter to select whole partitions. The others are of each row."""

    written: Any
    selects: bool
    passes: list[bool]
    planned: list[bool]


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> JavaClass:
    return JavaClass(spark, "Partitions", before=JavaJudge(spark).java)


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    columns = draw(schemas(KINDS))
    data = draw(rows(columns))
    spec = draw(specs(columns, 0))
    transforms = sorted({each for column in columns for each in transforms_of(column)})
    return _Case(columns, data, spec, draw(filter_trees(columns, data, odd=True, transforms=transforms)))


def _judged(java: JavaClass, case: _Case) -> _Verdict | None:
    spec = json.loads(case.spec.model_dump_json(by_alias=True))
    inputs = (schema_json(case.columns), spec, case.tree, cells_of(case.data))
    told = java.call("judge", *map(json.dumps, inputs), True)
    if told.startswith("R"):
        return None
    written, selects, passes, planned = told.rsplit("\n", 3)
    return _Verdict(json.loads(written), selects == "T", _booleans(passes), _booleans(planned))


def _booleans(letters: str) -> list[bool]:
    return [letter == "T" for letter in letters]


def _has_zeros(partition: tuple[object, ...]) -> bool:
    """Whether it holds a zero of a float, of which Iceberg tells two apart and Spark does not."""
    return any(isinstance(value, float) and not value for value in partition)


def _has_misread(case: _Case, tree: Filter) -> bool:
    """Whether it tests a transform of a column that is a partition field itself: Java compares it with the column."""
    identities = {field.source_id for field in case.spec.fields if isinstance(field.transform, IdentityTransform)}
    tests = [leaf.term for leaf in leaves(tree) if isinstance(leaf, ColumnTest)]
    return any(term.transform != IDENTITY and term.field_id in identities for term in tests)


def test_partitions_are_ruled_out_as_java_does(java: JavaClass) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=cases(60, 5000))
    @given(_cases())
    def check(case: _Case) -> None:
        verdict = _judged(java, case)
        seen["cases"] += 1
        if verdict is None:
            seen["refused by Java"] += 1
            return
        partitions = [partition_of(case.spec, case.columns, row) for row in case.data]
        found = partitioned(case.columns, [case.spec], [(0, partition) for partition in partitions])
        try:
            tree = read_of(case.columns, verdict.written, case_sensitive=True)
            mask = partition_mask(tree, found.files, found.table).mask.tolist()
        except BadSpec:
            seen["refused by us"] += 1
            return
        seen["selects partitions"] += verdict.selects and not case.spec.is_unpartitioned()
        seen["files ruled out by Java"] += verdict.planned.count(False)
        seen["files ruled out by us"] += mask.count(False)
        for place, is_kept in enumerate(mask):
            told = (case.data[place], partitions[place])
            assert is_kept or not verdict.passes[place], ("a row is lost", told)
            is_apart = _has_zeros(partitions[place]) or _has_misread(case, tree)
            assert not is_kept or verdict.planned[place] or is_apart, ("kept in vain", told)

    check()
    print(f"\nJava: {dict(seen)}")

"""Files are judged by their partitions: no row that passes is lost, and what Iceberg rules out is ruled out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection, rewrite_not
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TimeTransform, parse_transform
from pyiceberg.typedef import Record
from skipstone.query.partitioning import partition_mask
from skipstone_core.language.filters import Unjudged, leaves

from tests.examples import cases
from tests.unit.filter_cases import CLEAR, KINDS, Column, read_of
from tests.unit.partition_cases import PartitionedTable, partition_of, partitioned, schema_of, specs, transforms_of
from tests.unit.test_filters_random import _Case, _cases, _kept_by_pyiceberg, _read


@st.composite
def _partitioned(draw: st.DrawFn, case: _Case) -> PartitionedTable:
    """The rows of a case, each in a file of its own, by one of two specs."""
    known = [draw(specs(case.columns, number)) for number in range(2)]
    chosen = [draw(st.sampled_from(known)) for _ in case.data]
    partitions = [
        (spec.spec_id, partition_of(spec, case.columns, row)) for spec, row in zip(chosen, case.data, strict=True)
    ]
    return partitioned(case.columns, known, partitions)


def kept_by_pyiceberg(case: _Case, spec: PartitionSpec, partition: tuple[Any, ...]) -> bool:
    schema = schema_of(case.columns)
    projected = inclusive_projection(schema, spec, case_sensitive=True)(rewrite_not(case.expression))
    partition_schema = Schema(*spec.partition_type(schema).fields)
    return bool(expression_evaluator(partition_schema, projected, case_sensitive=True)(Record(*partition)))


@settings(max_examples=cases(40, 6000))
@given(st.data())
def test_no_row_that_passes_is_lost(data: st.DataObject) -> None:
    case = data.draw(_cases(KINDS, odd=False))
    found, tree = data.draw(_partitioned(case)), _read(case)
    theirs = _kept_by_pyiceberg(case)
    if theirs is None or any(isinstance(leaf, Unjudged) for leaf in leaves(tree)):
        return
    mask = partition_mask(tree, found.files, found.table).mask
    event(f"kept all {mask.all()}")
    for row, must_keep, is_kept in zip(case.data, theirs, mask.tolist(), strict=True):
        assert is_kept or not must_keep, row


@settings(max_examples=cases(40, 6000))
@given(st.data())
def test_what_pyiceberg_rules_out_is_ruled_out(data: st.DataObject) -> None:
    case = data.draw(_cases(CLEAR, odd=False))
    found, tree = data.draw(_partitioned(case)), _read(case)
    mask = partition_mask(tree, found.files, found.table).mask
    for ordinal, is_kept in enumerate(mask.tolist()):
        spec = found.table.specs()[found.files.facts(ordinal).spec_id]
        partition = found.files.partition(ordinal)
        is_early = any(
            isinstance(field.transform, TimeTransform) and isinstance(value, int) and value <= 0
            for field, value in zip(spec.fields, partition, strict=True)
        )
        assert not is_kept or is_early or kept_by_pyiceberg(case, spec, partition), (spec, partition)


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "not-eq": operator.ne,
    "lt": operator.lt,
    "lt-eq": operator.le,
    "gt": operator.gt,
    "gt-eq": operator.ge,
}


def _as_json(value: object) -> Any:
    return value.hex() if isinstance(value, bytes) else value if isinstance(value, int) else str(value)


@settings(max_examples=cases(60, 3000))
@given(st.data())
def test_a_test_of_a_transform_is_judged_in_full_by_the_column_itself(data: st.DataObject) -> None:
    """Iceberg's own clients take it for a test of the column, and then test no row."""
    kind = data.draw(st.sampled_from([each for each in KINDS if len(transforms_of(Column(1, "c", each))) > 1]))
    column = Column(1, "c", kind)
    name = data.draw(st.sampled_from([each for each in transforms_of(column) if each != "identity"]))
    spec, own = (
        PartitionSpec(PartitionField(1, 1000, parse_transform(each), "p"), spec_id=0) for each in (name, "identity")
    )
    values = [each for each in kind.values if not isinstance(each, int) or abs(each) < 2**31 - 1]
    rows = [[value] for value in data.draw(st.lists(st.none() | st.sampled_from(values), min_size=1, max_size=5))]
    made = [partition_of(spec, [column], row)[0] for row in rows]
    literal = data.draw(st.sampled_from([partition_of(spec, [column], [value])[0] for value in values]))
    test = data.draw(st.sampled_from([*OPERATORS]))
    term = {"type": "transform", "transform": name, "term": "c"}
    tree = read_of([column], {"type": test, "term": term, "value": _as_json(literal)}, case_sensitive=True)
    found = partitioned([column], [own], [(0, partition_of(own, [column], row)) for row in rows])
    expected = [test == "not-eq" if each is None else OPERATORS[test](each, literal) for each in made]
    assert partition_mask(tree, found.files, found.table).mask.tolist() == expected


def test_no_bucket_holds_a_decimal_of_more_digits_than_the_column_has() -> None:
    column = Column(1, "c", next(kind for kind in KINDS if kind.name == "decimal(9, 2)"))
    spec = PartitionSpec(PartitionField(1, 1000, parse_transform("bucket[3]"), "p"), spec_id=0)
    found = partitioned([column], [spec], [(0, (bucket,)) for bucket in range(3)])
    for test in ({"type": "eq", "value": 2**31}, {"type": "in", "values": [2**31, "10000000.00", "0.001"]}):
        tree = read_of([column], {"term": "c", **test}, case_sensitive=True)
        assert not partition_mask(tree, found.files, found.table).mask.any()


def test_what_java_makes_of_the_least_integer_is_judged_as_it_is_written() -> None:
    """Java's truncate runs over the least integer: the partition of -2**63 by threes is 2**63 - 1."""
    column = Column(1, "c", next(kind for kind in KINDS if kind.name == "long"))
    spec = PartitionSpec(PartitionField(1, 1000, parse_transform("truncate[3]"), "p"), spec_id=0)
    found = partitioned([column], [spec], [(0, (2**63 - 1,)), (0, (0,)), (0, (2**63 - 2,))])
    term = {"type": "transform", "transform": "truncate[3]", "term": "c"}
    is_null = read_of([column], {"type": "is-null", "term": "c"}, case_sensitive=True)
    assert not partition_mask(is_null, found.files, found.table).mask.any()
    for tested, expected in (("c", [True, True, False]), (term, [False, True, False])):
        tree = read_of([column], {"type": "lt-eq", "term": tested, "value": 1}, case_sensitive=True)
        assert partition_mask(tree, found.files, found.table).mask.tolist() == expected

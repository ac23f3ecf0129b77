"""What bounds of files say about comparisons, against Python's own order of texts and bytes, zero bytes included."""

from __future__ import annotations

import operator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IcebergType, NestedField, StringType
from skipstone.indexes.keytests import plan_test
from skipstone.indexes.ranges import bounds_columns, files_that_may_match
from skipstone.tables.filesets import ColumnBounds
from skipstone_core.language.predicates import ColumnRef, Comparison, Constant, InList, Node, Operator

OPERATORS: dict[Operator, Any] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
COLUMN = ColumnRef("", "c")


class OneValueFiles:
    """Files that hold one value each, and say so."""

    def __init__(self, values: pa.Array) -> None:
        ones, none = pa.array([1] * len(values)), pa.array([0] * len(values))
        self._bounds = ColumnBounds(values, values, none, none, ones)

    def __len__(self) -> int:
        return len(self._bounds.lower)

    def bounds(self, field_id: int) -> ColumnBounds:
        assert field_id == 1
        return self._bounds


def may_match(node: Node, kind: IcebergType, values: pa.Array) -> list[bool]:
    schema = Schema(NestedField(1, "c", kind, required=False))
    return files_that_may_match(plan_test(node, schema), OneValueFiles(values), bounds_columns(schema)).tolist()


KINDS = [
    (StringType(), pa.string(), st.text(st.sampled_from("\x00ab\uffff\U0001f600"), max_size=3)),
    (BinaryType(), pa.binary(), st.binary(max_size=3) | st.lists(st.sampled_from([0, 255]), max_size=3).map(bytes)),
]


@pytest.mark.parametrize(("kind", "arrow", "drawn"), KINDS, ids=["texts", "bytes"])
def test_the_bounds_of_one_value_say_what_the_value_does(
    kind: IcebergType, arrow: pa.DataType, drawn: st.SearchStrategy[Any]
) -> None:
    @given(st.lists(drawn, min_size=1, max_size=6), drawn, st.sampled_from([*OPERATORS]))
    def check(values: list[Any], literal: Any, op: Operator) -> None:
        array = pa.array(values, arrow)
        expected = [bool(OPERATORS[op](value, literal)) for value in values]
        assert may_match(Comparison(op, COLUMN, Constant(literal)), kind, array) == expected
        listed = may_match(InList(COLUMN, (Constant(literal), Constant(values[0]))), kind, array)
        assert listed == [value in (literal, values[0]) for value in values]

    check()

"""Source values on their way into target columns: what fits is cast, what does not is named."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone.kernels.clauses import fitted, inserted_rows
from skipstone_core.contract.requests import MergeAction
from skipstone_core.errors import BadData
from skipstone_core.merging.merges import BoundClause
from skipstone_core.reasons import Reason

INSERT = BoundClause(action=MergeAction.INSERT, values={"id": "id"})


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1, -7], pa.int64()), pa.decimal128(9, 2), [Decimal("1.00"), Decimal("-7.00")]),
        (pa.array([Decimal("1.5")], pa.decimal128(2, 1)), pa.decimal128(9, 2), [Decimal("1.50")]),
        (pa.array([2**63 - 1], pa.uint64()), pa.decimal128(38, 19), [Decimal(2**63 - 1)]),
        (pa.chunked_array([["a"], ["b"]]), pa.string(), ["a", "b"]),
        (pa.chunked_array([], pa.int32()), pa.int64(), []),
        (pa.array([None, None], pa.string()), pa.int32(), [None, None]),
        (pa.array([2.0, None]), pa.int32(), [2, None]),
        (pa.array([0.5, float("-inf")]), pa.float32(), [0.5, float("-inf")]),
        (pa.array([Decimal("7.00")], pa.decimal128(9, 2)), pa.int64(), [7]),
    ],
)
def test_values_that_fit_are_cast(values: pa.Array, kind: pa.DataType, expected: list[object]) -> None:
    assert fitted(values, pa.field("x", kind)).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array([10**8]), pa.decimal128(9, 2)),
        (pa.array([Decimal("1.55")]), pa.decimal128(9, 1)),
        (pa.array([Decimal("1.50")]), pa.int64()),
        (pa.array([Decimal("9468034.5244632394639358559")], pa.decimal128(38, 19)), pa.decimal128(38, 38)),
        (pa.array([2**31]), pa.decimal128(38, 38)),
        (pa.array([0.1]), pa.float32()),
        (pa.array([1e300]), pa.float32()),
        (pa.array([1.5]), pa.int32()),
        (pa.array([2.0**63]), pa.int64()),
        (pa.array([2**53 + 1]), pa.float64()),
    ],
)
def test_a_value_that_does_not_fit_names_the_column(values: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(BadData, match="does not fit column 'price'") as caught:
        fitted(values, pa.field("price", kind))
    assert caught.value.reason is Reason.BAD_RECORDS


def test_a_struct_without_a_value_is_written_although_its_fields_are_required() -> None:
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    rows = inserted_rows(pa.table({"id": [1, 2]}), INSERT, pa.schema([("id", pa.int64()), ("st", kind)]))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rows]), sink)
    found = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert found.to_pylist() == [{"id": 1, "st": None}, {"id": 2, "st": None}]

"""Partitions by truncated decimals: a value whose truncation has more digits than its type has no partition."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import DecimalType, NestedField
from skipstone.files.partitions import split_by_partition
from skipstone_core.errors import BadData


def test_a_decimal_whose_truncation_has_too_many_digits_is_told() -> None:
    schema = Schema(NestedField(1, "price", DecimalType(9, 2)))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(100), "about"))
    table = pa.table({"price": pa.array([Decimal("-9999999.99")], pa.decimal128(9, 2))})
    with pytest.raises(
        BadData, match=r"its 'about' \(truncate\[100\]\) is -10000000.00, which is beyond decimal\(9, 2\)"
    ):
        list(split_by_partition(table, spec, schema))

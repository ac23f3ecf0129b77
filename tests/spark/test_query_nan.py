"""``read`` asks for NaN, and for all but NaN, with an index and without."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from skipstone.query import read
from skipstone_core.errors import BadSpec

from tests.spark.index_bed import Lake, index_on

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("f", pa.float32()), ("s", pa.string())])
FILES = ([1.0, math.nan], [None, -0.0], [math.nan], [5.0, math.inf])
#: Condition, and the values that it is true of.
CASES = {
    "x is nan": 2,
    "f is nan": 2,
    "x is not nan": 5,
    "not x is nan": 5,
    "x is nan or x = 0.0": 3,
    "x is not nan and x is not null": 4,
    "k is nan": 0,
    "k is not nan": 7,
}


@pytest.mark.parametrize("is_indexed", [False, True], ids=["plain", "indexed"])
def test_nan_can_be_asked_for(tmp_path: Path, *, is_indexed: bool) -> None:
    lake = Lake(tmp_path)
    table, number = lake.create(SCHEMA), 0
    for values in FILES:
        keys = list(range(number, number + len(values)))
        table.append(pa.table({"k": keys, "x": values, "f": values, "s": ["a"] * len(values)}, schema=SCHEMA))
        number += len(values)
    if is_indexed:
        lake.reindex(index_on("x"))
    found = {condition: read(lake.table(), ["k"], condition).num_rows for condition in CASES}
    assert found == CASES
    with pytest.raises(BadSpec, match="do not compare"):
        read(lake.table(), ["k"], "s is nan")
    lake.catalog.close()

"""pandas on Spark, whose frames number their rows, reads through indexes wherever nobody asks for the numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import skipstone
from pyspark.sql import DataFrame, SparkSession
from skipstone.query.plans.refusals import Refusal

from tests.spark.plans_bed import TABLE, Bed, filled, kept

__all__ = ["filled", "kept"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:If `index_col` is not specified"),
    pytest.mark.filterwarnings("ignore:`to_pandas` loads all data"),
]


@pytest.fixture
def pandas_on_spark(filled: Bed) -> Iterator[Any]:
    """The module, which takes the active session."""
    os.environ["PYARROW_IGNORE_TIMEZONE"] = "1"
    import pyspark.pandas

    before = SparkSession.getActiveSession()
    filled.spark.createDataFrame([(1,)], "n int")  # makes the session the active one
    yield pyspark.pandas
    if before is not None:
        before.createDataFrame([(1,)], "n int")


def test_the_default_index_costs_no_index_unless_it_is_asked_for(filled: Bed, pandas_on_spark: Any) -> None:
    frame = pandas_on_spark.read_table(TABLE)
    hit = frame[frame.k == 7]
    by_n = pandas_on_spark.read_table(TABLE, index_col="n")
    for narrowed in (
        hit.to_spark(),
        hit[["n"]].to_spark(),
        hit["n"].to_frame().to_spark(),
        by_n[by_n.k == 7].to_spark(),
    ):
        assert filled.check(narrowed).files_read == [1]
    numbered: DataFrame = hit.to_spark(index_col="number")
    assert filled.check(numbered).refusals == [Refusal.DEFAULT_INDEX]
    skipstone.enable(filled.spark)
    try:
        assert len(hit) == 1
        assert hit["n"].sum() == 1
        assert hit.to_pandas()["n"].tolist() == [1]
        assert by_n[by_n.k == 7].to_pandas().index.tolist() == [1]
        assert frame[frame.k.isin([7, 14])].groupby("g").n.sum().to_pandas().to_dict() == {"g13": 1, "g26": 2}
    finally:
        skipstone.disable(filled.spark)

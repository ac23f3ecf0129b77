"""What the driver may decode is bounded in memory, however small the files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from skipstone.query import ReadOptions, plan_read
from skipstone.query.reading import BudgetSpent, ReadBudget, rows_of_files

from tests.spark.index_bed import Lake

MIB = 1 << 20
ROWS, TEXT = 8_192, 100_000
SCHEMA = pa.schema([("k", pa.int64()), ("txt", pa.string())])


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(usual)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table of one file, of a few kilobytes: each row has the same long text."""
    found = Lake(tmp_path)
    found.create(SCHEMA)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), ["x" * TEXT])
    rows = pa.table({"k": range(ROWS), "txt": texts})
    path = tmp_path / "long-texts.parquet"
    pa.parquet.write_table(rows, path, store_schema=False)
    assert path.stat().st_size < MIB
    found.table().add_files([str(path)])
    return found


@pytest.mark.parametrize("condition", ["txt like 'y%' or k < 3", "txt > 'y'", "k >= 0"])
def test_long_texts_that_a_dictionary_repeats_spend_the_budget_before_they_fill_the_memory(
    lake: Lake, pool: pa.MemoryPool, condition: str
) -> None:
    plan = plan_read(lake.table(), condition, ReadOptions(use_indexes=False))
    with pytest.raises(BudgetSpent):
        list(rows_of_files(lake.table(), plan, ["k", "txt"], plan.ordinals, ReadBudget(ROWS, 64 * MIB)))
    assert pool.max_memory() < 160 * MIB


def test_what_is_within_the_budget_is_read_in_order(lake: Lake) -> None:
    plan = plan_read(lake.table(), "k < 30", ReadOptions(use_indexes=False))
    found = rows_of_files(lake.table(), plan, ["k", "txt"], plan.ordinals, ReadBudget(30, 64 * MIB))
    rows = pa.Table.from_batches(found)
    assert rows["k"].to_pylist() == list(range(30))
    assert set(rows["txt"].to_pylist()) == {"x" * TEXT}

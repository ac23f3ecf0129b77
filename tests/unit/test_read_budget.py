"""What the driver may decode is bounded in memory, however small the files are."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone.query import ReadOptions, plan_read
from skipstone.query.reading import BudgetSpent, ReadBudget, probable_rows, rows_of_files
from skipstone.tables.parquetfiles import WholeFile

from tests.spark.index_bed import Lake
from tests.spark.rawdeletes import add_equality_delete, add_position_delete

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


@pytest.fixture(params=["texts", "dictionary", "prefixes"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """A table of one file, of a few kilobytes: each row has the same long text. Arrow reads it as texts, or as a
    dictionary of them; the file has it in a dictionary, or each as the whole of the one before.
    """
    found = Lake(tmp_path)
    found.create(SCHEMA)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), ["x" * TEXT])
    rows = pa.table({"k": range(ROWS), "txt": texts})
    path = tmp_path / "long-texts.parquet"
    if request.param == "prefixes":
        pq.write_table(rows.cast(SCHEMA), path, use_dictionary=False, column_encoding={"txt": "DELTA_BYTE_ARRAY"})
    else:
        pq.write_table(rows, path, store_schema=request.param == "dictionary")
    assert path.stat().st_size < MIB
    found.table().add_files([str(path)])
    return found


@pytest.mark.parametrize(("condition", "least", "most"), [("txt > 'y'", 1, 40), ("txt <> 'y'", ROWS, ROWS + 40)])
def test_a_look_at_long_texts_takes_little_memory(
    lake: Lake, pool: pa.MemoryPool, condition: str, least: int, most: int
) -> None:
    rows = probable_rows(lake.table(), plan_read(lake.table(), condition, ReadOptions(use_indexes=False)))
    assert rows is not None
    assert least <= rows <= most
    assert (pool.max_memory() or 0) < 256 * MIB


def test_a_look_at_some_rows_tells_of_all(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create(pa.schema([("k", pa.int64()), ("tenth", pa.int64())]))
    for first in range(0, 9000, 1000):
        keys = np.arange(first, first + 1000)
        lake.table().append(pa.table({"k": keys, "tenth": keys % 10}))
    for condition, expected in (("tenth = 3", 900), ("k = 4007", 1), ("k >= 8500", 500), ("k < 0", None)):
        rows = probable_rows(lake.table(), plan_read(lake.table(), condition, ReadOptions(use_indexes=False)))
        assert rows == (None if expected is None else pytest.approx(expected, abs=10))
    assert probable_rows(lake.table(), plan_read(lake.table(), None)) is None


def test_a_look_reads_no_deletes(lake: Lake, pool: pa.MemoryPool) -> None:
    (task,) = lake.table().scan().plan_files()
    add_position_delete(lake.table(), task.file, [*range(ROWS - 5)])
    add_equality_delete(lake.table(), {"txt": ["y"]})
    rows = probable_rows(lake.table(), plan_read(lake.table(), "txt > 'y'", ReadOptions(use_indexes=False)))
    assert rows is not None
    assert rows <= 40
    assert pool.total_bytes_allocated() < 512 * MIB, "more was decoded than some rows"


@pytest.mark.parametrize("condition", ["txt like 'y%' or k < 3", "txt > 'y'", "k >= 0"])
def test_long_texts_that_a_dictionary_repeats_spend_the_budget_before_they_fill_the_memory(
    lake: Lake, pool: pa.MemoryPool, condition: str
) -> None:
    plan = plan_read(lake.table(), condition, ReadOptions(use_indexes=False))
    with pytest.raises(BudgetSpent):
        list(rows_of_files(lake.table(), plan, ["k", "txt"], plan.ordinals, ReadBudget(ROWS, 64 * MIB)))
    assert pool.max_memory() < 160 * MIB


@pytest.mark.parametrize("kind", ["deleted rows", "columns of deletes"])
def test_what_deletes_make_necessary_is_spent_too(lake: Lake, kind: str) -> None:
    (task,) = lake.table().scan().plan_files()
    if kind == "deleted rows":
        add_position_delete(lake.table(), task.file, [*range(ROWS - 5)])
    else:
        add_equality_delete(lake.table(), {"txt": ["y"]})
    condition = "txt > 'y'" if kind == "deleted rows" else "k < 3"
    plan = plan_read(lake.table(), condition, ReadOptions(use_indexes=False))
    with pytest.raises(BudgetSpent):
        list(rows_of_files(lake.table(), plan, ["k", "txt"], plan.ordinals, ReadBudget(ROWS, 64 * MIB)))


def test_what_is_within_the_budget_is_read_in_order(lake: Lake) -> None:
    plan = plan_read(lake.table(), "k < 30", ReadOptions(use_indexes=False))
    found = rows_of_files(lake.table(), plan, ["k", "txt"], plan.ordinals, ReadBudget(30, 64 * MIB))
    rows = pa.Table.from_batches(found)
    assert rows["k"].to_pylist() == list(range(30))
    assert set(rows["txt"].to_pylist()) == {"x" * TEXT}


@given(
    texts=st.lists(st.one_of(st.none(), st.text(max_size=5), st.just("x" * 3_000)), min_size=1, max_size=700),
    name=st.sampled_from(["txt", "t.xt", "k.t"]),
    encoding=st.sampled_from(["PLAIN", "DELTA_BYTE_ARRAY", None]),
    is_nested=st.booleans(),
    group_rows=st.integers(100, 700),
    rows=st.integers(1, 400),
    nbytes=st.integers(1, 200_000),
)
def test_batches_of_few_bytes_hold_all_rows_in_order(
    texts: list[str | None],
    name: str,
    *,
    encoding: str | None,
    is_nested: bool,
    group_rows: int,
    rows: int,
    nbytes: int,
) -> None:
    values = pa.array([[text] for text in texts], pa.list_(pa.string())) if is_nested else pa.array(texts, pa.string())
    given_rows, sink = pa.table({"k": range(len(texts)), name: values}), io.BytesIO()
    encodings = {f"{name}.list.element" if is_nested else name: encoding} if encoding else None
    pq.write_table(given_rows, sink, use_dictionary=not encoding, column_encoding=encodings, row_group_size=group_rows)
    found = [*WholeFile(pa.BufferReader(sink.getvalue())).batches(["k", name], rows=rows, nbytes=nbytes)]
    assert pa.Table.from_batches(found) == given_rows
    assert max(batch.num_rows for batch in found) <= rows
    assert all(batch.nbytes <= nbytes // 2 for batch in found if batch.num_rows > min(rows, 128))


def test_short_texts_of_a_large_dictionary_are_decoded_by_many_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, at_once = io.BytesIO(), []
    pq.write_table(pa.table({"txt": [f"text {number % 20_000}" for number in range(200_000)]}), sink)
    decode = pq.ParquetFile.iter_batches

    def seen(file: pq.ParquetFile, *given: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in decode(file, *given, **options):
            at_once.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", seen)
    found = [*WholeFile(pa.BufferReader(sink.getvalue())).batches(["txt"], nbytes=16 * MIB)]
    assert sum(map(len, found)) == 200_000
    assert len(at_once) < 10

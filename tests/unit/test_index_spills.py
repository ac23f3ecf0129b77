"""More rows than a buffer come back in order, whatever they are, and however many are of one key."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.indexes.building import spilling
from skipstone.indexes.building.spilling import Spills

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)),
    pa.string(): st.text("ab", max_size=3),
    pa.date32(): st.dates(date(2020, 1, 1), date(2020, 1, 9)),
    pa.bool_(): st.booleans(),
}
KEYS = [(pa.int64(),), (pa.string(),), (pa.date32(), pa.int64()), (pa.bool_(), pa.string()), (pa.int64(), pa.int64())]


def table_of(rows: list[tuple[Any, ...]], kinds: tuple[pa.DataType, ...], first: int) -> pa.Table:
    columns = {f"k{at}": pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)}
    return pa.table({**columns, "number": pa.array(range(first, first + len(rows)), pa.int64())})


@pytest.mark.parametrize("kinds", KEYS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_sorted_buffers_are_merged_and_rows_of_equal_keys_stay_in_order(
    kinds: tuple[pa.DataType, ...], data: st.DataObject
) -> None:
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    buffers = data.draw(st.lists(st.lists(row, min_size=1, max_size=40), min_size=1, max_size=6))
    names = [(f"k{at}", "ascending") for at in range(len(kinds))]
    first, tables = 0, []
    for buffer in buffers:
        tables.append(table_of(buffer, kinds, first).sort_by([*names, ("number", "ascending")]))
        first += len(buffer)
    with Spills(len(kinds), most_bytes=data.draw(st.sampled_from([1, 100, 1_000, 10_000]))) as spills:
        for table in tables:
            spills.add([table.slice(0, 3), table.slice(3)] if table.num_rows > 3 else [table])
        found = pa.concat_tables(spills.merged()).combine_chunks()
    expected = pa.concat_tables(tables).sort_by([*names, ("number", "ascending")]).combine_chunks()
    assert found.equals(expected)


def test_many_rows_of_one_key_are_read_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling.tempfile, "tempdir", str(tmp_path))
    tables = [pa.table({"k": [0] * 50 + [7] * 10_000 + [9] * 50, "number": range(10_100)}) for _ in range(3)]
    with Spills(1, most_bytes=50_000) as spills:
        for table in tables:
            spills.add([table])
        parts = list(spills.merged())
        assert len(list(tmp_path.rglob("*.arrow"))) == 3
    assert pa.concat_tables(parts)["k"].to_pylist() == [0] * 150 + [7] * 30_000 + [9] * 150
    assert max(part.num_rows for part in parts) <= 1_000
    assert list(tmp_path.iterdir()) == []

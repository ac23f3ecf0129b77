"""Entries are sorted by key, nulls last, and entries of one key stay in their order."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.indexes.building.sorting import sorted_entries
from skipstone.indexes.definition import entry_schema

SPREAD = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.one_of(st.integers(-3, 3), SPREAD),
    "string": st.text(max_size=2),
    "date": st.dates(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
}

KEYS = [("long",), ("string",), ("date",), ("timestamptz",), ("long", "long"), ("long", "string"), ("date", "long")]


@pytest.mark.parametrize("storages", KEYS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_entries_are_sorted_and_stay_in_order(storages: tuple[str, ...], data: st.DataObject) -> None:
    row = st.tuples(*(st.none() | VALUES[storage] for storage in storages))
    batches = data.draw(st.lists(st.lists(row, max_size=30), min_size=1, max_size=3))
    schema = entry_schema(storages)
    rows = [
        {**{f"k{at}": value for at, value in enumerate(keys)}, "file_id": file, "row_group": 0, "pos": position}
        for file, batch in enumerate(batches)
        for position, keys in enumerate(batch)
    ]
    table = pa.concat_tables(
        [
            pa.Table.from_pylist([one for one in rows if one["file_id"] == file], schema=schema)
            for file in range(len(batches))
        ]
    )
    names = [(f"k{at}", "ascending") for at in range(len(storages))]
    assert sorted_entries(table).equals(table.take(pc.sort_indices(table, sort_keys=names)))

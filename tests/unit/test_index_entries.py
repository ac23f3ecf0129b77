"""Entries are sorted by key, nulls last, and entries of one key stay in their order, as Arrow sorts them."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.indexes.building.packing import in_key_order, sort_order
from skipstone.indexes.definition import entry_schema
from skipstone.indexes.keys import arrow_type
from skipstone_core.indexing.indexes import IndexColumn, IndexDefinition

SPREAD = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.one_of(st.integers(-3, 3), SPREAD),
    "string": st.text(max_size=2),
    "date": st.dates(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "time": st.times(),
}

KEYS = [
    ("long",),
    ("string",),
    ("date",),
    ("timestamptz",),
    ("time",),
    ("long", "long"),
    ("long", "string"),
    ("date", "long"),
]


@pytest.mark.parametrize("storages", KEYS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_entries_are_sorted_and_stay_in_order(storages: tuple[str, ...], data: st.DataObject) -> None:
    row = st.tuples(*(st.none() | VALUES[storage] for storage in storages))
    batches = data.draw(st.lists(st.lists(row, max_size=30), min_size=1, max_size=3))
    schema = entry_schema(IndexDefinition(tuple(IndexColumn(at, storage) for at, storage in enumerate(storages))))
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
    order = sort_order([pa.concat_arrays(table.column(name).chunks) for name, _ in names])
    assert table.take(pa.array(order)).equals(table.take(pc.sort_indices(table, sort_keys=names)))


@pytest.mark.parametrize("storages", KEYS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_keys_of_stretches_come_in_order_with_the_places_where_they_stand(
    storages: tuple[str, ...], data: st.DataObject
) -> None:
    row = st.tuples(*(st.none() | VALUES[storage] for storage in storages))
    stretches = data.draw(st.lists(st.lists(row, min_size=1, max_size=30), min_size=1, max_size=5))
    columns = [
        [pa.array([keys[at] for keys in stretch], arrow_type(storage)) for stretch in stretches]
        for at, storage in enumerate(storages)
    ]
    found = [
        (*(key[at].as_py() for key in part.keys), int(part.stretches[at]), int(part.offsets[at]))
        for part in in_key_order(columns, [len(stretch) for stretch in stretches])
        for at in range(len(part.offsets))
    ]
    names = [f"k{at}" for at in range(len(storages))]
    given_rows = pa.table(
        {
            **{name: pa.chunked_array(column) for name, column in zip(names, columns, strict=True)},
            "stretch": [number for number, stretch in enumerate(stretches) for _ in stretch],
            "offset": [at for stretch in stretches for at in range(len(stretch))],
        }
    )
    expected = given_rows.sort_by([(name, "ascending") for name in given_rows.column_names])
    assert found == [tuple(row.values()) for row in expected.to_pylist()]

"""The materialized source: sorted, one row per key, the same whatever order its rows came in."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.kernels.changes import (
    ROW_GROUP_ROWS,
    ChangeReader,
    SlicePart,
    SortRule,
    in_file,
    last_changes,
    read_keys,
    sorted_slice,
    verify_slices,
    write_slice,
)
from skipstone_core.errors import BadData
from skipstone_core.keys import KeyFamily, KeyType
from skipstone_core.merging.merges import BoundKey
from skipstone_core.reasons import Reason

INTEGER = KeyType(KeyFamily.INTEGER)
STRING = KeyType(KeyFamily.STRING)
KEYS = (BoundKey(target="id", source="k", type=INTEGER), BoundKey(target="name", source="n", type=STRING))
RULE = SortRule(KEYS, "seq", {"k": INTEGER, "n": STRING, "seq": INTEGER, "v": STRING})
UNORDERED = SortRule(KEYS, None, RULE.types)
Row = tuple[int | None, str | None, int | None, str | None, list[int] | None]
SCHEMA = pa.schema(
    [("k", pa.int32()), ("n", pa.string()), ("seq", pa.int64()), ("v", pa.string()), ("tags", pa.list_(pa.int64()))]
)
rows = st.lists(
    st.tuples(
        st.none() | st.integers(0, 3),
        st.none() | st.sampled_from(["a", "b", "\U0001f600", "\uffff"]),
        st.none() | st.integers(0, 2),
        st.none() | st.sampled_from(["x", "y"]),
        st.none() | st.lists(st.integers(0, 1), max_size=2),
    ),
    max_size=12,
)


def table(data: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in data], schema=SCHEMA)


@settings(deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_last_change_wins_whatever_the_order_of_rows(data: list[Row], dice: random.Random) -> None:
    first, keyed, _ = last_changes(table(data), RULE)
    shuffled = list(data)
    dice.shuffle(shuffled)
    second, keyed_again, _ = last_changes(table(shuffled), RULE)
    assert keyed == keyed_again
    assert first.slice(0, keyed).to_pylist() == second.slice(0, keyed).to_pylist()
    with_key = [row for row in data if row[0] is not None and row[1] is not None]
    kept = first.slice(0, keyed).to_pylist()
    assert [(row["k"], row["n"]) for row in kept] == sorted({(row[0], row[1]) for row in with_key})
    for row in kept:
        rivals = [-1 if one[2] is None else one[2] for one in with_key if (one[0], one[1]) == (row["k"], row["n"])]
        assert (-1 if row["seq"] is None else row["seq"]) == max(rivals)
    assert first.num_rows - keyed == len(data) - len(with_key)


@settings(deadline=None)
@given(rows)
def test_duplicate_keys_without_sequence_are_an_error_naming_the_columns(data: list[Row]) -> None:
    keys = [(row[0], row[1]) for row in data if row[0] is not None and row[1] is not None]
    if len(keys) == len(set(keys)):
        assert last_changes(table(data), UNORDERED)[1] == len(keys)
        return
    with pytest.raises(BadData, match="several source rows have the same key in k, n: ") as caught:
        last_changes(table(data), UNORDERED)
    assert caught.value.reason is Reason.DUPLICATE_SOURCE_KEYS


def test_negative_zero_and_zero_are_one_key() -> None:
    kind = KeyType(KeyFamily.FLOAT)
    rule = SortRule((BoundKey(target="x", source="x", type=kind),), None, {"x": kind})
    with pytest.raises(BadData, match="several source rows have the same key in x"):
        last_changes(pa.table({"x": [0.0, -0.0]}), rule)
    with pytest.raises(BadData, match="several source rows"):
        last_changes(pa.table({"x": [float("nan"), 1.0, float("nan")]}), rule)


@pytest.mark.parametrize("column", ["x", "seq", "v"])
def test_zeros_of_both_signs_in_equal_changes_come_out_the_same_in_any_order(column: str) -> None:
    kind = KeyType(KeyFamily.FLOAT)
    rule = SortRule((BoundKey(target="x", source="x", type=kind),), "seq", {"x": kind, "seq": kind, "v": kind})
    kept = []
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        changes = pa.table({"x": [1.0, 1.0], "seq": [1.0, 1.0], "v": [1.0, 1.0]} | {column: zeros})
        found, keyed, _ = last_changes(changes, rule)
        kept.append(repr(found.to_pylist()))
        assert keyed == 1
    assert kept[0] == kept[1]


def big(rows_: int) -> pa.Table:
    return pa.table({"k": pa.array(range(rows_)).cast(pa.int32()), "n": ["x"] * rows_, "v": ["v"] * rows_})


def test_parts_are_read_across_row_groups(tmp_path: Path) -> None:
    count = ROW_GROUP_ROWS * 2 + 10
    one = write_slice(big(count), UNORDERED, str(tmp_path / "slice.parquet"))
    assert (one.rows, one.keyed, one.read) == (count, count, count)
    assert pq.ParquetFile(one.path).num_row_groups == 3
    reader = ChangeReader([one], ["k", "v"])
    for start, stop in ((0, 1), (ROW_GROUP_ROWS - 1, ROW_GROUP_ROWS + 1), (5, count), (count - 1, count), (7, 7)):
        read = reader.read([SlicePart(0, start, stop)])
        assert read.column("k").to_pylist() == list(range(start, stop))
        assert read.column_names == ["k", "v"]
    both = reader.read([SlicePart(0, 0, 2), SlicePart(0, count - 1, count)])
    assert both.column("k").to_pylist() == [0, 1, count - 1]


def test_a_slice_in_memory_is_read_as_its_file_is(tmp_path: Path) -> None:
    count = ROW_GROUP_ROWS + 10
    held = sorted_slice(pa.concat_tables([big(count), big(3).set_column(0, "k", pa.nulls(3, pa.int32()))]), UNORDERED,
                        str(tmp_path / "slice.parquet"))  # fmt: skip
    assert not Path(held.path).exists()
    verify_slices([held])
    filed = in_file(held)
    assert (filed.rows, filed.keyed, filed.read, filed.held) == (held.rows, held.keyed, held.read, held.held)
    assert [key.to_pylist() for key in read_keys(held, KEYS)] == [key.to_pylist() for key in read_keys(filed, KEYS)]
    for start, stop in ((0, 1), (ROW_GROUP_ROWS - 1, ROW_GROUP_ROWS + 1), (5, count + 3), (7, 7)):
        parts = [SlicePart(0, start, stop), SlicePart(0, 0, 2)]
        in_memory, from_file = (ChangeReader([one], ["v", "k", "k"]).read(parts) for one in (held, filed))
        assert in_memory.column_names == ["v", "k"]
        assert in_memory.equals(from_file)


def test_keys_of_a_slice_leave_out_rows_without_a_key(tmp_path: Path) -> None:
    one = write_slice(table([(None, "a", 1, "x", None), (2, "a", 1, "y", None)]), RULE, str(tmp_path / "s.parquet"))
    assert (one.rows, one.keyed) == (2, 1)
    assert [column.to_pylist() for column in read_keys(one, KEYS)] == [[2], [b"a"]]


def test_a_slice_that_was_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    one = write_slice(big(3), UNORDERED, str(path))
    verify_slices([one])
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadData, match="changed while it was merged"):
        verify_slices([one])
    path.unlink()
    with pytest.raises(BadData, match="changed while it was merged"):
        verify_slices([one])

"""Columns without a dictionary: those whose values hardly repeat, of every type, wherever repeats are."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone.tables.shaping.dictionaries import dictionary_columns

ROWS = 60_000


def drawn(distinct: int, count: int = ROWS) -> pa.Array:
    """So many numbers, drawn from so many."""
    return pa.array(np.random.default_rng(distinct).integers(0, distinct, count))


def is_dictionary(column: pa.Array) -> bool:
    chosen = dictionary_columns(pa.table({"v": column}))
    return chosen is True or (not isinstance(chosen, bool) and "v" in chosen)


def written(rows: pa.Table, use: Sequence[str] | bool) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, use_dictionary=use, compression="zstd")
    return sink.getvalue()


@pytest.mark.parametrize("distinct", [2, 500, ROWS // 20, ROWS // 4])
def test_values_that_repeat_get_a_dictionary(distinct: int) -> None:
    assert is_dictionary(drawn(distinct))
    assert is_dictionary(drawn(distinct).cast(pa.string()))


@pytest.mark.parametrize("distinct", [2 * ROWS, 10 * ROWS, 2**60])
def test_values_that_hardly_repeat_get_none(distinct: int) -> None:
    assert not is_dictionary(drawn(distinct))
    assert not is_dictionary(drawn(distinct).cast(pa.string()))


@pytest.mark.parametrize("times", [3, 4, 5, 8, 10, 20, 50, 64, 100])
def test_repeats_side_by_side_and_far_apart_are_seen(times: int) -> None:
    assert is_dictionary(pa.array(np.repeat(np.arange(ROWS // times), times)))
    assert is_dictionary(pa.array(np.tile(np.arange(ROWS // times), times)))


@given(st.integers(10, ROWS // 3), st.integers(0, 999))
def test_what_repeats_at_any_distance_gets_a_dictionary(period: int, begin: int) -> None:
    assert is_dictionary(pa.array((np.arange(ROWS) + begin) % period))


def test_distinct_values_in_order_get_none() -> None:
    assert not is_dictionary(pa.array(np.arange(ROWS)))


def test_where_a_table_is_cut_does_not_matter() -> None:
    column = drawn(2**60).cast(pa.string())
    pieces = [column.slice(0, 1), column.slice(1, 0), column.slice(1, 40_000), column.slice(40_001)]
    assert dictionary_columns(pa.table({"v": pa.chunked_array(pieces)})) == []


@pytest.mark.parametrize("kind", [pa.string_view(), pa.uuid(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_types_that_are_not_judged_keep_theirs(kind: pa.DataType) -> None:
    numbers = [number.to_bytes(16, "big") for number in range(ROWS)]
    storage = pa.array(numbers, pa.binary(16)) if kind == pa.uuid() else pa.array(map(str, range(ROWS)))
    column = pa.ExtensionArray.from_storage(kind, storage) if kind == pa.uuid() else storage.cast(kind)
    assert is_dictionary(column)


@pytest.mark.parametrize(
    "column",
    [
        drawn(2**30).cast(pa.int32()),
        drawn(2**30).cast(pa.int32()).cast(pa.date32()),
        drawn(2**50).cast(pa.timestamp("us", "UTC")),
        drawn(2**50).cast(pa.float64()),
        drawn(2**50).cast(pa.decimal128(20, 0)),
        drawn(2**50).cast(pa.string()).cast(pa.binary()),
        pa.array([number.to_bytes(16, "big") for number in range(ROWS)], pa.binary(16)),
    ],
    ids=lambda column: str(column.type),
)
def test_every_type_is_judged(column: pa.Array) -> None:
    assert not is_dictionary(column)
    assert is_dictionary(pa.concat_arrays([column.slice(0, 100)] * (ROWS // 100)))


def test_few_values_keep_their_dictionary() -> None:
    assert is_dictionary(pa.array(range(16_000)))
    sparse: list[Any] = [number if number % 3 == 0 else None for number in range(ROWS)]
    assert is_dictionary(pa.array(sparse))
    assert is_dictionary(pa.nulls(ROWS, pa.int64()))
    assert dictionary_columns(pa.table({"v": pa.array([], pa.int64())})) is True


def test_nested_columns_keep_theirs_beside_one_without() -> None:
    rows = pa.table(
        {
            "id": range(ROWS),
            "list": [[number % 3] for number in range(ROWS)],
            "struct": [{"a": number % 5, "b": [{"c": "x", "d": [1]}]} for number in range(ROWS)],
            "map": pa.array([[(number % 3, 1)] for number in range(ROWS)], pa.map_(pa.int32(), pa.int32())),
        }
    )
    file = written(rows, dictionary_columns(rows))
    group = pq.read_metadata(io.BytesIO(file)).row_group(0)
    encoded = {group.column(at).path_in_schema: group.column(at).encodings for at in range(group.num_columns)}
    assert len(encoded) == 7
    assert {path for path, encodings in encoded.items() if "RLE_DICTIONARY" not in encodings} == {"id"}
    assert pq.read_table(io.BytesIO(file)).equals(rows)


def test_who_allows_some_columns_gets_no_others() -> None:
    rows = pa.table({"a": drawn(10), "b": drawn(10), "c": drawn(2**60)})
    assert dictionary_columns(rows, allowed=["b", "c"]) == ["b"]
    assert dictionary_columns(rows.select(["a", "b"]), allowed=["b"]) == ["b"]
    assert dictionary_columns(rows, allowed=False) is False


def test_files_get_smaller() -> None:
    rows = pa.table({"price": drawn(2 * ROWS), "text": drawn(2**60).cast(pa.string()), "kind": drawn(5)})
    assert len(written(rows, dictionary_columns(rows))) < 0.9 * len(written(rows, use=True))

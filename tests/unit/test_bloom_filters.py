"""Bloom filters of files: never one that misses a value, whatever the type, the writer, and what became of the file."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO, pyarrow_to_schema
from pyiceberg.schema import Schema
from skipstone.files.bloom import reading
from skipstone.files.bloom.hashing import hashes_of_bytes, hashes_of_words
from skipstone.files.bloom.probing import AskedKeys, FileFilters
from skipstone.files.bloom.reading import FilterPlace, read_filter
from skipstone.files.bloom.sealing import PIECE_BYTES
from skipstone.files.footers import TAIL
from skipstone.files.parquet import FILTER_SIZES, FORMAT, ParquetFile
from skipstone.files.reader import DataFileDescription, open_data_file
from skipstone.files.splicing import ChunkSource, SplicedFile, SplicedLayout
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.parquet.thrift import CompactReader, with_fields
from skipstone_core.filter_sizes import FilterSize

from tests.examples import cases
from tests.unit.bloom_values import KINDS, array_of
from tests.unit.test_splicing import with_ids

_NAMES = itertools.count()
SIZES = st.fixed_dictionaries(
    {},
    optional={
        "rate": st.sampled_from([0.9, 0.1, 0.001, 1e-9]),
        "most_bytes": st.sampled_from([1, 32, 100, 1024, 1 << 20]),
        "distinct": st.integers(1, 1000),
    },
)
OPTIONS = st.fixed_dictionaries(
    {"compression": st.sampled_from(["none", "zstd"])},
    optional={"use_dictionary": st.just(False), "dictionary_pagesize_limit": st.just(64)},
)


class Made:
    """Rows of one column of each of some kinds, and their Iceberg schema."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        given = pa.table(dict(columns))
        self.schema = pyarrow_to_schema(with_ids(given.schema))
        kinds = arrow_schema(self.schema)
        arrays = [_as(column, field.type) for column, field in zip(given.columns, kinds, strict=True)]
        self.rows = pa.Table.from_arrays(arrays, schema=kinds)

    def options(self, size: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        return {"compression": "zstd", **more, FILTER_SIZES: {name: dict(size) for name in self.rows.column_names}}


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


@st.composite
def tables(draw: st.DrawFn) -> Made:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    count, found = draw(st.integers(1, 200)), {}
    for name in names:
        pool = draw(st.lists(st.none() | KINDS[name].values, min_size=1, max_size=40))
        order = np.random.default_rng(draw(st.integers(0, 99))).integers(0, len(pool), count)
        found[name] = array_of([pool[number] for number in order], KINDS[name].type)
    return Made(found)


def described(path: Path, schema: Schema) -> DataFileDescription:
    return DataFileDescription(0, str(path), path.stat().st_size, 0, schema.model_dump_json())


def refused(path: Path, schema: Schema, column: str, keys: pa.Array, group: int) -> list[int]:
    """The numbers of the keys that a row group's filter says are not there."""
    with open_data_file(described(path, schema)) as opened:
        rows = np.arange(len(keys))
        return sorted(set(rows) - set(FileFilters(opened).may_hold(AskedKeys(column, keys, keys), group, rows)))


def check(path: Path, made: Made, groups: Sequence[pa.Table]) -> None:
    """No filter refuses a value of its chunk, in whatever type a key comes that equals it."""
    for group, rows in enumerate(groups):
        for name in made.rows.column_names:
            values = rows.column(name).combine_chunks().drop_null()
            for kind in (values.type, *KINDS[name].keys):
                keys = values if kind == values.type else values.cast(kind)
                assert refused(path, made.schema, name, keys, group) == [], (name, group, kind)


def written(made: Made, path: Path, options: dict[str, Any], group_rows: int) -> list[pa.Table]:
    """A file of our writer; its row groups."""
    file = ParquetFile(PyArrowFileIO(), str(path), made.schema, options)
    file.append(made.rows, group_rows)
    file.close({})
    return [made.rows.slice(start, group_rows) for start in range(0, made.rows.num_rows, group_rows)]


@settings(max_examples=cases(40, 2500), deadline=None)
@given(made=tables(), size=SIZES, options=OPTIONS, group_rows=st.integers(1, 300))
def test_no_filter_misses_a_value(
    tmp_path_factory: pytest.TempPathFactory, made: Made, size: dict[str, Any], options: dict[str, Any], group_rows: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"bloom-{next(_NAMES)}.parquet"
    check(path, made, written(made, path, made.options(size, **options), group_rows))
    path.unlink()


@settings(max_examples=cases(30, 1500), deadline=None)
@given(made=tables(), sizes=st.tuples(SIZES, SIZES), seed=st.integers(0, 2**32), group_rows=st.integers(20, 300))
def test_no_filter_misses_a_value_that_was_copied_or_replaced(
    tmp_path_factory: pytest.TempPathFactory,
    made: Made,
    sizes: tuple[dict[str, Any], dict[str, Any]],
    seed: int,
    group_rows: int,
) -> None:
    random, folder = Random(seed), tmp_path_factory.getbasetemp()
    first, path = (folder / f"bloom-{next(_NAMES)}.parquet" for _ in range(2))
    groups = written(made, first, made.options(sizes[0]), group_rows)
    layout = SplicedLayout(made.schema, made.options(sizes[1]))
    file = SplicedFile(PyArrowFileIO(), str(path), layout)
    with first.open("rb") as opened:
        source, found = ChunkSource(opened), []
        for number, rows in enumerate(groups):
            kept = layout.copyable(source, number)
            fresh = [name for name in rows.column_names if name not in kept or random.random() < 0.5]
            other = rows.take(pa.array(np.random.default_rng(seed).integers(0, rows.num_rows, rows.num_rows)))
            file.copy(source, number, file.encode(other.select(fresh)) if fresh else None)
            columns = [(other if name in fresh else rows).column(name) for name in rows.column_names]
            found.append(pa.Table.from_arrays(columns, schema=rows.schema))
    file.close({})
    check(path, made, found)
    assert all(chunk.bloom_filter_length for chunk in chunks(path))
    first.unlink()
    path.unlink()


def chunks(path: Path) -> list[pq.ColumnChunkMetaData]:
    footer = pq.read_metadata(path)
    places = itertools.product(range(footer.num_row_groups), range(footer.num_columns))
    return [footer.row_group(group).column(column) for group, column in places]


def one_column(values: Sequence[Any], kind: pa.DataType, name: str = "long") -> Made:
    return Made({name: array_of(values, kind)})


def test_hashes_are_those_of_the_specification() -> None:
    known = {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999,
             b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1}  # fmt: skip
    assert hashes_of_bytes(pa.array(list(known), pa.binary())).tolist() == list(known.values())
    words = np.arange(9, dtype=np.uint64)
    assert hashes_of_words(words).tolist() == hashes_of_bytes(pa.array([w.tobytes() for w in words])).tolist()


def test_values_of_any_length_are_hashed_together_as_alone() -> None:
    random = Random(4)
    values = [random.randbytes(random.choice([0, 3, 31, 32, 40, 100, 5000])) for _ in range(300)]
    together = hashes_of_bytes(pa.array(values, pa.large_binary())).tolist()
    assert together == [int(hashes_of_bytes(pa.array([one], pa.binary()))[0]) for one in values]


@pytest.mark.parametrize("rate", [0.1, 0.01, 0.0001])
def test_filters_err_as_often_as_the_table_allows(tmp_path: Path, rate: float) -> None:
    made, path = one_column(range(20_000), pa.int64()), tmp_path / "a.parquet"
    written(made, path, made.options({"rate": rate}), 20_000)
    others = pa.array(range(10**6, 10**6 + 100_000))
    assert 1 - len(refused(path, made.schema, "long", others, 0)) / 100_000 < 2 * rate


def test_filters_of_few_distinct_values_are_small_and_none_is_larger_than_allowed(tmp_path: Path) -> None:
    few, many = one_column([number % 10 for number in range(50_000)], pa.int64()), one_column(range(50_000), pa.int64())
    lengths = []
    for number, (made, size) in enumerate([(few, {}), (many, {}), (many, {"most_bytes": 5000})]):
        path = tmp_path / f"{number}.parquet"
        written(made, path, made.options(size), 50_000)
        lengths.append(chunks(path)[0].bloom_filter_length)
    assert lengths[0] < 100
    assert lengths[1] > 50_000
    assert lengths[2] == pytest.approx(4096, abs=32)


def test_a_size_that_a_table_asks_for_holds_what_arrow_makes_of_it() -> None:
    for size in (FilterSize(), FilterSize(rate=1e-6), FilterSize(most_bytes=100), FilterSize(distinct=3)):
        sink = io.BytesIO()
        asked = {"v": {"ndv": size.values(10**7), "fpp": size.rate}}
        pq.write_table(pa.table({"v": np.arange(10)}), sink, bloom_filter_options=asked)
        chunk = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0).column(0)
        assert chunk.bloom_filter_length <= max(32, size.most_bytes) + 32


# --- floats ---


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("value", [0.0, -0.0])
def test_other_engines_find_zeros_of_either_sign(tmp_path: Path, kind: pa.DataType, value: float) -> None:
    made, path = one_column([value, 3.5], kind, "double"), tmp_path / "a.parquet"
    written(made, path, made.options({}), 10)
    name = "float" if kind == pa.float32() else "double"
    for asked in ("0.0", "-0.0"):
        assert duckdb.sql(f"select count(*) from '{path}' where double = {asked}::{name}").fetchall() == [(1,)]
        assert refused(path, made.schema, "double", pa.array([float(asked), 9.5], kind), 0) == [1]


def test_a_key_that_the_column_cannot_hold_is_absent(tmp_path: Path) -> None:
    made = Made({"a": pa.array([1], pa.int32()), "b": pa.array([0.5], pa.float32()), "c": pa.array([Decimal("1.50")])})
    path = tmp_path / "a.parquet"
    written(made, path, made.options({}), 10)
    keys = {
        "a": pa.array([1, 1 + 2**32]),
        "b": pa.array([0.5, 0.1]),
        "c": pa.array([Decimal("1.5000"), Decimal("1.5001")]),
    }
    assert [refused(path, made.schema, name, one, 0) for name, one in keys.items()] == [[1], [1], [1]]


# --- files that are not as they should be ---


def test_no_flipped_bit_of_a_filter_loses_a_value(tmp_path: Path) -> None:
    made, path = one_column(range(60), pa.int64()), tmp_path / "a.parquet"
    written(made, path, made.options({"rate": 0.001}), 60)
    (chunk,) = chunks(path)
    sound = path.read_bytes()
    for at in range(chunk.bloom_filter_offset, chunk.bloom_filter_offset + chunk.bloom_filter_length):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << bit
            source = io.BytesIO(bytes(damaged))
            place = FilterPlace.of(chunk)
            assert place is not None
            assert read_filter(source, place, hashes_of_words(np.arange(60, dtype=np.uint64))).holds.all(), (at, bit)


def test_a_damaged_filter_is_not_copied(tmp_path: Path) -> None:
    made, path = one_column(range(60), pa.int64()), tmp_path / "a.parquet"
    written(made, path, made.options({}), 60)
    (chunk,) = chunks(path)
    damaged = bytearray(path.read_bytes())
    damaged[chunk.bloom_filter_offset + 30] ^= 255
    copy = tmp_path / "b.parquet"
    file = SplicedFile(PyArrowFileIO(), str(copy), SplicedLayout(made.schema, made.options({})))
    file.copy(ChunkSource(io.BytesIO(bytes(damaged))), 0)
    file.close({})
    assert [one.bloom_filter_offset for one in chunks(copy)] == [None]


def foreign(made: Made, change: Mapping[int, Any], **filters: Any) -> bytes:
    """A file of another writer, with ``change`` in what its chunks say of themselves."""
    sink = io.BytesIO()
    options = {name: {"ndv": 10_000, "fpp": 0.01, **filters} for name in made.rows.column_names}
    pq.write_table(made.rows, sink, **FORMAT, bloom_filter_options=options)
    content = sink.getvalue()
    length, _ = TAIL.unpack(content[-TAIL.size :])
    footer = CompactReader(content[-TAIL.size - length : -TAIL.size]).struct()
    groups = []
    for group in footer[4]:
        made_chunks = [with_fields(one.raw, {3: with_fields(one[3].raw, dict(change))}) for one in group[1]]
        groups.append(with_fields(group.raw, {1: made_chunks}))
    changed = with_fields(footer.raw, {4: groups})
    return content[: -TAIL.size - length] + changed + TAIL.pack(len(changed), b"PAR1")


def test_the_length_of_a_filter_may_be_missing(tmp_path: Path) -> None:
    made, path = one_column(range(5000), pa.int64()), tmp_path / "a.parquet"
    path.write_bytes(foreign(made, {15: None}))
    (chunk,) = chunks(path)
    assert (chunk.bloom_filter_offset is not None, chunk.bloom_filter_length) == (True, None)
    assert refused(path, made.schema, "long", made.rows.column(0).combine_chunks(), 0) == []
    assert len(refused(path, made.schema, "long", pa.array(range(10**6, 10**6 + 1000)), 0)) > 900


@pytest.mark.parametrize(
    "change",
    [{14: 4}, {14: 10**9}, {14: -5, 15: None}, {14: 10**9, 15: None}, {15: None, 14: 4}],
    ids=repr,
)
def test_a_filter_that_is_none_says_nothing(tmp_path: Path, change: dict[int, Any]) -> None:
    made, path = one_column(range(50), pa.int64()), tmp_path / "a.parquet"
    path.write_bytes(foreign(made, change))
    assert refused(path, made.schema, "long", pa.array([1, 10**6]), 0) == []


@pytest.mark.parametrize("kind", ["long", "double", "text"])
@pytest.mark.parametrize("change", [{15: 40}, {15: 20}, {15: 1}, {15: 10**8}, {14: 4}, {14: 10**9}, {14: -4}], ids=repr)
def test_a_filter_that_is_not_whole_is_not_copied(tmp_path: Path, kind: str, change: dict[int, Any]) -> None:
    values = {"text": [f"a{number}" for number in range(3000)], "double": [number / 2 for number in range(3000)]}
    made, copy = one_column(values.get(kind, range(3000)), KINDS[kind].type, kind), tmp_path / "b.parquet"
    layout = SplicedLayout(made.schema, made.options({}, compression="snappy"))
    source, file = ChunkSource(io.BytesIO(foreign(made, change))), SplicedFile(PyArrowFileIO(), str(copy), layout)
    assert layout.copyable(source, 0) == {kind}
    file.copy(source, 0)
    file.close({})
    assert [one.bloom_filter_offset for one in chunks(copy)] == [None]
    assert pq.read_table(copy).column(kind).to_pylist() == made.rows.column(kind).to_pylist()


def test_a_filter_of_values_without_any_bit_says_nothing(tmp_path: Path) -> None:
    made, path = one_column(range(3000), pa.int64()), tmp_path / "a.parquet"
    path.write_bytes(content := foreign(made, {}))
    (chunk,) = chunks(path)
    start, size = chunk.bloom_filter_offset + chunk.bloom_filter_length % 32, chunk.bloom_filter_length // 32 * 32
    path.write_bytes(content[:start] + bytes(size) + content[start + size :])
    assert refused(path, made.schema, "long", pa.array([1, 10**6]), 0) == []


def test_a_filter_of_nulls_only_refuses_every_value(tmp_path: Path) -> None:
    made, path = one_column([None] * 9, pa.int64()), tmp_path / "a.parquet"
    path.write_bytes(foreign(made, {}))
    assert refused(path, made.schema, "long", pa.array([1, 10**6]), 0) == [0, 1]


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("ns"), pa.uint32(), pa.decimal128(9, 2)])
def test_forms_that_a_column_is_not_compared_in_say_nothing(tmp_path: Path, kind: pa.DataType) -> None:
    made, path = one_column(range(50), pa.int64()), tmp_path / "a.parquet"
    rows = pa.table({"long": pa.array([1, 2, 3], kind)}, schema=with_ids(pa.schema([("long", kind)])))
    pq.write_table(rows, path, bloom_filter_options={"long": True})
    assert refused(path, made.schema, "long", pa.array([10**6, 2**31 + 5]), 0) == []


class Counting(io.BytesIO):
    """Counts the bytes that are read."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


@pytest.mark.parametrize("change", [{}, {15: None}], ids=["length", "no length"])
def test_few_keys_read_few_pieces_of_a_large_filter(change: dict[int, Any]) -> None:
    made = one_column(range(1_000), pa.int64())
    content = foreign(made, change, ndv=1_000_000, fold=False)
    chunk = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    place = FilterPlace.of(chunk)
    assert place is not None
    for keys in (1, 3, 1000):
        source = Counting(content)
        answer = read_filter(source, place, hashes_of_words(np.arange(keys, dtype=np.uint64)))
        assert answer.holds.all()
        assert source.count <= (1 + keys) * PIECE_BYTES + 1024
    assert answer.rate < 0.01


def test_a_filter_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "MOST_READ_BYTES", 32)
    made, path = one_column(range(5000), pa.int64()), tmp_path / "a.parquet"
    written(made, path, made.options({}), 5000)
    assert refused(path, made.schema, "long", pa.array([10**6]), 0) == []


def test_a_column_that_shares_its_path_with_another_says_nothing(tmp_path: Path) -> None:
    """The leaf ``a.b`` of a struct, and a column of that name."""
    kinds = with_ids(pa.schema([("a", pa.struct([("b", pa.int64())])), ("a.b", pa.int64())]))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([[{"b": 1}], [2]], schema=kinds), path, bloom_filter_options={"a.b": True})
    assert refused(path, pyarrow_to_schema(pa.schema([kinds.field(1)])), "a.b", pa.array([2, 7]), 0) == []


def test_nan_is_never_refused(tmp_path: Path) -> None:
    made, path = one_column([1.0], pa.float64(), "double"), tmp_path / "a.parquet"
    written(made, path, made.options({}), 10)
    assert refused(path, made.schema, "double", pa.array([math.nan, 2.0]), 0) == [1]

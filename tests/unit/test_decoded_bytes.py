"""What is decoded at once is bounded in memory, however many times a file repeats a long value, and no row changes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.files.projections import POSITION_COLUMN
from skipstone.files.reader import DataFileDescription, describe_files, read_data_file
from skipstone.kernels.changes import (
    ChangeReader,
    SlicePart,
    SortRule,
    last_changes,
    write_slice,
)
from skipstone.kernels.holding.packing import PackedRows, packed_rows
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.filesets import read_file_set
from skipstone.tables.parquetfiles import BATCH_BYTES, WholeFile
from skipstone_core.keys import KeyFamily, KeyType
from skipstone_core.merging.merges import BoundKey, RepeatedKeys

from tests.bench.memory_runs import OURS, Texts, prepare
from tests.examples import turn
from tests.spark.index_bed import Lake
from tests.spark.rawdeletes import add_equality_delete, add_position_delete

MIB = 1 << 20
#: What a run may take more than one over a few short rows.
GOAL = 700 * MIB
LONG = "x" * 3_000
texts = st.one_of(st.none(), st.text(max_size=5), st.sampled_from([LONG, "y" * 500]))
NESTED = pa.struct([("a", pa.string()), ("b.c", pa.list_(pa.string()))])
MAPPED = pa.map_(pa.string(), pa.string())
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@st.composite
def mixed(draw: st.DrawFn) -> pa.Table:
    """Rows with long texts beside short ones, in columns of several types."""
    rows = draw(st.integers(1, 300))
    few = [draw(texts) for _ in range(draw(st.integers(1, 6)))]
    dice = draw(st.randoms(use_true_random=False))
    picked = [[dice.choice(few) for _ in range(rows)] for _ in range(4)]
    keys = [one or "" for one in picked[3]]
    return pa.table(
        {
            "k": pa.array(range(rows), pa.int64()),
            "plain": pa.array(picked[0], pa.string()),
            "a.b": pa.array([None if one is None else one.encode() for one in picked[1]], pa.binary()),
            "packed": pa.array(picked[2], pa.string()).cast(DICTIONARY),
            "nested": pa.array(
                [{"a": a, "b.c": [b] * (len(b or "") % 3)} for a, b in zip(*picked[:2], strict=True)], NESTED
            ),
            "mapped": pa.array([[(key, value)] for key, value in zip(keys, picked[1], strict=True)], MAPPED),
        }
    )


@settings(deadline=None)
@given(
    rows=mixed(),
    at_once=st.integers(1, 400),
    nbytes=st.integers(1, 200_000),
    options=st.fixed_dictionaries(
        {"row_group_size": st.integers(50, 400), "dictionary_pagesize_limit": st.sampled_from([1, 4_000, MIB])},
        optional={"data_page_size": st.just(100), "write_batch_size": st.just(7), "data_page_version": st.just("2.0")},
    ),
    prefixed=st.booleans(),
)
def test_rows_that_are_decoded_in_pieces_are_those_of_the_file(
    rows: pa.Table, at_once: int, nbytes: int, options: dict[str, Any], *, prefixed: bool
) -> None:
    sink = io.BytesIO()
    if prefixed:
        options = options | {"use_dictionary": ["a.b", "packed"], "column_encoding": {"plain": "DELTA_BYTE_ARRAY"}}
    pq.write_table(rows, sink, **options)
    expected = rows.set_column(3, "packed", rows["packed"].cast(pa.string()))
    for names in (rows.column_names, ["packed"], ["nested", "k"], ["a.b", "plain"]):
        found = [*WholeFile(pa.BufferReader(sink.getvalue())).batches(names, rows=at_once, nbytes=nbytes)]
        assert pa.Table.from_batches(found) == expected.select(names)
        assert max(batch.num_rows for batch in found) <= at_once


def test_more_than_two_gibibytes_of_one_text_column_are_split(tmp_path: Path) -> None:
    """A batch of Arrow holds less than 2 GiB of texts in a column; the file has 200 KiB."""
    lake, rows, length = Lake(tmp_path), 131_072, 17_000
    lake.create(pa.schema([("k", pa.int64()), ("txt", pa.string())]))
    codes = pa.array(np.arange(rows, dtype=np.int32) % 3)
    given_rows = pa.table({"k": range(rows), "txt": pa.DictionaryArray.from_arrays(codes, [c * length for c in "abc"])})
    pq.write_table(given_rows, tmp_path / "f.parquet", store_schema=False)
    assert (tmp_path / "f.parquet").stat().st_size < MIB
    lake.table().add_files([str(tmp_path / "f.parquet")])
    (task,) = lake.table().scan().plan_files()
    deleted = [0, 1_023, 1_024, 70_000, rows - 1]
    add_position_delete(lake.table(), task.file, deleted)
    add_equality_delete(lake.table(), {"txt": ["b" * length]})
    (file,) = describe_files(lake.table(), read_file_set(lake.table()), [0])
    keys, places, firsts = [], [], set()
    for batch in read_data_file(file, ["k", "txt", POSITION_COLUMN]):
        assert batch.nbytes <= 1.1 * BATCH_BYTES
        keys += batch["k"].to_pylist()
        places += batch[POSITION_COLUMN].to_pylist()
        firsts |= {text[0] for text in batch["txt"].to_pylist()}
    assert keys == [key for key in range(rows) if key % 3 != 1 and key not in deleted]
    assert places == keys
    assert firsts == {"a", "c"}


@pytest.mark.parametrize("nested", [False, True], ids=["column", "in a struct"])
def test_long_values_of_one_length_are_decoded_in_pieces(*, nested: bool) -> None:
    rows, length = 8_192, 16_384
    codes = pa.array(np.arange(rows, dtype=np.int32) % 3)
    values = pa.DictionaryArray.from_arrays(
        codes, pa.array([c * length for c in (b"a", b"b", b"c")], pa.binary(length))
    )
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.StructArray.from_arrays([values], ["f"]) if nested else values}), sink)
    assert len(sink.getvalue()) < MIB
    firsts = b""
    for batch in WholeFile(pa.BufferReader(sink.getvalue())).batches(["v"]):
        assert batch.nbytes <= 1.1 * BATCH_BYTES
        column = batch["v"].field(0) if nested else batch["v"]
        firsts += b"".join(pc.binary_slice(column.cast(pa.binary(length)).cast(pa.binary()), 0, 1).to_pylist())
    assert firsts == bytes(b"abc"[row % 3] for row in range(rows))


#: Where the long values of a row group are, among 300,000 short ones.
PLACES = {"start": 0, "middle": 150_000, "end": 300_000}
WRITERS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False},
    "a dictionary that was given up": {"dictionary_pagesize_limit": 64 * 1024},
    "pages of version 2": {"use_dictionary": False, "data_page_version": "2.0"},
    "long bounds in page headers": {"use_dictionary": False, "write_statistics": True, "write_page_index": True},
}


@pytest.mark.parametrize(
    ("kind", "writer"), [*(("text", writer) for writer in WRITERS), ("bytes in a struct", "plain")]
)
def test_long_values_that_lie_together_in_a_row_group_are_decoded_in_pieces(kind: str, writer: str) -> None:
    for place in PLACES.values():
        lengths = np.full(300_000, 8)
        lengths = np.concatenate([lengths[:place], np.full(1_000, 65_536), lengths[place:]])
        values = pa.array([str(row).ljust(length) for row, length in enumerate(lengths.tolist())])
        if kind != "text":
            values = pa.StructArray.from_arrays([values.cast(pa.binary())], ["f"])
        sink = io.BytesIO()
        options = {"write_batch_size": 32, "compression": "zstd", "row_group_size": 1 << 30, **WRITERS[writer]}
        pq.write_table(pa.table({"v": values, "k": np.arange(len(values))}), sink, **options)
        del values
        rows = 0
        for batch in WholeFile(pa.BufferReader(sink.getvalue())).batches(["v", "k"], rows=131_072):
            assert batch.nbytes <= 1.2 * BATCH_BYTES
            column = batch["v"] if kind == "text" else batch["v"].field(0)
            assert pc.binary_length(column).to_pylist() == lengths[rows : rows + batch.num_rows].tolist()
            rows += batch.num_rows
        assert rows == len(lengths)


@pytest.mark.parametrize("positions", [None, [0, 8_190]], ids=["all rows", "some rows"])
def test_a_stripe_of_an_orc_file_is_decoded_in_pieces(tmp_path: Path, positions: list[int] | None) -> None:
    rows, length = 8_192, 16_384
    held = pa.table({"k": range(rows), "v": ["abc"[row % 3] * length for row in range(rows)]})
    orc.write_table(held, tmp_path / "f.orc", compression="zstd", dictionary_key_size_threshold=1.0)
    size = (tmp_path / "f.orc").stat().st_size
    assert (size < MIB, orc.ORCFile(tmp_path / "f.orc").nstripes) == (True, 1)
    schema = Schema(NestedField(1, "k", LongType()), NestedField(2, "v", StringType()))
    mapping = json.dumps([{"field-id": 1, "names": ["k"]}, {"field-id": 2, "names": ["v"]}])
    file = DataFileDescription(
        *(0, str(tmp_path / "f.orc"), size, rows, schema.model_dump_json()),
        file_format="ORC",
        name_mapping_json=mapping,
    )
    wanted = None if positions is None else np.array(positions)
    found = list[tuple[int, str]]()
    for batch in read_data_file(file, ["k", "v", POSITION_COLUMN], None, wanted):
        assert batch.nbytes <= 1.1 * BATCH_BYTES
        assert batch["k"].equals(batch[POSITION_COLUMN])
        found += zip(batch["k"].to_pylist(), (text[0] for text in batch["v"].to_pylist()), strict=True)
    assert found == [(row, "abc"[row % 3]) for row in (range(rows) if positions is None else positions)]


@pytest.mark.parametrize("positions", [None, [5, 70_000, 199_999]], ids=["all rows", "some rows"])
@pytest.mark.parametrize("columns", [["k", "new"], ["new"]], ids=["with others", "alone"])
@pytest.mark.parametrize("is_partition", [True, False], ids=["partition value", "initial default"])
def test_a_long_value_that_the_file_does_not_hold_is_repeated_in_pieces(
    tmp_path: Path, columns: list[str], positions: list[int] | None, *, is_partition: bool
) -> None:
    """17,000 bytes are more than a batch of Arrow holds 131,072 times."""
    value, rows = "d" * 17_000, 200_000
    constants = ((2, value),) if is_partition else ()
    new = NestedField(2, "new", StringType(), initial_default="" if is_partition else value)
    schema = Schema(NestedField(1, "k", LongType()), new)
    held = arrow_schema(Schema(schema.fields[0]))
    pq.write_table(pa.table([np.arange(rows)], schema=held), tmp_path / "f")
    size = (tmp_path / "f").stat().st_size
    file = DataFileDescription(0, str(tmp_path / "f"), size, rows, schema.model_dump_json(), constants=constants)
    wanted = None if positions is None else np.array(positions)
    count = 0
    for batch in read_data_file(file, columns, None, wanted):
        assert batch.nbytes <= 1.1 * BATCH_BYTES
        assert batch["new"][0].as_py() == value
        assert "k" not in columns or batch["k"][0].as_py() == (count if positions is None else positions[count])
        count += batch.num_rows
    assert count == (rows if positions is None else len(positions))


KEYS = (BoundKey(target="k", source="k", type=KeyType(KeyFamily.INTEGER)),)
CHANGES = pa.schema([("k", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("w", pa.binary())])
#: Ties of the sequence are told apart by what the rows hold.
RULE = SortRule(
    KEYS,
    "seq",
    {
        "k": KeyType(KeyFamily.INTEGER),
        "seq": KeyType(KeyFamily.INTEGER),
        "v": KeyType(KeyFamily.STRING),
        "w": KeyType(KeyFamily.BINARY),
    },
    RepeatedKeys.EACH,
)
changes = st.lists(
    st.tuples(
        st.none() | st.integers(0, 4),
        st.none() | st.integers(0, 1),
        st.none() | st.sampled_from(["", "a", LONG, LONG + "!", "b" * 2_000]),
        st.none() | st.sampled_from([b"", b"\xff" * 2_000, b"\xff" * 2_001]),
    ),
    max_size=20,
)


def _plain(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([pa.field(one.name, CHANGES.field(one.name).type) for one in rows.schema]))


@settings(deadline=None)
@given(changes, st.integers(1, 5))
def test_changes_with_long_texts_in_dictionaries_are_sorted_as_others(given_rows: list[Any], step: int) -> None:
    rows = pa.Table.from_pylist([dict(zip(CHANGES.names, row, strict=True)) for row in given_rows], schema=CHANGES)
    parts = pa.Table.from_batches(rows.to_batches(max_chunksize=step), schema=CHANGES)
    packed = packed_rows(parts, KEYS)
    assert _plain(packed) == rows
    found, expected = last_changes(packed, RULE), last_changes(rows, RULE)
    assert _plain(found.rows) == expected.rows
    assert (found.keyed, found.others) == (expected.keyed, expected.others)


def test_rows_that_come_with_dictionaries_of_their_own_share_one() -> None:
    """Each batch has all texts, of 2 MiB: 200 MiB of dictionaries."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    held, values = PackedRows(schema, KEYS), [chr(97 + at) * 65_536 for at in range(26)] + [None]
    for number in range(100):
        batch = {"k": range(27 * number, 27 * number + 27), "v": values}
        held.add(pa.RecordBatch.from_pydict(batch, schema=schema))
        assert held.nbytes < 96 * MIB
    rows = held.table()
    assert rows["k"].to_pylist() == list(range(2_700))
    assert rows["v"].combine_chunks().indices.to_pylist() == [*range(26), None] * 100


def test_rows_of_batches_that_are_one_buffer_each_do_not_keep_the_texts() -> None:
    """As Spark sends batches: all columns of one lie in one piece of memory."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("u", pa.uuid()), ("s", pa.string())])
    texts = {"v": ["a" * 65_536] * 64, "u": [bytes(16)] * 64, "s": ["short"] * 64}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for number in range(32):
            keys = range(64 * number, 64 * number + 64)
            stream.write_batch(pa.RecordBatch.from_pydict({"k": keys, **texts}, schema=schema))
    sent = io.BytesIO(sink.getvalue())
    held = PackedRows(schema, KEYS)
    tracemalloc.start()  # a batch from a stream of Python is an object of Python's
    try:
        for batch in pa.ipc.open_stream(sent):
            held.add(batch)
        del batch
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 16 * MIB, "of 128 MiB"
    rows = held.table()
    assert rows["k"].to_pylist() == list(range(2_048))
    assert (
        rows.cast(schema).slice(0, 64).drop_columns("k").to_pydict()
        == pa.table({name: pa.array(values, schema.field(name).type) for name, values in texts.items()}).to_pydict()
    )


def test_a_slice_of_repeated_long_texts_takes_little_memory_and_gives_its_rows(tmp_path: Path) -> None:
    rows = 150_000
    codes = pa.array(np.arange(rows, dtype=np.int32) % 3)
    long = pa.DictionaryArray.from_arrays(codes, [letter * 16_384 for letter in "abc"])
    given_rows = pa.table(
        {"k": np.arange(rows), "seq": np.zeros(rows, np.int64), "v": long, "w": pa.nulls(rows, pa.binary())}
    )
    before = pa.total_allocated_bytes()
    one = write_slice(given_rows, RULE, str(tmp_path / "slice.parquet"))
    reader = ChangeReader([one], CHANGES.names)
    found = reader.read([SlicePart(0, 0, 100), SlicePart(0, 65_500, 65_600), SlicePart(0, 131_000, rows)])
    keys = [*range(100), *range(65_500, 65_600), *range(131_000, rows)]
    assert found["k"].to_pylist() == keys
    picked = found["v"].take(pa.array([0, 150, 250, len(keys) - 1])).to_pylist()
    assert [text[0] for text in picked] == ["abc"[keys[at] % 3] for at in (0, 150, 250, len(keys) - 1)]
    assert pa.total_allocated_bytes() - before < 64 * MIB


RUNS = [
    "load, Parquet",
    "merge, all rows get a long text",
    "change feed, Dms in Parquet",
    "merge, merge-on-read, a third of the rows gets a long text",
    "merge, copy-on-write, deletes",
    "merge, copy-on-write, deletes, long texts in the middle of a row group",
    "merge, copy-on-write, updates",
    "merge, merge-on-read",
    "compaction",
    "reindex, including the column",
    "read",
]


def _took(root: Path, kind: str, held: Texts) -> int:
    """Bytes that a process took which ran ``kind``."""
    root.mkdir()
    prepare(root, kind, held)
    command = [sys.executable, "-m", "tests.bench.memory_runs", str(root), kind, OURS]
    ended = subprocess.run(command, check=True, timeout=800, capture_output=True, text=True)
    return int(json.loads(ended.stdout.splitlines()[-1])["peak"])


def runs() -> list[Any]:
    """The kinds of run; those that only a soak takes are marked."""
    now = {RUNS[(turn(len(RUNS)) + step) % len(RUNS)] for step in (0, 3)}
    return [pytest.param(kind, marks=[] if kind in now else [pytest.mark.soak]) for kind in RUNS]


@pytest.mark.parametrize("kind", runs())
def test_a_run_over_a_gibibyte_of_repeated_texts_takes_no_more_than_the_goal(tmp_path: Path, kind: str) -> None:
    empty = _took(tmp_path / "empty", kind, Texts(length=16, rows=200))
    found = _took(tmp_path / "long", kind, Texts(length=16_384, rows=65_536))
    print(f"{kind}: {(found - empty) // MIB} MiB more than an empty run")
    assert found - empty < GOAL

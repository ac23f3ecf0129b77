"""Texts whose pages or dictionaries are large are read a few at a time: the same rows, and little memory."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.tables.parquetfiles import DamagedFileError, WholeFile

from tests.examples import cases

MIB = 1024 * 1024
#: Bytes that a test decodes at once: most pages are larger.
FEW_BYTES = 4096
VALUES = st.none() | st.tuples(st.integers(0, 7), st.integers(0, 6000)).map(lambda pair: "abcdefgä"[pair[0]] * pair[1])
OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "zstd", "gzip", "brotli", "snappy", "lz4"]),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([1, 10_000, 1 << 30]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "write_batch_size": st.sampled_from([1, 7, 1024]),
        "data_page_size": st.sampled_from([1, 20_000, 1 << 30]),
        "row_group_size": st.sampled_from([9, 1024]),
        "write_page_checksum": st.booleans(),
        "store_schema": st.booleans(),
    }
)
KINDS = st.sampled_from([pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])


def written(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def batches(content: bytes, columns: list[str], nbytes: int = FEW_BYTES) -> list[pa.RecordBatch]:
    return list(WholeFile(io.BytesIO(content)).batches(columns, nbytes=nbytes))


@given(st.data(), OPTIONS, KINDS)
@settings(max_examples=cases(120, 3000))
def test_rows_are_those_that_were_written(data: st.DataObject, options: dict[str, Any], kind: pa.DataType) -> None:
    texts = data.draw(st.lists(VALUES, min_size=1, max_size=40))
    others = data.draw(st.lists(VALUES, min_size=len(texts), max_size=len(texts)))
    values = [text.encode() if text is not None and kind == pa.binary() else text for text in texts]
    optional = pa.field("text", kind, nullable=None in texts)
    schema = pa.schema([pa.field("k", pa.int64()), optional, pa.field("other", pa.string())])
    rows = pa.table([pa.array(range(len(texts))), pa.array(values, kind), pa.array(others)], schema=schema)
    content = written(rows, **options)
    columns = data.draw(st.permutations(["k", "text", "other"]))[: data.draw(st.integers(1, 3))]
    found = batches(content, columns)
    assert [batch.schema.names for batch in found] == [columns] * len(found)
    expected = {"k": list(range(len(texts))), "text": values, "other": others}
    for name in columns:
        assert [value for batch in found for value in batch[name].to_pylist()] == expected[name]


def long_rows(count: int, length: int) -> pa.Table:
    return pa.table({"k": range(count), "text": [f"{number:08d}".ljust(length, "x") for number in range(count)]})


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("codec", ["zstd", "gzip", "none"])
def test_a_page_of_many_long_values_takes_little_memory(codec: str, *, use_dictionary: bool, tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    rows = long_rows(128, MIB)
    pq.write_table(rows, path, compression=codec, use_dictionary=use_dictionary)
    expected = [text[:8] for text in rows["text"].to_pylist()]
    del rows
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        with path.open("rb") as opened:
            found = WholeFile(opened).batches(["k", "text"], nbytes=4 * MIB)
            texts = [text[:8] for batch in found for text in batch["text"].to_pylist()]
    finally:
        pa.set_memory_pool(usual)
    assert texts == expected
    assert counting.max_memory() < 24 * MIB, "the page has 128 MiB"


def test_values_behind_a_dictionary_do_not_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "given-up.parquet"
    # a dictionary of 1 MiB, and 127 MiB of values behind it
    pq.write_table(long_rows(8 * 1024, 16 * 1024), path, compression="zstd", write_batch_size=64)
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        count = sum(batch.num_rows for batch in WholeFile(str(path)).batches(["k", "text"], nbytes=8 * MIB))
    finally:
        pa.set_memory_pool(usual)
    assert count == 8 * 1024
    assert counting.max_memory() < 48 * MIB, "all values have 128 MiB"


@given(st.data(), st.sampled_from(["zstd", "snappy", "none"]), st.booleans())
@settings(max_examples=cases(60, 1000))
def test_a_changed_byte_of_a_page_is_found(data: st.DataObject, codec: str, use_dictionary: bool) -> None:
    content = bytearray(written(long_rows(20, 3000), compression=codec, use_dictionary=use_dictionary,
                                write_page_checksum=True))  # fmt: skip
    chunk = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(1)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    at = data.draw(st.integers(begin, begin + chunk.total_compressed_size - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = [value for batch in batches(bytes(content), ["text"]) for value in batch["text"].to_pylist()]
    except (DamagedFileError, OSError):
        return
    assert found == long_rows(20, 3000)["text"].to_pylist(), "a bit of the header that means nothing"


PAGED = {"use_dictionary": False, "write_batch_size": 5, "data_page_size": 1, "max_rows_per_page": 5}


@given(st.data(), st.sampled_from(["zstd", "snappy", "gzip", "brotli", "none"]))
@settings(max_examples=cases(60, 1000))
def test_damage_is_told_as_damage(data: st.DataObject, codec: str) -> None:
    """What no codec unpacks is not a storage that fails. Without checksums a changed byte may be one of a value."""
    random = Random(1)
    rows = pa.table({"k": range(20), "text": [random.randbytes(4500).hex() for _ in range(20)]})
    options = {"use_dictionary": data.draw(st.booleans()), "write_statistics": False}
    content = bytearray(written(rows, compression=codec, **options))
    chunk = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(1)
    begin, size = chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size
    at = begin + size // 10 + data.draw(st.integers(0, size // 2))  # in the first page, behind its header
    if data.draw(st.booleans()):
        content[at : at + size // 10] = bytes(size // 10)
    else:
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(DamagedFileError):
        batches(bytes(content), data.draw(st.permutations(["k", "text"])))


@pytest.mark.parametrize("column", [0, 1])
def test_a_column_that_ends_before_the_others_is_told(column: int) -> None:
    """A bit makes a page of data one of another kind, which is passed by."""
    content = bytearray(written(long_rows(20, 9000), compression="none", **PAGED))
    page = pq.read_metadata(io.BytesIO(content)).row_group(0).column(column).data_page_offset
    assert content[page : page + 2] == b"\x15\x00"
    content[page + 1] ^= 2
    with pytest.raises(DamagedFileError):
        batches(bytes(content), ["k", "text"])


class Failing(io.BytesIO):
    """Answers no longer when ``left`` bytes were read."""

    left = 1 << 30

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.left -= len(found)
        if self.left < 0:
            raise ConnectionError("the storage is away")
        return found


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_a_storage_that_fails_is_not_damage(codec: str) -> None:
    opened = Failing(written(long_rows(20, 90_000), compression=codec, use_dictionary=False))
    found = WholeFile(opened).batches(["text"], nbytes=FEW_BYTES)
    first = next(found) if codec == "none" else None
    opened.left = 0
    with pytest.raises(ConnectionError, match="the storage is away"):
        list(found)
    assert first is None or first.num_rows


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "uncompressed"])
def test_files_of_another_writer_are_read(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    text = "case when i % 7 = 0 then null else repeat(chr(97 + (i % 26)::int), 5000 + i::int) end"
    rows = f"select i as k, {text} as text from range(300) rows(i)"
    duckdb.sql(f"copy ({rows}) to '{path}' (format parquet, codec '{codec}')")
    found = batches(path.read_bytes(), ["text", "k"])
    expected = duckdb.sql(f"select text, k from '{path}' order by k").fetchall()
    assert [(row["text"], row["k"]) for batch in found for row in batch.to_pylist()] == expected

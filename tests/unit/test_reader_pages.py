"""Rows read by their pages are those that Arrow reads from the whole file, whatever it holds."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestamptzType
from skipstone.files import pages
from skipstone.files.pages import PageReader
from skipstone.files.reader import DataFileDescription, Positions, read_data_file
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.parquetfiles import BATCH_BYTES, DamagedFileError
from skipstone_core.errors import BadData

from tests.examples import cases

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int": (pa.int32(), st.integers(0, 3)),
    "bool": (pa.bool_(), st.booleans()),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "money": (pa.decimal128(9, 2), st.integers(-(10**8), 10**8).map(lambda cents: Decimal(cents).scaleb(-2))),
    "wide": (pa.decimal128(30, 2), st.integers(-(10**28), 10**28).map(lambda cents: Decimal(cents).scaleb(-2))),
    "day": (pa.date32(), st.dates()),
    "local": (pa.timestamp("us"), st.datetimes()),
    "moment": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), st.none()),
}
FLAT = [name for name in COLUMNS if name not in ("list", "struct")]
OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "zstd", "snappy", "gzip"]),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([40, 1 << 20]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "max_rows_per_page": st.integers(1, 40),
        "row_group_size": st.integers(20, 200),
        "write_page_checksum": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
    }
)


@pytest.fixture(autouse=True)
def always_worth_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files, too."""
    monkeypatch.setattr(pages, "_WORTH_ROWS", 0)
    monkeypatch.setattr(pages, "_WORTH_FOOTER", 0)


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    # many values at once would decide the size of pages
    pq.write_table(table, sink, write_page_index=True, write_batch_size=1, **options)
    return sink.getvalue()


def read(file: bytes, columns: Sequence[str], group: int, rows: Sequence[int]) -> pa.RecordBatch | None:
    return reader(pa.BufferReader(file)).read(group, columns, np.array(rows, dtype=np.int64))


def reader(source: Any) -> PageReader:
    """Of a file that was not read before."""
    metadata = pq.read_metadata(source)
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return PageReader(source, uuid.uuid4().hex, source.seek(0, io.SEEK_END), counts)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Some columns of some rows; many rows repeat few values, as in real tables."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(1, 300))
    found = {}
    for name in names:
        kind, values = COLUMNS[name]
        pool = draw(st.lists(st.none() | values, min_size=1, max_size=12))
        order = np.random.default_rng(draw(st.integers(0, 99))).integers(0, len(pool), count)
        found[name] = pa.array([pool[number] for number in order], kind)
    return pa.table(found)


@settings(max_examples=cases(60, 300), deadline=None)
@given(
    table=tables(),
    options=OPTIONS,
    seed=st.integers(0, 2**32),
    share=st.floats(0, 1),
    at_once=st.sampled_from([1, BATCH_BYTES]),
)
def test_rows_are_those_of_the_whole_file(
    table: pa.Table, options: dict[str, Any], seed: int, share: float, at_once: int
) -> None:
    """``at_once``: more bytes than that of texts in a dictionary are not decoded at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "BATCH_BYTES", at_once)
        _require_rows(table, options, seed, share)


def _require_rows(table: pa.Table, options: dict[str, Any], seed: int, share: float) -> None:
    file = written(table, **options)
    parquet = pq.ParquetFile(io.BytesIO(file))
    chance = np.random.default_rng(seed)
    flat = [name for name in table.column_names if name in FLAT]
    for group in range(parquet.num_row_groups):
        whole = parquet.read_row_group(group, columns=flat)
        rows = np.flatnonzero(chance.random(whole.num_rows) < share) if flat else []
        if len(rows):
            found = read(file, flat, group, rows)
            assert found is not None
            expected = whole.take(pa.array(rows))
            assert pa.Table.from_batches([found]).cast(expected.schema).equals(expected)


@pytest.mark.parametrize("positions", [None, np.array([0, 2])], ids=["whole", "by pages"])
def test_old_timestamps_keep_their_full_range(tmp_path: Path, positions: Positions | None) -> None:
    """Those that Spark and Impala wrote as INT96, which tables that were migrated to Iceberg hold."""
    schema = Schema(NestedField(1, "v", TimestamptzType()))
    moments = [datetime(year, 1, 2, 3, 4, 5, 6, tzinfo=UTC) for year in (1, 2013, 9999)]
    path = tmp_path / "old.parquet"
    path.write_bytes(written(pa.table([moments], arrow_schema(schema)), use_deprecated_int96_timestamps=True))
    file = DataFileDescription(
        file_id=0, path=str(path), size=path.stat().st_size, records=3, schema_json=schema.model_dump_json()
    )
    found = [value for batch in read_data_file(file, ["v"], positions=positions) for value in batch["v"].to_pylist()]
    assert found == (moments if positions is None else [moments[0], moments[2]])


def test_a_page_that_arrow_passes_by_loses_no_rows(tmp_path: Path) -> None:
    """One bit makes a page of data one of another kind."""
    schema = Schema(NestedField(1, "v", TimestamptzType()))
    moments = [datetime(2013, 1, 1 + day, tzinfo=UTC) for day in range(20)]
    content = bytearray(
        written(
            pa.table([moments], arrow_schema(schema)), use_dictionary=False, compression="none", max_rows_per_page=5
        )
    )
    page = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0).data_page_offset
    assert content[page : page + 2] == b"\x15\x00"
    content[page + 1] ^= 2
    path = tmp_path / "damaged.parquet"
    path.write_bytes(content)
    file = DataFileDescription(
        file_id=0, path=str(path), size=len(content), records=20, schema_json=schema.model_dump_json()
    )
    with pytest.raises(
        BadData, match=r"damaged\.parquet is damaged: 15 of 20 rows of row group 0 can be read\. Restore"
    ):
        list(read_data_file(file, ["v"]))


def rows_of(count: int) -> pa.Table:
    days = [datetime(2020, 1, 1 + number % 28, tzinfo=UTC) for number in range(count)]
    return pa.table({"k": range(count), "day": [date(one.year, one.month, one.day) for one in days]})


def test_only_the_pages_of_the_rows_are_read() -> None:
    file = written(rows_of(100_000), compression="none", use_dictionary=False, max_rows_per_page=1_000)
    fetched = []

    class Counting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            fetched.append(len(found))
            return found

    opened = reader(Counting(file))
    fetched.clear()
    found = opened.read(0, ["k"], np.array([5, 50_000, 50_001, 99_999]))
    assert found is not None
    assert found.column("k").to_pylist() == [5, 50_000, 50_001, 99_999]
    assert sum(fetched) < len(file) / 10


def test_files_without_page_index_and_nested_columns_are_left_to_others() -> None:
    plain = io.BytesIO()
    pq.write_table(rows_of(10), plain)
    assert read(plain.getvalue(), ["k"], 0, [1]) is None
    nested = written(pa.table({"list": [[1], [2, 3]], "struct": [{"a": 1, "b": ["x"]}, None], "k": [1, 2]}))
    assert read(nested, ["list", "k"], 0, [1]) is None
    assert read(nested, ["struct"], 0, [1]) is None
    found = read(nested, ["k"], 0, [1])
    assert found is not None
    assert found.to_pydict() == {"k": [2]}


def test_what_saves_little_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert read(written(rows_of(8_000), max_rows_per_page=100), ["k"], 0, [1]) is None
    large = written(rows_of(25_000), max_rows_per_page=100)
    assert read(large, ["k", "day"], 0, range(0, 25_000, 100)) is None
    assert read(large, ["k"], 0, [1]) is None
    opened = reader(pa.BufferReader(large))
    assert opened.read(0, ["k", "day"], np.array([1])) is not None
    assert opened.read(0, ["k"], np.array([1])) is not None, "where its pages are is known by now"


def test_where_each_page_is_a_request_more_has_to_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    class Remote(io.BytesIO):
        """A file of an object store, as far as its reader sees that."""

        def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
            """Nothing: all of it is here."""

    for rows, is_read in ((50_000, False), (90_000, True)):
        file = written(rows_of(rows), max_rows_per_page=100)
        assert (reader(Remote(file)).read(0, ["k", "day"], np.array([1])) is not None) == is_read
        assert reader(io.BytesIO(file)).read(0, ["k", "day"], np.array([1])) is not None


@pytest.mark.parametrize(
    "content", [b"\0", b"\x15", b"\x19", b"\x1c", b"\xff", b"\x19\xf8\xff\x7f\0", b"\x19\xf9\x0f\x09"]
)
def test_a_damaged_page_index_is_left_to_others(content: bytes) -> None:
    file = bytearray(written(rows_of(10_000), compression="none", max_rows_per_page=10))
    columns = [pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0).column(at) for at in (0, 1)]
    begin = max(one.data_page_offset for one in columns) + columns[-1].total_compressed_size
    end = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    file[begin:end] = (content * (end - begin))[: end - begin]
    assert read(bytes(file), ["k", "day"], 0, [1, 500]) is None


@pytest.mark.parametrize("head", [b"\x19\x28\x01a\x01b\0", b"\x19\x29\x15\x02\x15\x04\0", b"\x19\x25\x02\x04\0"])
def test_an_offset_index_of_other_things_than_pages_is_left_to_others(head: bytes) -> None:
    file = bytearray(written(rows_of(1_000), compression="none", use_dictionary=False, max_rows_per_page=100))
    index = bytes(file).rfind(b"\x19\xac\x16\x08")
    assert index > 0, "an offset index of ten pages begins so, the first page behind the magic or not"
    file[index : index + len(head)] = head
    assert read(bytes(file), ["k", "day"], 0, [1, 500]) is None


def test_a_damaged_page_is_an_error() -> None:
    file = bytearray(written(rows_of(1_000), compression="none", use_dictionary=False, write_page_checksum=True))
    at = bytes(file).find((500).to_bytes(8, "little"))
    file[at] ^= 1
    with pytest.raises(DamagedFileError, match="CRC"):
        read(bytes(file), ["k"], 0, [500])


def test_a_file_that_is_no_parquet_or_cut_short_is_left_to_others() -> None:
    file = written(rows_of(1_000))
    for damaged in (b"", b"no parquet", file[:-20], file[-40:], file[:-8] + b"\xff" * 4 + b"PAR1"):
        opened = PageReader(pa.BufferReader(damaged), uuid.uuid4().hex, len(damaged), [1_000])
        assert opened.read(0, ["k"], np.array([1])) is None

"""Files of ours with a flipped bit anywhere: they give the rows that were written, or an error, never other rows."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from skipstone.files.parquet import ParquetFile
from skipstone.files.splicing import ChunkSource, SplicedFile, SplicedLayout
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.parquetfiles import DamagedFileError, WholeFile, read_metadata

SCHEMA = Schema(
    NestedField(1, "k0", LongType()), NestedField(2, "k1", StringType()), NestedField(3, "file_id", IntegerType())
)
#: As files of an index are written.
OPTIONS = {
    "compression": "zstd",
    "column_encoding": {"k0": "DELTA_BINARY_PACKED"},
    "use_dictionary": ["k1", "file_id"],
}
ROWS = pa.table(
    [sorted(i * 7 % 50 for i in range(60)), [f"t{i % 9}" if i % 5 else None for i in range(60)], [1, 2, 3] * 20],
    arrow_schema(SCHEMA),
)


def written(path: Path) -> bytes:
    file = ParquetFile(PyArrowFileIO(), str(path), SCHEMA, OPTIONS)
    file.append(ROWS, 20)
    file.close({})
    return path.read_bytes()


def footer_of(file: bytes) -> int:
    """Where the footer begins."""
    return len(file) - 8 - int.from_bytes(file[-8:-4], "little")


def rows_of(file: bytes) -> pa.Table:
    return pa.Table.from_batches(list(WholeFile(pa.BufferReader(file)).batches(ROWS.column_names)))


def test_no_flipped_bit_gives_other_rows_or_another_footer(tmp_path: Path) -> None:
    """Bounds of row groups are in the footer: with other bounds, a look-up would pass by entries."""
    file = written(tmp_path / "a.parquet")
    sound, unseen, footer = read_metadata(pa.BufferReader(file)), 0, footer_of(file)
    places = [*range(0, footer - 20, 7), *range(footer - 20, len(file))]  # all of the seal and the footer
    for at in places:
        flipped = bytearray(file)
        flipped[at] ^= 1 << at % 8
        try:
            assert rows_of(bytes(flipped)).equals(ROWS), at
        except (OSError, pa.ArrowException):
            continue
        unseen += 1
        assert read_metadata(pa.BufferReader(bytes(flipped))).equals(sound), at
        assert at < footer, at
    assert 0 < unseen < len(places) / 2  # page indexes, which nobody reads here, and statistics in headers


def test_a_footer_that_was_changed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    file = bytearray(written(path))
    file[footer_of(file) + 20] ^= 1
    path.write_bytes(file)
    for read in (read_metadata, WholeFile):
        with pytest.raises(DamagedFileError, match="the footer is not the one that was written"):
            read(str(path))


def test_a_footer_of_another_length_is_told_before_arrow_reads_it(tmp_path: Path) -> None:
    """Arrow would read from the middle of the footer, or pages as one."""
    file = written(tmp_path / "a.parquet")
    for bit in range(17):
        flipped = bytearray(file)
        flipped[len(file) - 8 + bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFileError, match="the length of the footer is not the one that was written"):
            read_metadata(pa.BufferReader(bytes(flipped)))


def test_other_readers_pass_the_seal_by(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    written(path)
    assert pq.read_table(path).select(ROWS.column_names).to_pydict() == ROWS.to_pydict()
    found = duckdb.sql(f"select k0, k1, file_id from '{path}'").to_arrow_table()
    assert found.to_pydict() == ROWS.to_pydict()


def test_a_file_that_is_put_together_is_sealed_too(tmp_path: Path) -> None:
    source, path = tmp_path / "a.parquet", tmp_path / "b.parquet"
    written(source)
    spliced = SplicedFile(PyArrowFileIO(), str(path), SplicedLayout(SCHEMA, OPTIONS))
    with source.open("rb") as opened:
        spliced.copy(ChunkSource(opened), 1)
    spliced.append(spliced.encode(ROWS))
    spliced.close({})
    file = bytearray(path.read_bytes())
    assert rows_of(bytes(file)).num_rows == 80
    file[footer_of(file) + 20] ^= 1
    with pytest.raises(DamagedFileError, match="the footer"):
        rows_of(bytes(file))


@pytest.mark.parametrize("text", [0, 70_000], ids=["small footer", "large footer"])
def test_files_of_others_need_no_seal(text: int) -> None:
    sink = pa.BufferOutputStream()
    rows = pa.table({"v": [1, 2]}).replace_schema_metadata({"text": "SKIPSEAL" + "x" * text})
    pq.write_table(rows, sink)
    assert WholeFile(pa.BufferReader(sink.getvalue())).read(["v"]).column("v").to_pylist() == [1, 2]

"""Files that lost a page, or hold other bytes than were written, give an error that names them, never fewer rows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap
from skipstone.files.parquet import ParquetFile
from skipstone.files.positions import write_deletes
from skipstone.files.reader import DataFileDescription, DeleteDescription, read_data_file
from skipstone.files.writer import WriteSpec
from skipstone.tables.arrow import arrow_schema
from skipstone_core.errors import BadData

from tests.pages import lose_page

SCHEMA = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
ROWS = 20


def write(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path, use_dictionary=False, max_rows_per_page=5, write_batch_size=1)
    return path


def described(path: Path, *deletes: DeleteDescription) -> DataFileDescription:
    return DataFileDescription(
        file_id=0,
        path=str(path),
        size=path.stat().st_size,
        records=ROWS,
        schema_json=SCHEMA.model_dump_json(),
        deletes=deletes,
    )


def data_file(folder: Path) -> Path:
    return write(folder / "data.parquet", pa.table([range(ROWS), range(100, 100 + ROWS)], arrow_schema(SCHEMA)))


def values(file: DataFileDescription, columns: Sequence[str], positions: Sequence[int] | None = None) -> list[object]:
    rows = None if positions is None else np.array(positions)
    return [row for batch in read_data_file(file, columns, positions=rows) for row in batch.to_pylist()]


@pytest.mark.parametrize("column", ["a", "b"])
@pytest.mark.parametrize("positions", [None, [0], [12]])
def test_rows_are_not_mixed_when_one_column_lost_a_page(
    tmp_path: Path, column: str, positions: list[int] | None
) -> None:
    path = data_file(tmp_path)
    lose_page(path, column)
    with pytest.raises(BadData, match=r"data\.parquet is damaged: .* Restore it from a copy"):
        values(described(path), ["a", "b"], positions)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_position_delete_that_lost_a_page_deletes_no_fewer_rows(tmp_path: Path, is_own: bool) -> None:
    path = data_file(tmp_path)
    deletes = pa.table([[str(path)] * 10, range(10)], DELETES)
    delete = write(tmp_path / "deletes.parquet", deletes)
    file = described(path, DeleteDescription(str(delete), 1, "PARQUET", is_own=is_own))
    lose_page(delete, "pos")
    with pytest.raises(BadData, match=r"deletes\.parquet is damaged: .* Restore it from a copy"):
        values(file, ["a"])


def test_an_equality_delete_that_lost_a_page_deletes_no_fewer_rows(tmp_path: Path) -> None:
    path = data_file(tmp_path)
    delete = write(tmp_path / "deletes.parquet", pa.table([range(10)], arrow_schema(Schema(SCHEMA.fields[0]))))
    lose_page(delete, "a")
    with pytest.raises(BadData, match=r"deletes\.parquet is damaged: .* Restore it from a copy"):
        values(described(path, DeleteDescription(str(delete), 2, "PARQUET", (1,), (LongType(),))), ["b"])


def write_vector(path: Path, data_path: Path, deleted: Sequence[int]) -> bytes:
    """A Puffin file of one deletion vector, as the specification has it; gives the vector's bitmap."""
    bitmap = BitMap(deleted).serialize()
    checked = b"\xd1\xd3\x39\x64" + (1).to_bytes(8, "little") + (0).to_bytes(4, "little") + bitmap
    blob = len(checked).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")
    properties = {"referenced-data-file": str(data_path), "cardinality": str(len(deleted))}
    told = {"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1,
            "offset": 4, "length": len(blob), "properties": properties}  # fmt: skip
    footer = json.dumps({"blobs": [told], "properties": {}}).encode()
    magic = b"PFA1"
    path.write_bytes(magic + blob + magic + footer + len(footer).to_bytes(4, "little") + bytes(4) + magic)
    return bitmap


def test_a_deletion_vector_is_the_one_that_was_written(tmp_path: Path) -> None:
    path, vector = data_file(tmp_path), tmp_path / "vector.puffin"
    bitmap = write_vector(vector, path, [1, 3])
    file = described(path, DeleteDescription(str(vector), 1, "PUFFIN", is_own=True))
    assert values(file, ["a"], [0, 1, 2, 3, 4]) == [{"a": 0}, {"a": 2}, {"a": 4}]
    content = bytearray(vector.read_bytes())
    content[bytes(content).find(bitmap) + len(bitmap) - 2] ^= 4
    vector.write_bytes(content)
    with pytest.raises(BadData, match=r"vector\.puffin is damaged: .* Restore it from a copy"):
        values(file, ["a"])


def test_a_footer_of_ours_with_a_flipped_bit_is_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    ours = ParquetFile(PyArrowFileIO(), str(path), SCHEMA, {})
    ours.append(pa.table([range(ROWS), range(100, 100 + ROWS)], arrow_schema(SCHEMA)), ROWS)
    ours.close({})
    assert len(values(described(path), ["a"])) == ROWS
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path = tmp_path / "other.parquet"  # footers are kept by path
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"other\.parquet is damaged: the footer .* Restore it from a copy"):
        values(described(path), ["a"])


def test_a_delete_file_of_ours_with_a_flipped_bit_in_its_footer_is_told(tmp_path: Path) -> None:
    file = described(data_file(tmp_path))
    places = {"schema_json": file.schema_json, "spec_json": "", "sort_json": "", "location": "", "run_id": ""}
    spec = WriteSpec(**places, target_file_bytes=0, row_group_bytes=0, row_group_rows=0, codec="zstd")
    path = tmp_path / "deletes.parquet"
    written = write_deletes(spec, str(path), file, np.arange(10))
    assert written.size == path.stat().st_size
    delete = DeleteDescription(str(path), 1, "PARQUET", is_own=True)
    assert len(values(replace(file, deletes=(delete,)), ["a"])) == ROWS - 10
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    other = tmp_path / "other.parquet"  # positions are kept by path
    other.write_bytes(content)
    with pytest.raises(BadData, match=r"the delete file .*other\.parquet is damaged: the footer is not the one"):
        values(replace(file, deletes=(replace(delete, path=str(other)),)), ["a"])


def test_an_orc_file_with_a_flipped_bit_gives_all_rows_or_an_error(tmp_path: Path) -> None:
    """ORC has no checksums: only the rows can be counted."""
    path = tmp_path / "data.orc"
    orc.write_table(pa.table({"a": range(1_000), "b": range(1_000)}), path, compression="zstd")
    mapping = '[{"field-id": 1, "names": ["a"]}, {"field-id": 2, "names": ["b"]}]'
    file = replace(described(path), file_format="ORC", records=1_000, name_mapping_json=mapping)
    sound, errors = path.read_bytes(), 0
    for at in range(0, len(sound), 3):
        flipped = bytearray(sound)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        try:
            assert sum(batch.num_rows for batch in read_data_file(file, ["a"])) == 1_000, at
        except (OSError, pa.ArrowException, BadData, ValueError):  # a column may have lost its name
            errors += 1
    assert 0 < errors < len(sound) / 3

"""Files that lost a page, or hold other bytes than were written, give an error that names them, never fewer rows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap
from skipstone.files.reader import DataFileDescription, DeleteDescription, read_data_file
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
        values(described(path, DeleteDescription(str(delete), 2, "PARQUET", (1,))), ["b"])


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

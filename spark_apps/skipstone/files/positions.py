"""Position delete files: which rows of a data file are no longer there, written beside it instead of writing it again.

Used by the merge of tables that are merged on read; the driver makes Iceberg delete files of what tasks return. One
file for each data file, so that readers of other files need not open it: of Parquet, and from format version 3 on a
deletion vector in a Puffin file. Must not commit.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterable
from contextlib import closing
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.puffin import MAGIC_BYTES
from pyiceberg.typedef import Record

from skipstone.files.deletions import POSITION_FIELD_ID, REFERENCED_FILE, encode_vector
from skipstone.files.parquet import SealedSink
from skipstone.files.partitions import PartitionTuple
from skipstone.files.reader import DataFileDescription
from skipstone.files.writer import WriteSpec
from skipstone.tables.deletes import PATH_FIELD_ID

_GROUP_ROWS = 128 * 1024
#: Iceberg's reserved field id of the position of a row in its file, as vectors name it.
_POSITION_COLUMN_ID = 2147483645


@dataclass(frozen=True)
class WrittenDeletes:
    """One finished delete file. ``spec_id`` and ``partition`` (internal values) are those of the data file.

    ``first`` and ``last``: the least and the greatest of its ``rows`` positions. ``place``: offset and length of a
    deletion vector in the file; None of a Parquet file.
    """

    path: str
    size: int
    spec_id: int
    partition: PartitionTuple
    data_path: str
    rows: int
    first: int
    last: int
    place: tuple[int, int] | None = None

    def to_row(self) -> bytes:
        """Bytes that a task can return."""
        return pickle.dumps(astuple(self))

    @staticmethod
    def from_row(row: bytes) -> WrittenDeletes:
        """Read what ``to_row`` made; rows come from our own tasks only."""
        return WrittenDeletes(*pickle.loads(row))

    def to_delete_file(self) -> DataFile:
        """As a commit takes it. It names its one data file, in its bounds or by itself, so that readers see which."""
        file = self._parquet() if self.place is None else self._vector(*self.place)
        file.spec_id = self.spec_id
        return file

    def _vector(self, offset: int, length: int) -> DataFile:
        return self._file(
            FileFormat.PUFFIN,
            _table_format_version=3,
            referenced_data_file=self.data_path,
            content_offset=offset,
            content_size_in_bytes=length,
        )

    def _parquet(self) -> DataFile:
        path = self.data_path.encode()
        return self._file(
            FileFormat.PARQUET,
            value_counts={PATH_FIELD_ID: self.rows, POSITION_FIELD_ID: self.rows},
            null_value_counts={PATH_FIELD_ID: 0, POSITION_FIELD_ID: 0},
            lower_bounds={PATH_FIELD_ID: path, POSITION_FIELD_ID: struct.pack("<q", self.first)},
            upper_bounds={PATH_FIELD_ID: path, POSITION_FIELD_ID: struct.pack("<q", self.last)},
            column_sizes=None,
            nan_value_counts=None,
            split_offsets=None,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
        )

    def _file(self, file_format: FileFormat, **more: Any) -> DataFile:
        return DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=self.path,
            file_format=file_format,
            partition=Record(*self.partition),
            record_count=self.rows,
            file_size_in_bytes=self.size,
            **more,
        )


def write_deletes(
    spec: WriteSpec, path: str, file: DataFileDescription, positions: npt.NDArray[np.int64]
) -> WrittenDeletes:
    """Write ``positions`` (of rows of ``file``, ascending, at least one) to ``path``, which must not exist."""
    sink = SealedSink(spec.access.open(path).new_output(path).create(overwrite=False))
    with closing(sink), pq.ParquetWriter(sink, _SCHEMA, **_options(spec)) as writer:
        for start in range(0, len(positions), _GROUP_ROWS):
            part = pa.array(positions[start : start + _GROUP_ROWS], pa.int64())
            writer.write_table(pa.Table.from_arrays([pa.repeat(file.path, len(part)), part], schema=_SCHEMA))
        with sink.end():
            writer.close()
        size = int(sink.tell())
    return WrittenDeletes(
        path=path,
        size=size,
        spec_id=file.spec_id,
        partition=file.partition,
        data_path=file.path,
        rows=len(positions),
        first=int(positions[0]),
        last=int(positions[-1]),
    )


def write_vector(
    spec: WriteSpec, path: str, file: DataFileDescription, positions: npt.NDArray[np.int64]
) -> WrittenDeletes:
    """As ``write_deletes``, as a deletion vector: ``positions`` are all rows of ``file`` that are deleted by position.

    Source: the Puffin specification of Apache Iceberg, blob type ``deletion-vector-v1``.
    """
    blob = encode_vector(positions)
    description = {
        "type": "deletion-vector-v1",
        "fields": [_POSITION_COLUMN_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": len(MAGIC_BYTES),
        "length": len(blob),
        "properties": {REFERENCED_FILE: file.path, "cardinality": str(len(positions))},
    }
    footer = json.dumps({"blobs": [description], "properties": {"created-by": "Skipstone"}}).encode()
    end = struct.pack("<ii", len(footer), 0)
    content = b"".join([MAGIC_BYTES, blob, MAGIC_BYTES, footer, end, MAGIC_BYTES])
    with closing(spec.access.open(path).new_output(path).create(overwrite=False)) as sink:
        sink.write(content)
    return WrittenDeletes(
        path=path,
        size=len(content),
        spec_id=file.spec_id,
        partition=file.partition,
        data_path=file.path,
        rows=len(positions),
        first=int(positions[0]),
        last=int(positions[-1]),
        place=(len(MAGIC_BYTES), len(blob)),
    )


def to_delete_files(rows: Iterable[bytes]) -> list[DataFile]:
    """On the driver: the delete files of the accepted rows."""
    return [WrittenDeletes.from_row(row).to_delete_file() for row in rows]


def _options(spec: WriteSpec) -> dict[str, Any]:
    codec = "none" if spec.codec == "uncompressed" else spec.codec
    return {"compression": codec, "compression_level": spec.codec_level, "write_page_checksum": True}


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})


_SCHEMA = pa.schema([_field("file_path", pa.string(), PATH_FIELD_ID), _field("pos", pa.int64(), POSITION_FIELD_ID)])

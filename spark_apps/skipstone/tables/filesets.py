"""The live data files of one pinned snapshot, column-wise, with the deletes that apply to each.

Called by loads, index builds, merges and the query planner. Reads manifests; never lists directories.
Must not keep one Python object per file and column: 100,000 files are normal.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.snapshots import Pinned

#: Columns of ``FileSet.files``. ``segment``: file sequence number (0 for files written as format v1);
#: ``file_id``: ordinal within this FileSet.
FILES_SCHEMA = pa.schema(
    [
        pa.field("file_id", pa.int32(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("added_snapshot_id", pa.int64(), nullable=False),
        pa.field("data_sequence", pa.int64(), nullable=False),
        pa.field("spec_id", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class ColumnBounds:
    """Bounds of one column, one element per file of the FileSet, in its order.

    ``lower``/``upper``: arrays of the column's Arrow type; null is unknown and an unknown bound makes the file a
    candidate. Counts are int64; null is unknown.
    """

    lower: pa.Array
    upper: pa.Array
    null_count: pa.Array
    nan_count: pa.Array
    value_count: pa.Array


class FileSet:
    """All live data files of one snapshot; ordinals (``file_id``) are valid within this object only."""

    pinned: Pinned
    snapshot_id: int | None
    sequence_number: int
    table_uuid: str
    #: One row per live data file, see FILES_SCHEMA.
    files: pa.Table

    def __len__(self) -> int:
        """Number of live data files."""
        return int(self.files.num_rows)

    def bounds(self, field_id: int) -> ColumnBounds:
        """Bounds of the column ``field_id`` of the pinned schema; untrusted ones are null."""
        raise NotImplementedError(field_id)

    def data_file(self, ordinal: int) -> DataFile:
        """The PyIceberg data file with spec id and statistics, as commits and readers take it."""
        raise NotImplementedError(ordinal)

    def deletes(self, ordinal: int) -> tuple[DataFile, ...]:
        """Delete files (position, deletion vector, equality) that apply to the file."""
        raise NotImplementedError(ordinal)

    def has_deletes(self, ordinal: int) -> bool:
        """Whether any delete file applies to the file."""
        return bool(self.deletes(ordinal))


def read_file_set(table: Table, snapshot_id: int | None = None) -> FileSet:
    """Read the manifests of ``snapshot_id`` (None: the current snapshot; no snapshot at all gives an empty set)."""
    raise NotImplementedError(table, snapshot_id)


def pin_table(table: Table) -> Pinned:
    """What a run that plans on the current state of ``table`` must find unchanged, or validate, when it commits."""
    raise NotImplementedError(table)

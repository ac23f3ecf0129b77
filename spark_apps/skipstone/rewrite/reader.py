"""Reads one data file with its deletes applied, by field id, in the table schema's Arrow types.

Called by index builds, merges and queries, inside Spark tasks or without Spark.
Must not ignore a delete: what cannot be applied is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from skipstone.tables.filesets import FileSet

#: Extra column a reader can add: the row's ordinal in the file, before deletes (int64).
POSITION_COLUMN = "_pos"
#: Extra column: the Parquet row group that holds the row (int32).
ROW_GROUP_COLUMN = "_row_group"


@dataclass(frozen=True)
class DeleteDescription:
    """A delete file as tasks take it. ``content``: 1 position, 2 equality; ``offset``/``length`` of a deletion vector."""

    path: str
    content: int
    file_format: str
    equality_ids: tuple[int, ...] = ()
    offset: int | None = None
    length: int | None = None
    referenced: str | None = None


@dataclass(frozen=True)
class DataFileDescription:
    """A data file as tasks take it: picklable. ``file_id`` is the ordinal in the FileSet it came from.

    ``schema_json``: Iceberg JSON of the schema to read in. ``constants``: values of identity partition fields by
    source field id, for columns that the file does not hold.
    """

    file_id: int
    path: str
    size: int
    records: int
    schema_json: str
    file_format: str = "PARQUET"
    deletes: tuple[DeleteDescription, ...] = ()
    constants: tuple[tuple[int, object], ...] = ()


def describe_files(table: Table, files: FileSet, ordinals: Sequence[int]) -> list[DataFileDescription]:
    """Descriptions of ``ordinals`` for tasks, in the pinned schema of ``files``.

    Raises BadData (DELETES_UNSUPPORTED) when a delete cannot be applied on reading.
    """
    raise NotImplementedError(table, files, ordinals)


def read_data_file(
    file: DataFileDescription, columns: Sequence[str], row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The live rows of ``file`` in file order, ``columns`` by their name in the schema to read in.

    POSITION_COLUMN and ROW_GROUP_COLUMN may be among ``columns``. Columns the file does not hold are null.
    ``row_groups``: read only these (positions still count from the file's start).
    """
    raise NotImplementedError(file, columns, row_groups)

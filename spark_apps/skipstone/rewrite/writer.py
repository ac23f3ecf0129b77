"""The one writer: Arrow batches in, Parquet data files with field ids out, partitioned by the table's spec.

Runs inside Spark tasks (or without Spark); the driver turns what tasks return into Iceberg data files.
Must not commit: files are invisible until the driver names them in a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

#: How tasks return written files through ``mapInArrow``: one binary column, one row per file.
WRITTEN_SCHEMA = pa.schema([pa.field("written", pa.binary(), nullable=False)])
#: The same for Spark's ``mapInArrow(…, schema=…)``.
WRITTEN_DDL = "written binary not null"


@dataclass(frozen=True, kw_only=True)
class WriteSpec:
    """All that a task needs to write: picklable, small, made once on the driver by ``write_spec``.

    ``schema_json``/``spec_json``/``sort_json``: Iceberg JSON. Sizes are bytes.
    """

    schema_json: str
    spec_json: str
    sort_json: str
    location: str
    run_id: str
    target_file_bytes: int
    row_group_bytes: int
    codec: str
    codec_level: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WrittenFile:
    """One finished Parquet file: what the driver needs to make an Iceberg data file of it."""

    path: str
    size: int
    records: int
    partition: tuple[object, ...]
    footer: bytes
    nan_counts: Mapping[int, int]

    def to_row(self) -> bytes:
        """Bytes for WRITTEN_SCHEMA."""
        raise NotImplementedError

    @staticmethod
    def from_row(row: bytes) -> WrittenFile:
        """Read what ``to_row`` made."""
        raise NotImplementedError(row)


def write_spec(table: Table, run_id: str) -> WriteSpec:
    """What tasks of ``run_id`` need to write into ``table`` under its current schema, default spec and sort order."""
    raise NotImplementedError(table, run_id)


class DataFileWriter:
    """Writes the batches of one task attempt into as few files as target size and partitions allow.

    ``task_id`` must differ between tasks and between attempts of one task: it becomes part of the file names.
    Batches have the table's columns by name (any order; absent optional columns become null) in the Arrow types of
    ``arrow_schema``, or castable to them without loss.
    """

    def __init__(self, spec: WriteSpec, task_id: str) -> None:
        """Open nothing yet."""
        raise NotImplementedError(spec, task_id)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema that files are written in, with field ids."""
        raise NotImplementedError

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take rows. Raises BadData when a required column is missing or holds null."""
        raise NotImplementedError(batch)

    def close(self) -> list[WrittenFile]:
        """Finish all files; nothing is written afterwards."""
        raise NotImplementedError

    def abort(self) -> None:
        """Delete what this writer wrote; for a task that failed before it returned anything."""
        raise NotImplementedError


def written_batch(files: Iterable[WrittenFile]) -> pa.RecordBatch:
    """The batch of WRITTEN_SCHEMA that a task yields."""
    raise NotImplementedError(files)


def to_data_files(rows: Iterable[bytes], table: Table) -> list[DataFile]:
    """On the driver: the data files of the accepted rows, under the table's default spec, with statistics."""
    raise NotImplementedError(rows, table)

"""The one writer: Arrow batches in, Parquet data files with field ids out, partitioned by the table's spec.

Runs inside Spark tasks (or without Spark); the driver turns what tasks return into Iceberg data files.
Must not commit: files are invisible until the driver names them in a commit.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa
from propcache.api import cached_property
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, UUIDType
from skipstone_core.filter_sizes import FilterSize

from skipstone.files.conforming.columns import as_column, as_table, in_slices, joined, unpacked_bytes
from skipstone.files.parquet import FILTER_SIZES, ParquetFile
from skipstone.files.partitions import PartitionTuple, SortKeys, partition_folders, split_by_partition
from skipstone.files.splicing import ChunkSource, FreshChunks, SplicedFile, SplicedLayout
from skipstone.tables.arrow import (
    LAST_UPDATED,
    ROW_ID,
    arrow_schema,
    default_scalar,
    field_id,
    stored_schema,
    with_lineage,
)
from skipstone.tables.shaping.writeproperties import (
    bloom_filters_of,
    codec_of,
    dictionary_bytes_of,
    metrics_of,
    size_of,
)
from skipstone.tables.storage import ON_VOLUMES, FileAccess, data_location, file_access

#: Rows that one writer holds in memory before it writes the largest partition out, in bytes of Arrow.
MEMORY_BYTES = 256 * 1024 * 1024
#: Files that one writer keeps open; the one least recently written to is finished first.
MAX_OPEN_FILES = 64


@dataclass(frozen=True, kw_only=True)
class WriteSpec:
    """All that a task needs to write: picklable, small, made once on the driver by ``write_spec``.

    ``schema_json``/``spec_json``/``sort_json``: Iceberg JSON. ``location``: directory of data files. Sizes are bytes.
    ``metrics``: the table's properties of metrics modes. ``encodings``: of columns that have one of their own.
    ``filters``: sizes of bloom filters by column. ``access``: how the location is reached.
    """

    schema_json: str
    spec_json: str
    sort_json: str
    location: str
    run_id: str
    target_file_bytes: int
    row_group_bytes: int
    row_group_rows: int
    codec: str
    codec_level: int | None = None
    page_bytes: int = TableProperties.PARQUET_PAGE_SIZE_BYTES_DEFAULT
    page_rows: int = TableProperties.PARQUET_PAGE_ROW_LIMIT_DEFAULT
    metrics: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)
    dictionary_bytes: int | None = None
    filters: Mapping[str, FilterSize] = field(default_factory=dict)
    access: FileAccess = ON_VOLUMES

    @property
    def parquet_options(self) -> dict[str, Any]:
        """Options of ``pyarrow.parquet.ParquetWriter``, with FILTER_SIZES."""
        codec = "none" if self.codec == "uncompressed" else self.codec
        pages = {"data_page_size": self.page_bytes, "max_rows_per_page": self.page_rows}
        return {
            "compression": codec,
            "compression_level": self.codec_level,
            **pages,
            **self._encoding_options(),
            **self._more(),
        }

    def _more(self) -> dict[str, Any]:
        sizes = {name: asdict(size) for name, size in self.filters.items()}
        return {"dictionary_pagesize_limit": self.dictionary_bytes, FILTER_SIZES: sizes}

    def _encoding_options(self) -> dict[str, Any]:
        if not self.encodings:
            return {}
        names = [column.name for column in Schema.model_validate_json(self.schema_json).fields]
        return {
            "column_encoding": dict(self.encodings),
            "use_dictionary": [name for name in names if name not in self.encodings],
        }


@dataclass(frozen=True)
class WrittenFile:
    """One finished Parquet file: what the driver needs to make an Iceberg data file of it.

    ``partition``: Iceberg's internal values. ``statistics``: arguments of a PyIceberg DataFile.
    """

    path: str
    size: int
    partition: PartitionTuple
    statistics: Mapping[str, Any]

    @property
    def records(self) -> int:
        """Number of rows."""
        return int(self.statistics["record_count"])

    def to_row(self) -> bytes:
        """As tasks return it."""
        return pickle.dumps((self.path, self.size, self.partition, dict(self.statistics)))

    @staticmethod
    def from_row(row: bytes) -> WrittenFile:
        """Read what ``to_row`` made; rows come from our own tasks only."""
        return WrittenFile(*pickle.loads(row))


def write_spec(table: Table, run_id: str, *, lineage: bool = False) -> WriteSpec:
    """Return the settings of tasks of ``run_id`` for ``table``: current schema, default spec and sort order.

    ``lineage``: for rows that were in other files of the table before, and keep their ids.
    """
    codec, level = codec_of(table)
    schema = stored_schema(with_lineage(table.schema()) if lineage else table.schema())
    return WriteSpec(
        schema_json=schema.model_dump_json(),
        spec_json=table.spec().model_dump_json(),
        sort_json=table.sort_order().model_dump_json(),
        location=data_location(table),
        run_id=run_id,
        target_file_bytes=size_of(table, "WRITE_TARGET_FILE_SIZE_BYTES"),
        row_group_bytes=size_of(table, "PARQUET_ROW_GROUP_SIZE_BYTES"),
        row_group_rows=size_of(table, "PARQUET_ROW_GROUP_LIMIT"),
        codec=codec,
        codec_level=level,
        page_bytes=size_of(table, "PARQUET_PAGE_SIZE_BYTES"),
        page_rows=size_of(table, "PARQUET_PAGE_ROW_LIMIT"),
        metrics=metrics_of(table),
        dictionary_bytes=dictionary_bytes_of(table),
        filters=bloom_filters_of(table),
        access=file_access(table),
    )


@dataclass
class _Open:
    """A partition with rows in memory or a file under way."""

    partition: PartitionTuple
    rows: list[pa.Table] = field(default_factory=list)
    nbytes: int = 0
    file: ParquetFile | None = None

    def take(self) -> pa.Table:
        """The rows in memory, which are forgotten here."""
        taken = pa.concat_tables(self.rows)
        self.rows, self.nbytes = [], 0
        return taken


@lru_cache(maxsize=16)
def _shape(schema_json: str, spec_json: str, sort_json: str) -> tuple[Schema, PartitionSpec, SortOrder, pa.Schema]:
    """Return the parts that all writers of a task share: a merge opens a writer for each file."""
    schema = Schema.model_validate_json(schema_json)
    spec, sort = PartitionSpec.model_validate_json(spec_json), SortOrder.model_validate_json(sort_json)
    return schema, spec, sort, arrow_schema(schema)


@lru_cache(maxsize=4)
def _layout(schema_json: str, options_json: str) -> SplicedLayout:
    return SplicedLayout(Schema.model_validate_json(schema_json), json.loads(options_json))


class DataFileWriter:
    """Writes the batches of one task attempt into as few files as target size and partitions allow.

    ``task_id`` must differ between tasks and between attempts of one task: it becomes part of the file names.
    Batches have the table's columns by name (any order; absent columns have their write default, else null) in the
    Arrow types of ``arrow_schema``, or castable to them without loss. With a sort order, rows are sorted within each
    row group.
    """

    def __init__(self, spec: WriteSpec, task_id: str) -> None:
        """Open nothing yet."""
        self._spec = spec
        self._task_id = task_id
        shape = _shape(spec.schema_json, spec.spec_json, spec.sort_json)
        self._schema, self._partitioning, self._sort, self._columns = shape
        self._io = spec.access.open(spec.location)
        self.flush_bytes = min(spec.row_group_bytes, spec.target_file_bytes)
        self._open: dict[PartitionTuple, _Open] = {}
        self._spliced: list[tuple[PartitionTuple, SplicedFile]] = []
        self._paths: list[str] = []
        self._unfinished: dict[str, ParquetFile | SplicedFile] = {}
        self._written: list[WrittenFile] = []

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema that files are written in, with field ids."""
        return self._columns

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take rows. Raises BadData (BAD_RECORDS) when a required column is missing or holds null."""
        table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        for part in in_slices(self._conform(table), self.flush_bytes):
            for partition, rows in split_by_partition(part, self._partitioning, self._schema):
                self._take(partition, rows)

    def append(self, partition: PartitionTuple, rows: pa.Table) -> None:
        """Write rows of one partition at once, as row groups of the usual size, in the order that they have.

        The file has the columns of ``rows`` and no others: those of which a partition value is known, or that are null
        in all rows, can be left out, as readers of Iceberg tables put these in their place.
        """
        opened = self._open.setdefault(partition, _Open(partition))
        opened.file = opened.file or self._create(partition)
        opened.file.append(self.conform(rows), self._group_rows(rows))
        if opened.file.size >= self._spec.target_file_bytes:
            self._finish(opened)

    def close(self) -> list[WrittenFile]:
        """Finish all files; nothing is written afterwards."""
        for opened in list(self._open.values()):
            self._finish(opened)
        for partition, file in self._spliced:
            if not file.is_empty:
                self._record(file.path, partition, file.close(dict(self._spec.metrics)))
        return self._written

    def splice(self, partition: PartitionTuple) -> SplicedFile:
        """A file of ``partition`` that is put together from column chunks; ``close`` finishes it."""
        file = SplicedFile(self._io, self._new_path(partition), self.layout)
        self._spliced.append((partition, file))
        self._unfinished[file.path] = file
        return file

    @property
    def layout(self) -> SplicedLayout:
        """Return the layout of spliced files."""
        return _layout(self._spec.schema_json, json.dumps(self._spec.parquet_options))

    @property
    def sorts(self) -> bool:
        """Return whether rows are sorted within a row group."""
        return bool(self._sort.fields)

    @cached_property
    def lineage_columns(self) -> frozenset[str]:
        """Columns with the lineage of rows. A null in one means something else in every file: chunks are not copied."""
        return frozenset(column.name for column in self._columns if field_id(column) in (ROW_ID, LAST_UPDATED))

    @cached_property
    def partition_columns(self) -> frozenset[str]:
        """Columns at the top of the schema that partition values are made of."""
        at = [
            self._schema.accessor_for_field(partition_field.source_id).position
            for partition_field in self._partitioning.fields
        ]
        return frozenset(self._schema.fields[position].name for position in at)

    @cached_property
    def packable(self) -> frozenset[str]:
        """Columns of texts that ``conform`` and ``encoded`` leave in dictionaries."""
        if self.sorts:
            return frozenset()
        texts = {column.name for column in self._columns if column.type in (pa.string(), pa.binary())}
        return frozenset(texts - self.partition_columns - self.layout.bloom_columns)

    @property
    def partitioning(self) -> PartitionSpec:
        """The spec that rows are written under."""
        return self._partitioning

    def conform(self, rows: pa.Table) -> pa.Table:
        """Rows of some columns in the types that files are written in. Raises BadData as ``write`` does."""
        wanted = [field for field in self._columns if field.name in rows.column_names]
        return joined([as_table([as_column(rows, field, packed=self.packable) for field in wanted], wanted)])

    def fill(self, file: SplicedFile, rows: Iterable[pa.RecordBatch]) -> None:
        """Write whole rows of the file's partition into ``file``: as row groups of the usual size, in sort order."""
        for fresh in self.encoded(file, rows):
            file.append(fresh)

    def encoded(self, file: SplicedFile, rows: Iterable[pa.RecordBatch]) -> Iterator[FreshChunks]:
        """What ``fill`` writes. Several threads may encode at a time."""
        taken: list[pa.Table] = []
        for batch in rows:
            for part in in_slices(self._conform(pa.Table.from_batches([batch]), self.packable), self.flush_bytes):
                taken.append(part)
                if sum(map(unpacked_bytes, taken)) >= self.flush_bytes:
                    yield from self._encoded(file, taken)
                    taken = []
        if taken:
            yield from self._encoded(file, taken)

    def _encoded(self, file: SplicedFile, taken: list[pa.Table]) -> Iterator[FreshChunks]:
        rows = self._sorted(joined(taken))
        step = self._group_rows(rows)
        for start in range(0, rows.num_rows, step):
            yield file.encode(joined([rows.slice(start, step)]))  # of the texts of this row group alone

    def abort(self) -> None:
        """Delete what this writer wrote; for a task that failed before it returned anything.

        What cannot be deleted stays behind: the error that is told is the one that ended the task.
        """
        for file in self._unfinished.values():
            with suppress(OSError, ValueError):  # one in S3 that is open when it is deleted would be there again later
                file.abort()
        for path in self._paths:
            with suppress(OSError):  # the last one may not have been made, nor a spliced one without rows
                self._io.delete(path)
        self._open.clear()
        self._unfinished.clear()

    def _conform(self, table: pa.Table, packed: frozenset[str] = frozenset()) -> pa.Table:
        columns = [as_column(table, wanted, self._default(table, wanted), packed) for wanted in self._columns]
        return as_table(columns, list(self._columns))

    def _default(self, table: pa.Table, wanted: pa.Field) -> pa.Scalar | None:
        """Return the value of a column in rows that come without it; None: null."""
        value = None if wanted.name in table.column_names else self._schema.find_field(wanted.name).write_default
        return None if value is None else default_scalar(value, wanted.type)

    def _take(self, partition: PartitionTuple, rows: pa.Table) -> None:
        opened = self._open.pop(partition, None) or _Open(partition)
        self._open[partition] = opened
        opened.rows.append(rows)
        opened.nbytes += rows.nbytes
        if opened.nbytes >= self.flush_bytes:
            self._flush(opened)
        while sum(other.nbytes for other in self._open.values()) > MEMORY_BYTES:
            self._flush(max(self._open.values(), key=lambda other: other.nbytes))

    def _flush(self, opened: _Open) -> None:
        """Write the rows in memory; finish the file when it has reached the target size."""
        if opened.rows:
            rows = self._sorted(opened.take())
            opened.file = opened.file or self._create(opened.partition)
            opened.file.append(rows, self._group_rows(rows))
            if opened.file.size >= self._spec.target_file_bytes:
                self._finish(opened)
        self._limit_open_files()

    def _limit_open_files(self) -> None:
        with_file = [opened for opened in self._open.values() if opened.file is not None]
        for opened in with_file[: max(0, len(with_file) - MAX_OPEN_FILES)]:
            self._finish(opened)

    def _finish(self, opened: _Open) -> None:
        self._open.pop(opened.partition, None)
        if opened.rows:
            rows = self._sorted(opened.take())
            opened.file = opened.file or self._create(opened.partition)
            opened.file.append(rows, self._group_rows(rows))
        if opened.file is None:
            return
        self._record(opened.file.path, opened.partition, opened.file.close(dict(self._spec.metrics)))

    def _record(self, path: str, partition: PartitionTuple, statistics: Mapping[str, Any]) -> None:
        self._unfinished.pop(path, None)
        self._written.append(WrittenFile(path, len(self._io.new_input(path)), partition, statistics))

    def _create(self, partition: PartitionTuple) -> ParquetFile:
        file = ParquetFile(self._io, self._new_path(partition), self._schema, self._spec.parquet_options)
        self._unfinished[file.path] = file
        return file

    def _new_path(self, partition: PartitionTuple) -> str:
        folder = self._spec.location
        if not self._partitioning.is_unpartitioned():
            folder += "/" + partition_folders(self._partitioning, self._schema, partition)
        path = f"{folder}/{self._spec.run_id}-{self._task_id}-{len(self._paths):05}.parquet"
        self._paths.append(path)
        return path

    def _group_rows(self, rows: pa.Table) -> int:
        by_bytes = rows.num_rows * self._spec.row_group_bytes // max(unpacked_bytes(rows), 1)
        return max(1, min(self._spec.row_group_rows, int(by_bytes)))

    def _sorted(self, rows: pa.Table) -> pa.Table:
        return rows.take(self.sort_keys(rows).order()) if self.sorts else rows

    def sort_keys(self, rows: pa.Table) -> SortKeys:
        """Return the sort keys, if the writer sorts."""
        return SortKeys.of(rows, self._sort, self._schema)

    def in_order(self, rows: pa.Table) -> pa.Table:
        """``rows`` as this writer sorts them."""
        return self._sorted(rows)

    def write_ordered(self, rows: pa.Table, most: int) -> None:
        """Write rows in the order that they have, ``most`` of a partition to a file; calls go on where others ended."""
        for partition, mine in split_by_partition(self._conform(rows), self._partitioning, self._schema):
            start = 0
            while start < mine.num_rows:
                opened = self._open.setdefault(partition, _Open(partition))
                opened.file = opened.file or self._create(partition)
                part = mine.slice(start, most - opened.file.rows)
                opened.file.append(part, self._group_rows(part))
                start += part.num_rows
                if opened.file.rows >= most:
                    self._finish(opened)
        self._limit_open_files()


class UnwrittenFiles(DataFileWriter):
    """Takes rows as a ``DataFileWriter`` does, refuses those that it refuses, and forgets the others.

    A dry run has it in the place of the writer, so that its rows take the same way.
    """

    def splice(self, partition: PartitionTuple) -> SplicedFile:
        """A file of ``partition`` that is never made."""
        return _UnwrittenSplice(self._io, "", self.layout)

    def encoded(self, file: SplicedFile, rows: Iterable[pa.RecordBatch]) -> Iterator[FreshChunks]:
        """Judge whole rows of the file's partition."""
        for batch in rows:
            self._conform(pa.Table.from_batches([batch]))
        yield from ()

    def _take(self, partition: PartitionTuple, rows: pa.Table) -> None:
        """Rows that have got here have a partition, and nothing is left to judge."""


class _UnwrittenSplice(SplicedFile):
    def encode(self, rows: pa.Table) -> FreshChunks:
        return super().encode(rows.slice(0, 0))

    def append(self, fresh: FreshChunks) -> None:
        pass

    def copy(self, source: ChunkSource, group: int, fresh: FreshChunks | None = None) -> None:
        pass


def to_data_files(rows: Iterable[bytes], table: Table) -> list[DataFile]:
    """On the driver: the data files of the accepted rows, under the table's default spec, with statistics."""
    return data_files(map(WrittenFile.from_row, rows), table)


def data_files(files: Iterable[WrittenFile], table: Table) -> list[DataFile]:
    """The data files of ``files`` under the table's default spec."""
    kinds = [field.field_type for field in table.spec().partition_type(table.schema()).fields]
    return [_data_file(file, table.spec().spec_id, kinds) for file in files]


def _data_file(written: WrittenFile, spec_id: int, kinds: Sequence[IcebergType]) -> DataFile:
    # a manifest's bounds compare all its partitions, and files that were put together have theirs from a manifest
    partition = [
        UUID(bytes=value) if isinstance(kind, UUIDType) and isinstance(value, bytes) else value
        for value, kind in zip(written.partition, kinds, strict=True)
    ]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        file_size_in_bytes=written.size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **written.statistics,
    )
    file.spec_id = spec_id
    return file

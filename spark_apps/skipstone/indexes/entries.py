"""Kernels of index builds: the rows of data files become entries, sorted by key, in files of the index table.

Run inside Spark tasks; the driver commits what they return. Bounded memory whatever the size of a file: entries are
sorted and written whenever the buffer is full. Must not commit and must not apply deletes: entries name every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from skipstone_core.errors import UserError

from skipstone.indexes.definition import ENTRY, key_name
from skipstone.indexes.keys import arrow_type, stored_keys
from skipstone.rewrite.reader import POSITION_COLUMN, ROW_GROUP_COLUMN, DataFileDescription, read_data_file
from skipstone.rewrite.writer import DataFileWriter, WriteSpec, WrittenFile

#: Entries buffered by one task, in bytes of Arrow data; sorting and writing them takes about three times as much.
BUFFER_BYTES = 64 * 1024 * 1024
_SORTABLE_BITS = 63


@dataclass(frozen=True)
class KeyColumn:
    """A column to read (``name`` in the schema of the description) and the storage type of its keys."""

    name: str
    storage: str


@dataclass(frozen=True)
class EntrySource:
    """A data file to enter under ``file_id``, without its deletes; or share number ``share`` of ``shares`` of it."""

    file_id: int
    file: DataFileDescription
    share: int = 0
    shares: int = 1

    @property
    def rows(self) -> float:
        """About how many rows it has."""
        return self.file.records / self.shares

    def row_groups(self) -> range | None:
        """The row groups of the share; None for all."""
        if self.shares == 1:
            return None
        with load_file_io({}, self.file.path).new_input(self.file.path).open() as stream:
            count = pq.read_metadata(stream).num_row_groups
        return range(self.share * count // self.shares, (self.share + 1) * count // self.shares)


@dataclass(frozen=True)
class BuildTask:
    """What one Spark task enters. ``unit`` comes back in the result."""

    unit: int
    sources: tuple[EntrySource, ...]
    keys: tuple[KeyColumn, ...]
    spec: WriteSpec
    buffer_bytes: int = BUFFER_BYTES


@dataclass(frozen=True)
class SkippedFile:
    """A data file that could not be entered. ``vanished``: it is not there any more."""

    file_id: int
    path: str
    message: str
    vanished: bool


@dataclass(frozen=True)
class TaskResult:
    """What a task wrote and which files it could not enter."""

    unit: int
    written: tuple[WrittenFile, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


def entry_schema(storages: Sequence[str]) -> pa.Schema:
    """Arrow schema of entries before kind and level are added: k0 …, file_id, row_group, pos."""
    keys = [pa.field(key_name(i), arrow_type(storage)) for i, storage in enumerate(storages)]
    return pa.schema(
        [*keys, pa.field("file_id", pa.int32()), pa.field("row_group", pa.int32()), pa.field("pos", pa.int64())]
    )


def entry_encodings(storages: Sequence[str]) -> dict[str, str]:
    """Parquet encodings of the integers in entries: sorted keys and positions are near their neighbours, and nothing
    that a dictionary would find again.
    """
    kinds = {key_name(number): arrow_type(storage) for number, storage in enumerate(storages)}
    integers = [name for name, kind in kinds.items() if pa.types.is_integer(kind)]
    return dict.fromkeys([*integers, "pos"], "DELTA_BINARY_PACKED")


class EntrySorter:
    """Collects entries and writes them as key-ordered files, one file per buffer.

    As a context manager it deletes what it wrote when the task fails: nobody will ever name those files.
    """

    def __init__(self, spec: WriteSpec, task_id: str, *, level: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._spec, self._task_id, self._level, self._buffer_bytes = spec, task_id, level, buffer_bytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written: list[WrittenFile] = []
        self._writers: list[DataFileWriter] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()

    def abort(self) -> None:
        """Delete what was written."""
        for writer in self._writers:
            writer.abort()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch of ``entry_schema``."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._buffer_bytes:
            self._flush()

    def close(self) -> tuple[WrittenFile, ...]:
        """Write what is left; all files written."""
        self._flush()
        return tuple(self._written)

    def _flush(self) -> None:
        if not self._batches:
            return
        table = sorted_entries(pa.Table.from_batches(self._batches))
        self._batches, self._bytes = [], 0
        writer = DataFileWriter(self._spec, f"{self._task_id}-{len(self._writers)}")
        self._writers.append(writer)
        writer.write(with_partition(table, ENTRY, self._level))
        self._written.extend(writer.close())


def sorted_entries(entries: pa.Table) -> pa.Table:
    """Entries by key, nulls last; equal keys keep their order, which is that of file and position."""
    names = [name for name in entries.column_names if name.startswith("k")]
    order = _order_of_integers([entries.column(name).combine_chunks() for name in names])
    if order is None:
        order = pc.sort_indices(entries, sort_keys=[(name, "ascending") for name in names])
    return entries.combine_chunks().take(order)


def _order_of_integers(keys: Sequence[pa.Array]) -> pa.Array | None:
    """Where each entry goes, by one sort of numbers that hold keys and row; None when these do not fit into 63 bits.

    Ten times as fast as an indirect sort: processors sort plain numbers by vector instructions.
    """
    count, bits = len(keys[0]), len(keys[0]).bit_length()
    packed, used = np.zeros(count, np.int64), bits
    for key in keys:
        if not pa.types.is_integer(key.type) or key.null_count == count:
            return None
        least, greatest = (int(value.as_py()) for value in pc.min_max(key).values())
        width = (greatest - least + 1).bit_length()  # one more than there are: for nulls
        used += width
        if used > _SORTABLE_BITS:
            return None
        numbers = key.cast(pa.int64()).fill_null(greatest).to_numpy() - least
        numbers = np.where(key.is_null().to_numpy(zero_copy_only=False), greatest - least + 1, numbers)
        packed = packed << width | numbers
    packed = packed << bits | np.arange(count)
    packed.sort()
    return pa.array(packed & (1 << bits) - 1)


def with_partition(table: pa.Table, kind: str, level: int) -> pa.Table:
    """Add the partition columns of the index table."""
    kinds = pa.DictionaryArray.from_arrays(pa.nulls(table.num_rows, pa.int32()).fill_null(0), pa.array([kind]))
    levels = pa.nulls(table.num_rows, pa.int32()).fill_null(level)
    return table.append_column("kind", kinds.cast(pa.string())).append_column("level", levels)


def build_entries(task: BuildTask, task_id: str) -> TaskResult:
    """Enter the files of a task. A file that is gone or unreadable is reported; the others go on."""
    skipped = []
    with EntrySorter(task.spec, task_id, level=0, buffer_bytes=task.buffer_bytes) as sorter:
        for source in task.sources:
            batches = file_entries(source, task.keys)
            while isinstance(batch := _next_batch(source, batches), pa.RecordBatch):
                sorter.add(batch)
            if batch is not None:
                skipped.append(batch)
        return TaskResult(task.unit, sorter.close(), tuple(skipped))


def _next_batch(source: EntrySource, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | SkippedFile | None:
    """Only reading is guarded: an error of writing must fail the task, or coverage would promise lost entries."""
    try:
        return next(batches, None)
    except FileNotFoundError as error:
        return SkippedFile(source.file_id, source.file.path, str(error), vanished=True)
    except (OSError, pa.ArrowException, UserError) as error:
        return SkippedFile(source.file_id, source.file.path, str(error), vanished=False)


def file_entries(source: EntrySource, keys: Sequence[KeyColumn]) -> Iterator[pa.RecordBatch]:
    """The entries of one data file in file order."""
    names = list(dict.fromkeys(key.name for key in keys))
    schema = entry_schema([key.storage for key in keys])
    for batch in read_data_file(source.file, [*names, POSITION_COLUMN, ROW_GROUP_COLUMN], source.row_groups()):
        columns = [stored_keys(batch[key.name], key.storage) for key in keys]
        file_ids = pa.nulls(batch.num_rows, pa.int32()).fill_null(source.file_id)
        row_groups = batch[ROW_GROUP_COLUMN].cast(pa.int32())
        arrays = [*columns, file_ids, row_groups, batch[POSITION_COLUMN]]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

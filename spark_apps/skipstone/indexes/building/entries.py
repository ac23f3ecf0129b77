"""Kernels of index builds: the rows of data files become entries, sorted by key, in files of the index table.

Run inside Spark tasks; the driver commits what they return. Bounded memory whatever the size of a file: entries are
sorted and written whenever the buffer is full. Must not commit and must not apply deletes: entries name every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from skipstone_core.errors import UserError

from skipstone.files.reader import POSITION_COLUMN, ROW_GROUP_COLUMN, DataFileDescription, read_data_file
from skipstone.files.writer import WriteSpec, WrittenFile
from skipstone.indexes.building.sorting import BUFFER_BYTES, KeySorter, Origin, RunWriter
from skipstone.indexes.definition import key_name
from skipstone.indexes.keys import arrow_type, stored_keys
from skipstone.tables.parquetfiles import read_metadata


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
        with self.file.access.open(self.file.path).new_input(self.file.path).open() as stream:
            count = read_metadata(stream).num_row_groups
        return range(self.share * count // self.shares, (self.share + 1) * count // self.shares)


@dataclass(frozen=True)
class BuildTask:
    """What one Spark task enters."""

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

    written: tuple[WrittenFile, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


def entry_encodings(storages: Sequence[str]) -> dict[str, str]:
    """Parquet encodings of the integers in entries: sorted keys and positions are near their neighbors, and nothing
    that a dictionary would find again.
    """
    kinds = {key_name(number): arrow_type(storage) for number, storage in enumerate(storages)}
    integers = [name for name, kind in kinds.items() if pa.types.is_integer(kind)]
    return dict.fromkeys([*integers, "pos"], "DELTA_BINARY_PACKED")


def build_entries(task: BuildTask, task_id: str) -> TaskResult:
    """Enter the files of a task. A file that is gone or unreadable is reported; the others go on."""
    skipped = []
    with RunWriter(task.spec, task_id, level=0) as runs:
        sorter = KeySorter(runs, [key.storage for key in task.keys], task.buffer_bytes)
        for source in task.sources:
            stretches = file_keys(source, task.keys)
            while isinstance(stretch := _next_stretch(source, stretches), Stretch):
                sorter.add(stretch.keys, stretch.origin)
            if stretch is not None:
                skipped.append(stretch)
        sorter.flush()
        return TaskResult(tuple(runs.written), tuple(skipped))


@dataclass(frozen=True)
class Stretch:
    """Neighboring rows of a file: their stored keys, a column each, and where they stand."""

    keys: tuple[pa.Array, ...]
    origin: Origin


def _next_stretch(source: EntrySource, stretches: Iterator[Stretch]) -> Stretch | SkippedFile | None:
    """Only reading is guarded: an error of writing must fail the task, or coverage would promise lost entries."""
    try:
        return next(stretches, None)
    except FileNotFoundError as error:
        return SkippedFile(source.file_id, source.file.path, str(error), vanished=True)
    except (OSError, pa.ArrowException, UserError) as error:
        return SkippedFile(source.file_id, source.file.path, str(error), vanished=False)


def file_keys(source: EntrySource, keys: Sequence[KeyColumn]) -> Iterator[Stretch]:
    """The keys of one data file, all its rows in file order."""
    names = list(dict.fromkeys(key.name for key in keys))
    for batch in read_data_file(source.file, [*names, POSITION_COLUMN, ROW_GROUP_COLUMN], source.row_groups()):
        row_group, first = batch[ROW_GROUP_COLUMN][0].as_py(), batch[POSITION_COLUMN][0].as_py()
        columns = tuple(stored_keys(batch[key.name], key.storage) for key in keys)
        yield Stretch(columns, Origin(source.file_id, row_group, first, batch.num_rows))

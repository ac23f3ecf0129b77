"""Kernels of index builds: the rows of data files become entries, sorted by key, in files of the index table.

Run inside Spark tasks; the driver commits what they return. Bounded memory whatever the size of a file: entries are
sorted and written whenever the buffer is full. Must not commit and must not apply deletes: entries name every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from skipstone_core.errors import UserError
from skipstone_core.indexing.indexes import IndexDefinition

from skipstone.files.reader import POSITION_COLUMN, ROW_GROUP_COLUMN, DataFileDescription, read_data_file
from skipstone.files.writer import WriteSpec, WrittenFile
from skipstone.indexes.building.sorting import KeySorter, Origin, RunWriter, SortLimits
from skipstone.indexes.definition import entry_schema
from skipstone.indexes.keys import arrow_type, stored_keys
from skipstone.indexes.kinds import kind_of
from skipstone.indexes.values import stored_values
from skipstone.tables.parquetfiles import read_metadata


@dataclass(frozen=True)
class EntryColumns:
    """The columns that entries of ``definition`` hold, keys first: their names in the schema of the description."""

    definition: IndexDefinition
    names: tuple[str, ...]

    def stored(self, batch: pa.RecordBatch) -> tuple[pa.Array, ...]:
        """Return the columns of ``batch`` as entries hold them."""
        columns, kind = [batch[name] for name in self.names], kind_of(self.definition)
        keys = zip(columns, self.definition.columns, strict=False)
        values = zip(columns[len(self.definition.columns) :], self.definition.included, strict=True)
        return (
            *(kind.keys(stored_keys(column, of.storage_type), self.definition) for column, of in keys),
            *(stored_values(column, of.storage_type) for column, of in values),
        )


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
    """The entries that one Spark task makes."""

    sources: tuple[EntrySource, ...]
    columns: EntryColumns
    spec: WriteSpec
    limits: SortLimits = field(default_factory=SortLimits)


@dataclass(frozen=True)
class SkippedFile:
    """A data file that could not be entered. ``vanished``: it is not there any more."""

    file_id: int
    path: str
    message: str
    vanished: bool


@dataclass(frozen=True)
class TaskResult:
    """The files that a task wrote, and those that it could not enter."""

    written: tuple[WrittenFile, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


def entry_encodings(definition: IndexDefinition) -> dict[str, str]:
    """Parquet encodings of the integers in entries: sorted keys and positions are near their neighbors, and nothing
    that a dictionary would find again.
    """
    keys = entry_schema(definition).names[: len(definition.columns)]
    kinds = dict(zip(keys, map(arrow_type, definition.key_storages), strict=True))
    integers = [name for name, kind in kinds.items() if pa.types.is_integer(kind)]
    return dict.fromkeys([*integers, "file_id", "row_group", "pos"], "DELTA_BINARY_PACKED")


def build_entries(task: BuildTask, task_id: str) -> TaskResult:
    """Enter the files of a task. A file that is gone or unreadable is reported; the others go on."""
    skipped = []
    definition, limits = task.columns.definition, task.limits
    with RunWriter(task.spec, task_id, level=0) as runs, limits.spills(definition) as spills:
        sorter = KeySorter(definition, spills, limits)
        for source in task.sources:
            stretches = file_stretches(source, task.columns)
            while isinstance(stretch := next_stretch(source, stretches), Stretch):
                sorter.add(stretch.columns, stretch.origin)
            if stretch is not None:
                skipped.append(stretch)
        sorter.write(runs)
        return TaskResult(tuple(runs.written), tuple(skipped))


@dataclass(frozen=True)
class Stretch:
    """Neighboring rows of a file: their stored keys and included values, a column each, and where they stand."""

    columns: tuple[pa.Array, ...]
    origin: Origin


def next_stretch(source: EntrySource, stretches: Iterator[Stretch]) -> Stretch | SkippedFile | None:
    """Only reading is guarded: an error of writing must fail the task, or coverage would promise lost entries."""
    try:
        return next(stretches, None)
    except FileNotFoundError as error:
        return SkippedFile(source.file_id, source.file.path, str(error), vanished=True)
    except (OSError, pa.ArrowException, UserError) as error:
        return SkippedFile(source.file_id, source.file.path, str(error), vanished=False)


def file_stretches(source: EntrySource, columns: EntryColumns) -> Iterator[Stretch]:
    """All rows of one data file in file order."""
    needed = [*dict.fromkeys(columns.names), POSITION_COLUMN, ROW_GROUP_COLUMN]
    for batch in read_data_file(source.file, needed, source.row_groups()):
        row_group, first = batch[ROW_GROUP_COLUMN][0].as_py(), batch[POSITION_COLUMN][0].as_py()
        yield Stretch(columns.stored(batch), Origin(source.file_id, row_group, first, batch.num_rows))

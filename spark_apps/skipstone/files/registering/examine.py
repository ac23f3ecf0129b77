"""Looks at a Parquet file of another writer: whether it can be a data file of a table as it is, with what statistics.

Called by register runs in the driver. Reads footers, and columns only where the footer does not tell what has to be
proven. Must not commit, and never writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import DateType, TimestampType, TimestamptzType
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.files.parquet import ranges_of
from skipstone.files.projections import DataFileDescription
from skipstone.files.reader import read_data_file
from skipstone.files.registering.columns import Copies, FileColumns, FileNames, Leaf, match_columns
from skipstone.files.registering.metrics import add_constants, footer_statistics, null_counts
from skipstone.files.registering.partition import TableLayout, folders_of, partition_by_bounds, the_partition
from skipstone.files.writer import WrittenFile
from skipstone.tables.parquetfiles import follows_old_calendar, read_metadata
from skipstone.tables.shaping.writeproperties import metrics_of
from skipstone.tables.storage import FileAccess, file_access

_FIELD = "source.paths"
#: First day, and first microsecond since 1970, from which on the old calendar of Spark counts as the new one does.
_SAME_DAY, _SAME_MOMENT = -141_427, -2_208_988_800_000_000
_MOMENTS = (DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True)
class ForeignFile:
    """A file in the storage: what people call it, its ``location`` as manifests name it, and its size in bytes."""

    name: str
    location: str
    size: int


@dataclass(frozen=True)
class Examined:
    """A file that can be a data file. ``has_ids``: whether it has field ids, so that no name mapping is needed.

    ``unused``: columns that its folders name and the table does not have.
    """

    file: WrittenFile
    has_ids: bool
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examination:
    """The table that files are compared with. ``sources``: names in files by column, where they differ.

    ``mapping``: the name mapping by which readers will find the columns. ``modes``: the table's metrics modes.
    """

    layout: TableLayout
    mapping: NameMapping
    sources: Mapping[str, str]
    modes: Mapping[str, str]
    access: FileAccess
    copies: Copies

    def examine(self, file: ForeignFile) -> Examined | None:
        """The file as a data file; None when it holds no row.

        Raises BadSpec and BadData that name the file, and OSError when the table's storage does not give it.
        """
        footer = self._footer(file)
        folders = folders_of(file.name, self.layout)
        held = match_columns(
            FileNames(file.name, self.sources, self.copies, folders.columns), footer, self.layout.schema
        )
        constants = folders.constants(held)
        if not footer.num_rows:
            return None
        _require_calendar(file.name, footer, held)
        described = replace(self._described(file, footer), constants=tuple(constants.items()))
        self._require_values(described, file.name, footer, held)
        partition = partition_by_bounds(footer, held, constants, self.layout)
        if partition is None:
            names = [column.name for column in self.layout.columns]
            with _damage(file.name):
                partition = the_partition(file.name, self.layout, read_data_file(described, names))
        folders.require_agreement(partition)
        statistics = footer_statistics(footer, self.layout.schema, held, self.modes)
        add_constants(statistics, self.layout.values(partition), self.layout.schema, self.modes)
        return Examined(WrittenFile(file.location, file.size, partition, statistics), held.has_ids, folders.unused)

    def _footer(self, file: ForeignFile) -> pq.FileMetaData:
        with self.access.open(file.location).new_input(file.location).open() as stream, _damage(file.name):
            footer = read_metadata(stream)
        if not footer.num_columns:
            raise _unreadable(file.name, "it has no column")
        return footer

    def _described(self, file: ForeignFile, footer: pq.FileMetaData) -> DataFileDescription:
        return DataFileDescription(
            file_id=0,
            path=file.location,
            size=file.size,
            records=footer.num_rows,
            schema_json=self.layout.schema.model_dump_json(),
            name_mapping_json=self.mapping.model_dump_json(),
            access=self.access,
        )

    def _require_values(
        self, described: DataFileDescription, name: str, footer: pq.FileMetaData, held: FileColumns
    ) -> None:
        """Raise BadData (BAD_RECORDS) for a null in a column that the table requires."""
        counts = null_counts(footer, held)
        for column in self.layout.schema.fields:
            if not column.required or column.field_id not in counts:
                continue
            nulls = counts[column.field_id]
            if nulls is None:
                with _damage(name):
                    batches = read_data_file(described, [column.name])
                    nulls = sum(batch.column(0).null_count for batch in batches)
            if nulls:
                message = f"'{name}': column '{column.name}' holds {nulls} nulls, and the table requires values"
                raise BadData(Reason.BAD_RECORDS, f"{message}: write the file without them", field=_FIELD)


def plan_examination(table: Table, mapping: NameMapping, sources: Mapping[str, str], copies: Copies) -> Examination:
    """Return the examination of files that are to be registered in ``table``."""
    layout = TableLayout(table.schema(), table.spec())
    return Examination(layout, mapping, sources, metrics_of(table), file_access(table), copies)


@contextmanager
def _damage(name: str) -> Iterator[None]:
    """Raise BadData (SOURCE_UNREADABLE) for what Arrow finds wrong with a file."""
    try:
        yield
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except pa.ArrowException as error:
        raise _unreadable(name, f"this is not a readable Parquet file: {error}") from error


def _unreadable(name: str, message: str) -> BadData:
    text = f"'{name}': {message}. Remove the file from the folder, or name the files to register by a pattern"
    return BadData(Reason.SOURCE_UNREADABLE, text, field=_FIELD)


def _require_calendar(name: str, footer: pq.FileMetaData, held: FileColumns) -> None:
    """Raise BadData (SOURCE_UNREADABLE) for old days in the calendar that Spark wrote before its version 3."""
    if not follows_old_calendar(footer):
        return
    moments = {path: leaf for path, leaf in held.leaves.items() if isinstance(leaf.kind, _MOMENTS)}
    wanted = {leaf.field_id for leaf in moments.values()}
    ranges = ranges_of(footer, {path: leaf.field_id for path, leaf in held.leaves.items()}, wanted)
    for path, leaf in moments.items():
        if not _is_late(leaf, ranges):
            message = f"column '{path}' may hold days of the calendar that Spark used before its version 3"
            raise _unreadable(name, f"{message}, which readers of Iceberg tables take for others")


def _is_late(leaf: Leaf, ranges: Mapping[int, tuple[int, int]]) -> bool:
    first = _SAME_DAY if isinstance(leaf.kind, DateType) else _SAME_MOMENT
    return leaf.field_id in ranges and ranges[leaf.field_id][0] >= first

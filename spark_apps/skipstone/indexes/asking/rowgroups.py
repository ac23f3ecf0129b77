"""Parquet footers of index files: which row groups may hold an entry, and what reading them costs.

Used by lookup. Footers are kept by path and size, which never change. Must not read entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from propcache.api import cached_property
from pyiceberg.io import FileIO
from skipstone_core.errors import SkipstoneError
from skipstone_core.indexing.indexes import IndexDefinition

from skipstone.caches import ByteCache
from skipstone.files.keptchunks import ChunkRange
from skipstone.indexes.asking.entries import is_ordered_apart
from skipstone.indexes.definition import EntryColumn, entry_columns, entry_schema
from skipstone.indexes.keys import physical_keys
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.tables import IndexFile
from skipstone.tables.filesets import ColumnBounds
from skipstone.tables.parquetfiles import read_metadata

FOOTER_CACHE_BYTES = 64 * 1024 * 1024
#: A decoded footer takes about so many times its serialized size.
_DECODED = 8


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Whatever goes wrong inside is raised as UnreadableIndexFile with the path."""
    try:
        yield
    except SkipstoneError:
        raise
    except Exception as error:
        raise UnreadableIndexFile(path, error) from error


@dataclass(frozen=True)
class Footer:
    """The footer of an entry file of an index of ``definition``.

    ``by_pages``: whether single pages of the file are read where these are enough: in an object store a request costs
    more than the bytes that it spares, so whole column chunks are asked for.
    """

    metadata: pq.FileMetaData
    definition: IndexDefinition
    by_pages: bool = False

    def __len__(self) -> int:
        """Number of row groups."""
        return int(self.metadata.num_row_groups)

    def bounds(self, name: str) -> ColumnBounds:
        """Bounds of a column of ``comparable``, one element per row group, in stored form."""
        if name not in self._known:
            self._known[name] = self._read_bounds(name, self.comparable[name])
        return self._known[name]

    @cached_property
    def comparable(self) -> dict[str, str]:
        """Storage types, by name, of the columns whose values compare as keys do."""
        columns = entry_columns(self.definition).values()
        return {column.name: column.storage for column in columns if not is_ordered_apart(column)}

    @cached_property
    def _known(self) -> dict[str, ColumnBounds]:
        return {}

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """Entries in each row group."""
        return np.array([self.metadata.row_group(group).num_rows for group in range(len(self))], np.int64)

    @cached_property
    def column_bytes(self) -> dict[str, npt.NDArray[np.int64]]:
        """Compressed bytes of each column, one element per row group."""
        return {name: self._sizes(position) for name, position in self._positions.items()}

    def cost_of(
        self, groups: npt.NDArray[np.intp], columns: Sequence[str], parts: npt.NDArray[np.float64] | float = 1.0
    ) -> int:
        """Bytes of ``columns`` in some row groups, or in such ``parts`` of them."""
        return sum(int((self.column_bytes[name][groups] * parts).sum()) for name in columns)

    def ranges(self, group: int, columns: Sequence[str]) -> list[ChunkRange]:
        """Where ``columns`` of a row group lie."""
        row_group = self.metadata.row_group(group)
        return [_range(row_group.column(self._positions[name])) for name in columns]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {self.metadata.schema.column(n).path: n for n in range(self.metadata.num_columns)}

    def _sizes(self, position: int) -> npt.NDArray[np.int64]:
        groups = range(len(self))
        return np.array([self.metadata.row_group(g).column(position).total_compressed_size for g in groups], np.int64)

    def _read_bounds(self, name: str, storage: str) -> ColumnBounds:
        column = self._positions[name]
        groups = [self.metadata.row_group(group) for group in range(len(self))]
        statistics = [_statistics(group.column(column)) for group in groups]
        lower, upper, nulls = zip(*statistics, strict=True) if statistics else ((), (), ())
        rows = pa.array([group.num_rows for group in groups], pa.int64())
        unknown = pa.nulls(len(groups), pa.int64())
        return ColumnBounds(
            physical_keys(lower, storage), physical_keys(upper, storage), pa.array(nulls, pa.int64()), unknown, rows
        )


def _range(column: pq.ColumnChunkMetaData) -> ChunkRange:
    begin = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
    return ChunkRange(begin, begin + column.total_compressed_size)


def _statistics(column: pq.ColumnChunkMetaData) -> tuple[object, object, int | None]:
    statistics = column.statistics if column.is_stats_set else None
    if statistics is None:
        return None, None, None
    nulls = statistics.null_count if statistics.has_null_count else None
    return (statistics.min_raw, statistics.max_raw, nulls) if statistics.has_min_max else (None, None, nulls)


class RowGroups:
    """The row groups of several entry files one after the other, as ``files_that_may_match`` takes them."""

    def __init__(self, footers: Sequence[Footer], columns: Mapping[int, EntryColumn]) -> None:
        """The footers in order. ``columns``: those of entries by the field id that a test names."""
        self.footers = footers
        self.starts = np.cumsum([0, *map(len, footers)])
        self._columns = columns

    def __len__(self) -> int:
        """Number of row groups of all files."""
        return int(self.starts[-1])

    def bounds(self, field_id: int) -> ColumnBounds:
        """Bounds of a column. Raises KeyError for one that has none that compare."""
        column = self._columns[field_id]
        if is_ordered_apart(column):
            raise KeyError(field_id)
        parts = [footer.bounds(column.name) for footer in self.footers]
        return ColumnBounds(
            pa.concat_arrays([part.lower for part in parts]),
            pa.concat_arrays([part.upper for part in parts]),
            pa.concat_arrays([part.null_count for part in parts]),
            pa.concat_arrays([part.nan_count for part in parts]),
            pa.concat_arrays([part.value_count for part in parts]),
        )


_cache: ByteCache[tuple[str, int], Footer] = ByteCache(
    "footers", FOOTER_CACHE_BYTES, lambda footer: _DECODED * int(footer.metadata.serialized_size)
)


def read_footer(io: FileIO, file: IndexFile, definition: IndexDefinition) -> Footer:
    """The footer of an entry file. Raises UnreadableIndexFile."""
    return _cache.get((file.path, file.size), lambda: _read(io, file, definition))


def _read(io: FileIO, file: IndexFile, definition: IndexDefinition) -> Footer:
    with naming_file(file.path), io.new_input(file.path).open() as stream:
        footer = Footer(read_metadata(stream), definition, getattr(stream, "prefetch", None) is None)
        if footer.metadata.num_rows != file.records:
            raise UnreadableIndexFile(file.path, f"it has {footer.metadata.num_rows} entries instead of {file.records}")
        if lost := [name for name in entry_schema(definition).names if name not in footer.column_bytes]:
            raise UnreadableIndexFile(file.path, f"it has no column {lost[0]}")
        return footer

"""Puts entries in key order and writes them as files of an index table, one sorted run per buffer.

Used by the kernels of builds (keys of whole files) and of merges (entries of several runs), inside Spark tasks. A run
of a covering index is a file per bucket, when it has enough rows.
Bounded memory whatever comes in. Must not read files and must not commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.indexing.indexes import IndexDefinition

from skipstone.files.writer import DataFileWriter, WriteSpec, WrittenFile
from skipstone.indexes.buckets import Buckets
from skipstone.indexes.building.packing import Ordered, in_key_order, sort_order
from skipstone.indexes.building.spilling import Spills
from skipstone.indexes.definition import ENTRY, entry_schema
from skipstone.kernels.canonical import Int64s

#: What one task buffers, in bytes of Arrow data; sorting and writing it takes about twice as much again.
BUFFER_BYTES = 96 * 1024 * 1024


def with_partition(table: pa.Table, kind: str, level: int, bucket: int | None = None) -> pa.Table:
    """Add the partition columns of the index table; without ``bucket`` the one of buckets is null, if it has one."""
    kinds = pa.DictionaryArray.from_arrays(pa.nulls(table.num_rows, pa.int32()).fill_null(0), pa.array([kind]))
    levels = pa.nulls(table.num_rows, pa.int32()).fill_null(level)
    extended = table.append_column("kind", kinds.cast(pa.string())).append_column("level", levels)
    if bucket is None:
        return extended
    return extended.append_column("bucket", pa.nulls(table.num_rows, pa.int32()).fill_null(bucket))


class RunWriter:
    """Writes sorted runs, a file each.

    As a context manager it deletes what it wrote when the task fails: nobody will ever name those files.
    """

    def __init__(self, spec: WriteSpec, task_id: str, *, level: int) -> None:
        """Write nothing yet."""
        self._spec, self._task_id, self._level = spec, task_id, level
        self._writers: list[DataFileWriter] = []
        self.written: list[WrittenFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()

    def abort(self) -> None:
        """Delete what was written."""
        for writer in self._writers:
            writer.abort()

    def write_run(self, parts: Iterable[pa.Table], bucket: int | None = None) -> None:
        """Write one run, or its entries of one bucket; ``parts`` are of ``entry_schema`` and in order."""
        writer = DataFileWriter(self._spec, f"{self._task_id}-{len(self._writers)}")
        self._writers.append(writer)
        is_complete = not writer.arrow_schema.field("kind").nullable  # in index tables of earlier releases
        partition = (ENTRY, self._level, bucket)[: len(writer.partitioning.fields)]
        for rows in _in_groups(parts, self._spec.row_group_rows, self._spec.row_group_bytes):
            whole = with_partition(rows, ENTRY, self._level, bucket) if is_complete else rows
            writer.append(partition, whole)
        self.written.extend(writer.close())


def _in_groups(parts: Iterable[pa.Table], rows: int, nbytes: int) -> Iterator[pa.Table]:
    """The same rows in tables that fill row groups of so many ``rows``, or have ``nbytes``, but for the last."""
    held: list[pa.Table] = []
    count = size = 0
    for part in parts:
        held, count, size = [*held, part], count + part.num_rows, size + part.nbytes
        if count >= rows or size >= nbytes:
            whole, full = _joined(held), count if size >= nbytes else count // rows * rows
            yield whole.slice(0, full)
            held, count = [whole.slice(full)], count - full
            size = held[0].nbytes
    if count:
        yield _joined(held)


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    """In one piece: Parquet ends a page with every piece."""
    return pa.concat_tables(parts).combine_chunks() if len(parts) > 1 else parts[0]


class EntrySorter:
    """Collects entries in any order and writes them in key order, one run per buffer."""

    def __init__(self, runs: RunWriter, buffer_bytes: int = BUFFER_BYTES, buckets: Buckets | None = None) -> None:
        """Write to ``runs``; with ``buckets`` into a file each."""
        self._runs, self._buffer_bytes, self._buckets = runs, buffer_bytes, buckets
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch of ``entry_schema``."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        if not self._batches:
            return
        entries = pa.Table.from_batches(self._batches).combine_chunks()
        self._batches, self._bytes = [], 0
        keys = [_one_array(entries.column(name)) for name in entries.column_names if name.startswith("k")]
        for bucket, order in _orders(self._buckets, keys):
            self._runs.write_run(iter([entries.take(pa.array(order))]), bucket)


@dataclass(frozen=True)
class Origin:
    """Where ``rows`` neighboring rows stand: their file, row group and first position."""

    file_id: int
    row_group: int
    first: int
    rows: int


@dataclass(frozen=True)
class SortLimits:
    """The limits of a sort: bytes of Arrow data sorted at once, and the parts into which entries are divided before."""

    buffer_bytes: int = BUFFER_BYTES
    buckets: Buckets | None = None

    def spills(self, definition: IndexDefinition) -> Spills:
        """Where the entries of a task that are more than that wait."""
        return Spills(len(definition.columns) + (self.buckets is not None), self.buffer_bytes // 2)


class KeySorter:
    """Collects the columns of stretches of files and writes their entries in key order, as one run.

    Holds keys and included values only: where a row stands follows from its number, so a buffer of keys is worth
    several of entries. What is more than a buffer waits in files of this machine.
    """

    def __init__(self, definition: IndexDefinition, spills: Spills, limits: SortLimits) -> None:
        """Hold nothing yet. ``spills``: where sorted buffers wait."""
        self._keys, self._spills, self._limits = len(definition.columns), spills, limits
        self._schema = entry_schema(definition)
        if limits.buckets is not None:
            self._schema = self._schema.insert(0, _BUCKET)
        self._columns: list[Sequence[pa.Array]] = []
        self._origins: list[Origin] = []
        self._bytes = 0

    def add(self, columns: Sequence[pa.Array], origin: Origin) -> None:
        """Take the stored keys of a stretch and its included values, a column each."""
        if self._bytes >= self._limits.buffer_bytes:
            self._spills.add(self._taken())
        self._columns.append(columns)
        self._origins.append(origin)
        self._bytes += sum(column.nbytes for column in columns)

    def write(self, runs: RunWriter) -> None:
        """Write all entries; with buckets into a file each."""
        if not self._columns:
            return
        if self._spills:
            self._spills.add(self._taken())
        entries = self._spills.merged() if self._spills else self._taken()
        if self._limits.buckets is None:
            runs.write_run(entries)
            return
        for bucket, parts in groupby(_by_bucket(entries), itemgetter(0)):
            runs.write_run(map(itemgetter(1), parts), bucket)

    def _taken(self) -> Iterator[pa.Table]:
        """The entries of what is held, in order; nothing is held afterwards."""
        columns, self._columns = [list(parts) for parts in zip(*self._columns, strict=True)], []
        origins, self._origins, self._bytes = _Origins.of(self._origins), [], 0
        return self._entries(columns, origins)

    def _entries(self, columns: list[list[pa.Array]], origins: _Origins) -> Iterator[pa.Table]:
        keys, values = columns[: self._keys], [pa.concat_arrays(parts) for parts in columns[self._keys :]]
        if self._limits.buckets is not None:
            of = self._limits.buckets.of
            keys = [[pa.array(of(stretch).astype(np.int64)) for stretch in zip(*keys, strict=True)], *keys]
        for part in in_key_order(keys, origins.rows):
            rows = pa.array(origins.starts[part.stretches] + part.offsets)
            places = (pa.array(place) for place in origins.places(part))
            arrays = [*part.keys, *places, *(value.take(rows) for value in values)]
            yield pa.Table.from_arrays(arrays, schema=self._schema)


_BUCKET = pa.field("bucket", pa.int64())


def _by_bucket(entries: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Entries that are sorted by bucket first, bucket by bucket, without that column."""
    for part in entries:
        buckets = part.column(0).to_numpy()
        starts = np.flatnonzero(np.diff(buckets, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(buckets)], strict=True):
            yield int(buckets[start]), part.slice(start, end - start).drop_columns([_BUCKET.name])


@dataclass(frozen=True)
class _Origins:
    """The origins of stretches, by their number. ``starts``: how many rows the stretches before have."""

    file_ids: npt.NDArray[np.int32]
    row_groups: npt.NDArray[np.int32]
    firsts: Int64s
    rows: list[int]
    starts: Int64s

    @classmethod
    def of(cls, origins: Sequence[Origin]) -> _Origins:
        """In columns."""
        file_ids, row_groups = (
            np.array(column, np.int32)
            for column in zip(*((origin.file_id, origin.row_group) for origin in origins), strict=True)
        )
        rows = [origin.rows for origin in origins]
        return cls(
            file_ids, row_groups, np.array([origin.first for origin in origins]), rows, np.cumsum([0, *rows[:-1]])
        )

    def places(self, part: Ordered) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Int64s]:
        """File id, row group and position in the file of some rows."""
        at = part.stretches
        return self.file_ids[at], self.row_groups[at], self.firsts[at] + part.offsets


def _orders(buckets: Buckets | None, keys: Sequence[pa.Array]) -> Iterator[tuple[int | None, Int64s]]:
    """Where the rows of each bucket stand in key order; without buckets those of all."""
    order = sort_order(keys)
    if buckets is None:
        yield None, order
    else:
        yield from buckets.split(keys, order)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

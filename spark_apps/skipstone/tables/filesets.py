"""The live data files of one pinned snapshot, column-wise, with the deletes that apply to each.

Called by loads, index builds, merges and the query planner. Reads manifests; never lists directories.
Must not keep one Python object per file and column: 100,000 files are normal.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType, IcebergType
from skipstone_core.indexing.snapshots import Pinned

from skipstone.caches import ByteCache
from skipstone.compat.avro.whole import NotWholeError
from skipstone.compat.lineage.reading import read_manifests
from skipstone.tables.arrow import arrow_type_of
from skipstone.tables.bounds import decode_bounds, trusted
from skipstone.tables.decoding.entries import ENTRY_SCHEMA, DataManifest, Partition, map_values
from skipstone.tables.decoding.manifests import ManifestCounters, live_entries, read_data_manifests, to_data_file
from skipstone.tables.deletes import Delete, DeleteIndex, DeleteScope
from skipstone.tables.slimmanifests import STATISTICS, SlimManifest, learn_columns, read_slim_manifests
from skipstone.tables.storage import forget_content

#: Columns of ``FileSet.files``. ``segment``: file sequence number (0 for files written as format v1);
#: ``file_id``: ordinal within this FileSet. ``first_row_id``: null where rows have no ids.
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
        pa.field("first_row_id", pa.int64()),
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


class SpecPartition(NamedTuple):
    """A partition of one spec."""

    spec_id: int
    values: Partition


class DataFileFacts(NamedTuple):
    """The fields of an entry that readers need: no statistics. ``partition``: Iceberg's internal values."""

    path: str
    size: int
    records: int
    format: FileFormat
    spec_id: int
    partition: Partition
    data_sequence: int
    first_row_id: int | None


@dataclass(frozen=True)
class SnapshotContent:
    """The content of the manifests of a snapshot. ``decode_counts``: where this read had the data manifests from."""

    manifests: Sequence[DataManifest | SlimManifest]
    deletes: DeleteIndex
    decode_counts: ManifestCounters


class FileSet:
    """All live data files of one snapshot; ordinals (``file_id``) are valid within this object only."""

    def __init__(self, pinned: Pinned, snapshot: Snapshot | None, schema: Schema, content: SnapshotContent) -> None:
        """Made by ``read_file_set``; ``schema`` is the one bounds are typed in."""
        self.pinned = pinned
        self.schema = schema
        self.snapshot_id = snapshot.snapshot_id if snapshot else None
        self.sequence_number = (snapshot.sequence_number or 0) if snapshot else 0
        self.table_uuid = pinned.table_uuid
        self.decode_counts = content.decode_counts
        self._manifests, self._deletes = content.manifests, content.deletes
        self._starts = np.cumsum([0, *(manifest.count for manifest in self._manifests)])
        #: By field id and type: a schema may read a column in a wider one.
        self._bounds: dict[tuple[int, str], ColumnBounds] = {}
        self._column_sizes: dict[int, pa.Array] = {}

    def __len__(self) -> int:
        """Number of live data files."""
        return int(self._starts[-1])

    def in_schema(self, schema: Schema) -> FileSet:
        """The same files for a run that reads them in ``schema``, an evolution of the pinned one."""
        copied = copy.copy(self)
        copied.schema = schema
        return copied

    @cached_property
    def files(self) -> pa.Table:
        """One row per live data file, see FILES_SCHEMA."""
        wanted = FILES_SCHEMA.remove(0)
        batches = [manifest.select(wanted.names) for manifest in self._manifests]
        schema = pa.schema([ENTRY_SCHEMA.field(name) for name in wanted.names])
        table = pa.Table.from_batches(batches, schema).cast(wanted)
        ids = pa.array(np.arange(len(self), dtype=np.int32))
        table = table.add_column(0, FILES_SCHEMA.field(0), ids)
        return table if self.is_slim else table.combine_chunks()  # else there would be two of each

    @cached_property
    def digest(self) -> bytes:
        """Of all paths, in the order of their ordinals: tells whether ordinals of another set mean the same files."""
        lengths, texts = (hashlib.blake2b(digest_size=16) for _ in range(2))
        for paths in filter(len, self.files["path"].chunks):
            _, ends, data = paths.buffers()
            offsets = np.frombuffer(ends, np.int32)[paths.offset : paths.offset + len(paths) + 1]
            lengths.update(np.diff(offsets).tobytes())
            texts.update(memoryview(data or b"")[offsets[0] : offsets[-1]])
        return lengths.digest() + texts.digest()

    @property
    def is_slim(self) -> bool:
        """Return whether statistics are read again when they are asked for, as there are too many to be kept."""
        return any(isinstance(manifest, SlimManifest) for manifest in self._manifests)

    def learn(self, field_ids: Collection[int]) -> None:
        """Have the bounds of some columns at hand, where they are read again: all in one go.

        Raises OSError and NotWholeError.
        """
        slim = [manifest for manifest in self._manifests if isinstance(manifest, SlimManifest)]
        try:
            learn_columns(slim, [number for number in field_ids if self._bounds_key(number) not in self._bounds])
        except NotWholeError as error:
            forget_content(error.name)
            raise

    def read_with(self, io: FileIO) -> None:
        """Read what is read again with ``io`` from now on."""
        for manifest in self._manifests:
            if isinstance(manifest, SlimManifest):
                manifest.storage.io = io

    def entries(self, names: Sequence[str], ordinals: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Columns of the manifest entries of some files (see ENTRY_SCHEMA): one row for each of ``ordinals``."""
        which = np.searchsorted(self._starts, ordinals, side="right") - 1
        numbers = np.unique(which)
        wholes = [self._manifests[number] for number in numbers]
        if not set(STATISTICS).isdisjoint(names):
            wholes = [manifest.whole() for manifest in wholes]
        batches = [manifest.select(names) for manifest in wholes]
        entries = pa.concat_batches(batches) if batches else self._no_entries(names)
        starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        rows = ordinals - self._starts[which] + starts[np.searchsorted(numbers, which)]
        return entries if _are_all(rows, len(entries)) else entries.take(pa.array(rows))

    def _no_entries(self, names: Sequence[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], pa.schema([ENTRY_SCHEMA.field(name) for name in names]))

    @cached_property
    def row_group_counts(self) -> npt.NDArray[np.int64]:
        """Row groups of each file as its manifest says; 0 where it says nothing."""
        counts = [pc.list_value_length(manifest.column("split_offsets")) for manifest in self._manifests]
        filled = pc.fill_null(pa.concat_arrays([pa.nulls(0, pa.int32()), *counts]), 0)
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)

    @cached_property
    def are_parquet(self) -> npt.NDArray[np.bool_]:
        """One boolean per file: whether it is a Parquet file."""
        equal = [pc.equal(manifest.column("format"), FileFormat.PARQUET.value) for manifest in self._manifests]
        masks = [mask.to_numpy(zero_copy_only=False) for mask in equal]
        return np.concatenate([np.empty(0, np.bool_), *masks])

    def bounds(self, field_id: int) -> ColumnBounds:
        """Bounds of the column ``field_id`` of the pinned schema; untrusted ones are null.

        Raises KeyError when the pinned schema has no such primitive column.
        """
        kind, key = self._type_of(field_id), self._bounds_key(field_id)
        if key not in self._bounds:
            self._bounds[key] = self._read_bounds(field_id, kind)
        return self._bounds[key]

    def _bounds_key(self, field_id: int) -> tuple[int, str]:
        field = self.schema.find_column_name(field_id)
        return field_id, "" if field is None else str(self.schema.find_field(field_id).field_type)

    def _read_bounds(self, field_id: int, kind: IcebergType) -> ColumnBounds:
        self.learn([field_id])
        counts = [self._statistic(name, field_id) for name in ("null_counts", "nan_counts", "value_counts")]
        raw = [decode_bounds(self._statistic(name, field_id), kind, arrow_type_of(kind)) for name in ("lower", "upper")]
        has_nan = isinstance(kind, FloatType | DoubleType)
        lower, upper = trusted(raw[0], raw[1], counts[1] if has_nan else None)
        return ColumnBounds(lower, upper, *counts)

    def data_file(self, ordinal: int) -> DataFile:
        """The PyIceberg data file with spec id and statistics, as commits and readers take it."""
        manifest, row = self._locate(ordinal)
        return to_data_file(manifest.whole(), row)

    def facts(self, ordinal: int) -> DataFileFacts:
        """As ``data_file``, without the statistics, of which a table of many columns has many."""
        manifest, row = self._locate(ordinal)

        def value(name: str) -> Any:
            return manifest.column(name)[row].as_py()

        return DataFileFacts(
            path=value("path"),
            size=value("size"),
            records=value("records"),
            format=FileFormat(value("format")),
            spec_id=manifest.spec_id,
            partition=manifest.partition(row),
            data_sequence=value("data_sequence"),
            first_row_id=value("first_row_id"),
        )

    def deletes(self, ordinal: int) -> tuple[DataFile, ...]:
        """Delete files (position, deletion vector, equality) that apply to the file."""
        return tuple(delete.file for delete in self.applying_deletes(ordinal))

    def applying_deletes(self, ordinal: int) -> list[Delete]:
        """Like ``deletes`` with kind, sequence and snapshot of each."""
        if not self._deletes:
            return []
        manifest, row = self._locate(ordinal)
        path, sequence = (manifest.column(name)[row].as_py() for name in ("path", "data_sequence"))
        return self._deletes.applying(path, DeleteScope(manifest.spec_id, manifest.partition(row)), sequence)

    def deletes_of_each(self, ordinals: npt.NDArray[np.int64]) -> list[list[Delete]]:
        """As ``applying_deletes`` of each of many files."""
        if not self._deletes:
            return [[] for _ in ordinals]
        entries = self.entries(("path", "data_sequence"), ordinals)
        partitions, numbers = self.partitions()
        scopes = [DeleteScope(*partition) for partition in partitions]
        facts = (entries.column(name).to_pylist() for name in ("path", "data_sequence"))
        return [
            self._deletes.applying(path, scopes[number], sequence)
            for path, sequence, number in zip(*facts, numbers[ordinals].tolist(), strict=True)
        ]

    def has_deletes(self, ordinal: int) -> bool:
        """Return whether any delete file applies to the file."""
        return bool(self.applying_deletes(ordinal))

    @property
    def delete_files(self) -> list[Delete]:
        """Every live delete file of the snapshot."""
        return self._deletes.all()

    def partition(self, ordinal: int) -> tuple[object, ...]:
        """The file's partition tuple in Iceberg's internal values, in the order of its spec."""
        manifest, row = self._locate(ordinal)
        return manifest.partition(row)

    def partitions(self) -> tuple[list[SpecPartition], npt.NDArray[np.int64]]:
        """Each distinct partition, and the number of its partition for each file."""
        return self._partitions

    @cached_property
    def _partitions(self) -> tuple[list[SpecPartition], npt.NDArray[np.int64]]:
        numbers: dict[SpecPartition, int] = {}
        of_files = [np.empty(0, dtype=np.int64)]
        for manifest in self._manifests:
            partitions = (SpecPartition(manifest.spec_id, partition) for partition in manifest.partitions)
            known = np.array([numbers.setdefault(partition, len(numbers)) for partition in partitions], dtype=np.int64)
            of_files.append(known[manifest.column("partition").to_numpy()])
        return list(numbers), np.concatenate(of_files)

    @cached_property
    def spec_ids(self) -> tuple[int, ...]:
        """The specs of all data and delete files."""
        deletes = (delete.file.spec_id for delete in self.delete_files)
        return tuple(sorted({*(manifest.spec_id for manifest in self._manifests), *deletes}))

    def column_bytes(self, field_ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Compressed bytes of some columns in each file; the whole file where its manifest does not say."""
        columns = [self._sizes_of(field_id) for field_id in field_ids]
        sizes = np.zeros(len(self), dtype=np.int64)
        for column in columns:
            sizes += np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
        known = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in columns])
        return np.where(known, sizes, self.files["size"].to_numpy())

    def _sizes_of(self, field_id: int) -> pa.Array:
        sizes = self._column_sizes.get(field_id)
        if sizes is None:
            sizes = self._column_sizes[field_id] = self._statistic("column_sizes", field_id)
        return sizes

    def _type_of(self, field_id: int) -> IcebergType:
        try:
            return self.schema.find_field(field_id).field_type
        except ValueError:
            raise KeyError(field_id) from None

    def _statistic(self, name: str, field_id: int) -> pa.Array:
        value_type = pa.binary() if name in ("lower", "upper") else pa.int64()
        arrays = [pa.nulls(0, value_type)]
        for is_small, manifests in groupby(self._manifests, _is_small):
            if is_small:  # of many small ones, Arrow's calls take longer than a copy of all statistics
                arrays.append(map_values(pa.concat_arrays([manifest.column(name) for manifest in manifests]), field_id))
            else:
                arrays += [manifest.statistic(name, field_id) for manifest in manifests]
        return pa.concat_arrays(arrays)

    def _locate(self, ordinal: int) -> tuple[DataManifest | SlimManifest, int]:
        if not 0 <= ordinal < len(self):
            raise IndexError(ordinal)
        at = int(np.searchsorted(self._starts, ordinal, side="right")) - 1
        return self._manifests[at], ordinal - int(self._starts[at])


#: Entries of manifests whose statistics are put together before they are searched.
_SMALL = 256


def _is_small(manifest: DataManifest | SlimManifest) -> bool:
    return isinstance(manifest, DataManifest) and manifest.count <= _SMALL


def _are_all(rows: npt.NDArray[np.int64], count: int) -> bool:
    return len(rows) == count and bool((rows == np.arange(count)).all())


#: Memory for files of snapshots, in bytes, and about what a file takes with bounds of some columns.
FILE_SET_CACHE_BYTES = 64 * 1024 * 1024
_FILE_BYTES = 512
_known: ByteCache[_SetKey, FileSet] = ByteCache("file sets", FILE_SET_CACHE_BYTES, lambda files: _cost(files))
#: Likewise of tables with so many files that each of them fills the other.
MANY_FILES = FILE_SET_CACHE_BYTES // _FILE_BYTES
MANY_FILES_CACHE_BYTES = 544 * 1024 * 1024
_many: ByteCache[_SetKey, FileSet] = ByteCache(
    "file sets of many files", MANY_FILES_CACHE_BYTES, lambda files: _cost(files)
)
_SetKey = tuple[str, str, int | None]


def _cost(files: FileSet) -> int:
    return _FILE_BYTES * (1 + len(files))


def known_file_set(table: Table, snapshot_id: int | None = None, columns: Collection[int] = ()) -> FileSet:
    """As ``read_file_set``, for readers: remembered by the metadata file, which never changes, and the snapshot.

    Of more than MANY_FILES, statistics are read again when they are asked for, and kept by column. ``columns``: field
    ids of those whose bounds will be asked for, so that all are read at once.
    """
    key = (table.metadata_location, str(table.metadata.table_uuid), snapshot_id)
    file_set = _many.peek(key)
    if file_set is None:
        file_set = _known.get(key, lambda: _read(table, snapshot_id, _Slim(MANY_FILES, columns)))
        if not file_set.is_slim:
            return file_set
        _many.put(key, file_set)
    file_set.read_with(table.io)
    file_set.learn(columns)
    return file_set


def read_file_set(table: Table, snapshot_id: int | None = None) -> FileSet:
    """Read the manifests of ``snapshot_id`` (None: the current snapshot; no snapshot at all gives an empty set).

    Bounds are typed by the schema of that snapshot. Raises KeyError for a snapshot the table does not have,
    NotWholeError for a manifest or list that is damaged, which is read again the next time.
    """
    return _read(table, snapshot_id)


class _Slim(NamedTuple):
    """With more than ``most`` files, statistics are read again when they are asked for, but for some ``columns``."""

    most: int
    columns: Collection[int]


def _read(table: Table, snapshot_id: int | None, slim: _Slim | None = None) -> FileSet:
    try:
        return _read_file_set(table, snapshot_id, slim)
    except NotWholeError as error:
        forget_content(error.name)
        raise


def _read_file_set(table: Table, snapshot_id: int | None, slim: _Slim | None) -> FileSet:
    snapshot = _snapshot(table, snapshot_id)
    schema = _schema_at(table, snapshot, current=snapshot_id is None)
    listed = read_manifests(snapshot, table.io, table.metadata.format_version) if snapshot else []
    data = [manifest for manifest in listed if manifest.content == ManifestContent.DATA]
    manifests: Sequence[DataManifest | SlimManifest]
    if slim is not None and sum(map(_files_in, data)) > slim.most:
        manifests, decode_counts = read_slim_manifests(data, table.io, slim.columns), ManifestCounters()
    else:
        manifests, decode_counts = read_data_manifests(data, table.io)
    deletes = DeleteIndex()
    for manifest in listed:
        if manifest.content == ManifestContent.DELETES:
            spec = table.specs()[manifest.partition_spec_id]
            for entry in live_entries(manifest, table.io):
                deletes.add(entry, spec)
    pinned = Pinned(
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        schema_id=schema.schema_id,
        spec_id=table.spec().spec_id,
        format_version=table.metadata.format_version,
    )
    return FileSet(pinned, snapshot, schema, SnapshotContent(manifests, deletes, decode_counts))


def _files_in(manifest: ManifestFile) -> int:
    """Live files, as far as the manifest list says."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


@dataclass(frozen=True)
class PinnedTable:
    """A table with the live files of the snapshot that work on it is planned for."""

    table: Table
    files: FileSet


def pin_table(table: Table) -> Pinned:
    """Return the state of ``table`` that a run plans on, and must find unchanged, or validate, when it commits."""
    snapshot = table.current_snapshot()
    return Pinned(
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        schema_id=table.schema().schema_id,
        spec_id=table.spec().spec_id,
        format_version=table.metadata.format_version,
    )


def _snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    if snapshot_id is None:
        return table.current_snapshot()
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise KeyError(snapshot_id)
    return snapshot


def _schema_at(table: Table, snapshot: Snapshot | None, *, current: bool) -> Schema:
    """A run on the head reads in the table's schema (it may be newer than the last snapshot); else the snapshot's."""
    return table.schema() if current else schema_of(table, snapshot)


def schema_of(table: Table, snapshot: Snapshot | None) -> Schema:
    """The schema of ``snapshot``; the table's if the snapshot names none, or one that the metadata does not have."""
    named = table.schemas().get(snapshot.schema_id) if snapshot and snapshot.schema_id is not None else None
    return named or table.schema()

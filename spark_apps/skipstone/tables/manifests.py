"""Manifests as Arrow tables: decoded once per path, kept in a byte-budgeted cache (manifests never change).

Used by FileSet only. Must not decide which file is live beyond what a manifest entry says.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.typedef import Record

CACHE_BYTES = 256 * 1024 * 1024
_COUNTS = pa.map_(pa.int32(), pa.int64())
_BOUNDS = pa.map_(pa.int32(), pa.binary())
#: Iceberg's read version that knows deletion vectors.
_READ_VERSION = 3

#: Columns of a decoded data manifest; ``partition`` indexes ``DataManifest.partitions``.
ENTRY_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("records", pa.int64()),
        ("segment", pa.int64()),
        ("added_snapshot_id", pa.int64()),
        ("data_sequence", pa.int64()),
        ("spec_id", pa.int32()),
        ("partition", pa.int32()),
        ("format", pa.string()),
        ("sort_order_id", pa.int32()),
        ("split_offsets", pa.list_(pa.int64())),
        ("column_sizes", _COUNTS),
        ("value_counts", _COUNTS),
        ("null_counts", _COUNTS),
        ("nan_counts", _COUNTS),
        ("lower", _BOUNDS),
        ("upper", _BOUNDS),
    ]
)


@dataclass(frozen=True)
class DataManifest:
    """The live entries of one data manifest; ``partitions`` holds each distinct partition tuple once."""

    spec_id: int
    entries: pa.RecordBatch
    partitions: tuple[tuple[Any, ...], ...]

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        return int(self.entries.nbytes) + 64 * len(self.partitions)

    def partition(self, row: int) -> tuple[Any, ...]:
        """Partition tuple of one entry, in Iceberg's internal values."""
        return self.partitions[self.entries.column("partition")[row].as_py()]


_cache: LRUCache[str, DataManifest] = LRUCache(CACHE_BYTES, getsizeof=lambda manifest: manifest.nbytes)
_lock = threading.Lock()


def read_data_manifest(manifest: ManifestFile, io: FileIO) -> DataManifest:
    """The live entries of ``manifest``, from the cache when it was read before in this process."""
    with _lock:
        found = _cache.get(manifest.manifest_path)
    if found is not None:
        return found
    decoded = _to_arrow(live_entries(manifest, io), manifest.partition_spec_id)
    with _lock:
        if decoded.nbytes <= CACHE_BYTES:
            _cache[manifest.manifest_path] = decoded
    return decoded


def live_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Entries that are not deleted, with inherited sequence numbers, snapshot and spec."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[_READ_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return [
            _inherit_from_manifest(entry, manifest) for entry in reader if entry.status != ManifestEntryStatus.DELETED
        ]


def _to_arrow(entries: Iterable[ManifestEntry], spec_id: int) -> DataManifest:
    partitions: dict[tuple[Any, ...], int] = {}
    columns: list[list[Any]] = [[] for _ in ENTRY_SCHEMA]
    for entry in entries:
        key = partition_tuple(entry.data_file)
        ordinal = partitions.setdefault(key, len(partitions))
        for column, value in zip(columns, _row(entry, ordinal), strict=True):
            column.append(value)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ENTRY_SCHEMA, strict=True)]
    return DataManifest(spec_id, pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA), tuple(partitions))


def partition_tuple(file: DataFile) -> tuple[Any, ...]:
    """The partition of ``file`` as a hashable tuple of Iceberg's internal values; every NaN is the same object.

    NaN equals itself by identity only, and deletes are found by partition.
    """
    values = (file.partition[position] for position in range(len(file.partition)))
    return tuple(math.nan if isinstance(value, float) and math.isnan(value) else value for value in values)


def _row(entry: ManifestEntry, partition: int) -> tuple[Any, ...]:
    file = entry.data_file
    return (
        file.file_path,
        file.file_size_in_bytes,
        file.record_count,
        entry.file_sequence_number or 0,
        entry.snapshot_id,
        entry.sequence_number or 0,
        file.spec_id,
        partition,
        file.file_format.value,
        file.sort_order_id,
        file.split_offsets,
        *(list(counts.items()) if counts else [] for counts in _statistics(file)),
    )


def _statistics(file: DataFile) -> tuple[Any, ...]:
    return (
        file.column_sizes,
        file.value_counts,
        file.null_value_counts,
        file.nan_value_counts,
        file.lower_bounds,
        file.upper_bounds,
    )


def to_data_file(manifest: DataManifest, row: int) -> DataFile:
    """The PyIceberg data file of one entry, with spec id and statistics."""
    values = {name: manifest.entries.column(name)[row].as_py() for name in ENTRY_SCHEMA.names}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=values["path"],
        file_format=FileFormat(values["format"]),
        partition=Record(*manifest.partition(row)),
        record_count=values["records"],
        file_size_in_bytes=values["size"],
        column_sizes=dict(values["column_sizes"]),
        value_counts=dict(values["value_counts"]),
        null_value_counts=dict(values["null_counts"]),
        nan_value_counts=dict(values["nan_counts"]),
        lower_bounds=dict(values["lower"]),
        upper_bounds=dict(values["upper"]),
        split_offsets=values["split_offsets"],
        sort_order_id=values["sort_order_id"],
        key_metadata=None,
        equality_ids=None,
    )
    file.spec_id = manifest.spec_id
    return file

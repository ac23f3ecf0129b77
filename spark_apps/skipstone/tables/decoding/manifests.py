"""The data manifests of a snapshot as Arrow: decoded once per process, and once per machine where a folder is kept.

Used by FileSet only; manifests never change. Must not decide which file is live beyond what a manifest entry says.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory

from skipstone.compat.lineage.reading import file_row_id, read_entries, require_all
from skipstone.tables.decoding.avro import Container, NotDecodable, read_container
from skipstone.tables.decoding.decoder import decode_manifests
from skipstone.tables.decoding.decodes import DecodeFolder, ManifestKey, compacted, open_folder
from skipstone.tables.decoding.entries import ENTRY_SCHEMA, DataManifest, Partition, canonical_partition

CACHE_BYTES = 256 * 1024 * 1024
#: Bytes of manifests that are fetched and decoded together: bounds memory, yet spares small manifests a step each.
_BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class ManifestCounters:
    """Where data manifests came from. ``by_pyiceberg`` of the ``decoded`` needed PyIceberg's own, slower reader;
    ``bytes_read``: lengths of the decoded manifests as stored."""

    from_memory: int = 0
    from_disk: int = 0
    decoded: int = 0
    by_pyiceberg: int = 0
    bytes_read: int = 0

    def __add__(self, other: ManifestCounters) -> ManifestCounters:
        """Both together."""
        return ManifestCounters(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


_cache: LRUCache[ManifestKey, DataManifest] = LRUCache(CACHE_BYTES, getsizeof=lambda manifest: manifest.nbytes)
_lock = threading.Lock()


def read_data_manifests(manifests: Sequence[ManifestFile], io: FileIO) -> tuple[list[DataManifest], ManifestCounters]:
    """The live entries of each of ``manifests``, and where they came from.

    Raises OSError when they cannot be read, and NotWholeError when they are not all there.
    """
    keys = [ManifestKey.of(manifest) for manifest in manifests]
    by_key = _from_memory(keys)
    counters = ManifestCounters(from_memory=len(by_key))
    missing = {key: manifest for key, manifest in zip(keys, manifests, strict=True) if key not in by_key}
    if missing:
        loaded, more = _load(missing, io)
        _remember(loaded)
        by_key, counters = by_key | loaded, counters + more
    return [by_key[key] for key in keys], counters


def decode_data_manifests(manifests: Sequence[ManifestFile], io: FileIO) -> Iterator[DataManifest]:
    """The live entries of one after the other of ``manifests``, of which nothing is kept.

    Raises OSError when they cannot be read, and NotWholeError when they are not all there.
    """
    for batch in _batches(manifests, _BATCH_BYTES // 8):
        decoded, _ = _decode(batch, io)
        for manifest, entries in zip(batch, decoded, strict=True):
            require_all(manifest, entries.entries.num_rows)
            yield entries


def _from_memory(keys: Iterable[ManifestKey]) -> dict[ManifestKey, DataManifest]:
    with _lock:
        return {key: kept for key in keys if (kept := _cache.get(key)) is not None}


def _remember(loaded: dict[ManifestKey, DataManifest]) -> None:
    with _lock:
        for key, manifest in loaded.items():
            if manifest.nbytes <= CACHE_BYTES:
                _cache[key] = manifest


def _load(
    missing: dict[ManifestKey, ManifestFile], io: FileIO
) -> tuple[dict[ManifestKey, DataManifest], ManifestCounters]:
    folder = open_folder()
    by_key = {key: kept for key in missing if folder and (kept := folder.load(key))}
    counters = ManifestCounters(from_disk=len(by_key))
    for batch in _batches([manifest for key, manifest in missing.items() if key not in by_key]):
        decoded, by_pyiceberg = _decode(batch, io)
        for manifest, entries in zip(batch, decoded, strict=True):
            key = ManifestKey.of(manifest)
            require_all(manifest, entries.entries.num_rows)
            by_key[key] = _keep(key, entries, folder)
        size = sum(manifest.manifest_length for manifest in batch)
        counters += ManifestCounters(decoded=len(batch), by_pyiceberg=by_pyiceberg, bytes_read=size)
    return by_key, counters


def _batches(manifests: Sequence[ManifestFile], most: int = _BATCH_BYTES) -> Iterator[list[ManifestFile]]:
    """Manifests to decode together: as many as are not more than ``most`` bytes, at least one."""
    batch: list[ManifestFile] = []
    size = 0
    for manifest in manifests:
        size += manifest.manifest_length
        if batch and size > most:
            yield batch
            batch, size = [], manifest.manifest_length
        batch.append(manifest)
    if batch:
        yield batch


def _keep(key: ManifestKey, entries: DataManifest, folder: DecodeFolder | None) -> DataManifest:
    """Keep the entries on disk and take them from there, which frees memory; without a folder as they are."""
    if folder:
        folder.save(key, entries)
    return (folder and folder.load(key)) or compacted(key, entries)


def _decode(batch: Sequence[ManifestFile], io: FileIO) -> tuple[list[DataManifest], int]:
    """The entries of each manifest, and how many needed PyIceberg's reader."""
    containers = ExecutorFactory.get_or_create().map(lambda manifest: _container(manifest, io), batch)
    alike: dict[str, dict[int, Container]] = defaultdict(dict)
    for number, container in enumerate(containers):
        if container:
            alike[container.schema][number] = container
    decoded: dict[int, DataManifest] = {}
    for group in alike.values():
        decoded |= _decode_alike(group, batch)
    entries = [
        decoded.get(number) or _to_arrow(live_entries(manifest, io), manifest.partition_spec_id)
        for number, manifest in enumerate(batch)
    ]
    return entries, len(batch) - len(decoded)


def _decode_alike(group: dict[int, Container], batch: Sequence[ManifestFile]) -> dict[int, DataManifest]:
    """Entries by number in ``batch``; without those that only PyIceberg can read."""
    try:
        decoded = decode_manifests(list(group.values()), [batch[number] for number in group])
        return dict(zip(group, decoded, strict=True))
    except NotDecodable:
        if len(group) == 1:
            return {}
    singles = (_decode_alike({number: container}, batch) for number, container in group.items())
    return {number: entries for single in singles for number, entries in single.items()}


def _container(manifest: ManifestFile, io: FileIO) -> Container | None:
    with io.new_input(manifest.manifest_path).open() as stream:
        data = stream.read()
    try:
        return read_container(data)
    except NotDecodable:
        return None


def live_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Entries that are not deleted, with what they inherit: sequence numbers, snapshot, spec and first row ids."""
    return read_entries(manifest, io)


def _to_arrow(entries: Iterable[ManifestEntry], spec_id: int) -> DataManifest:
    partitions: dict[Partition, int] = {}
    columns: list[list[Any]] = [[] for _ in ENTRY_SCHEMA]
    for entry in entries:
        key = partition_tuple(entry.data_file)
        ordinal = partitions.setdefault(key, len(partitions))
        for column, value in zip(columns, _row(entry, ordinal), strict=True):
            column.append(value)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ENTRY_SCHEMA, strict=True)]
    return DataManifest(spec_id, pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA), tuple(partitions))


def partition_tuple(file: DataFile) -> Partition:
    """The partition of ``file`` in Iceberg's internal values, see ``canonical_partition``."""
    return canonical_partition(file.partition[position] for position in range(len(file.partition)))


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
        file_row_id(file),
        file.file_format.value,
        file.sort_order_id,
        file.split_offsets,
        *(list(counts.items()) if counts else [] for counts in _statistics(file)),
        file.key_metadata,
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
        key_metadata=values["key_metadata"],
        equality_ids=None,
    )
    file.spec_id = manifest.spec_id
    return file

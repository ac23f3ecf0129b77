"""Manifests of tables of very many files: what plans need of each entry stays in memory, statistics by column.

Used by FileSet. A whole entry takes over a kilobyte once decoded, most of it bounds and counts of columns that nobody
asks for. Those of a column are read when they are wanted first, and kept by column. Must not decide which file is live.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from skipstone.tables.decoding.decodes import ManifestKey
from skipstone.tables.decoding.entries import ENTRY_SCHEMA, DataManifest, Partition, map_values
from skipstone.tables.decoding.manifests import decode_data_manifests, read_data_manifests

#: Columns of entries that hold statistics of each column of the table.
STATISTICS: Final = ("column_sizes", "value_counts", "null_counts", "nan_counts", "lower", "upper")
_SLIM_SCHEMA = pa.schema([column for column in ENTRY_SCHEMA if column.name not in STATISTICS])
#: What of a column is read together, as bounds are of no use without counts.
_TOGETHER: Final = STATISTICS[1:]


@dataclass
class ManifestStorage:
    """Where manifests are read again: by the FileIO of who asked last, as credentials grow old."""

    io: FileIO


@dataclass(frozen=True)
class _Constant:
    """The same value so many times."""

    value: pa.Scalar
    count: int

    def __len__(self) -> int:
        return self.count

    def array(self) -> pa.Array:
        return pa.repeat(self.value, self.count)


@dataclass(eq=False)
class SlimManifest:
    """As DataManifest, without the statistics."""

    manifest: ManifestFile
    storage: ManifestStorage
    spec_id: int
    partitions: tuple[Partition, ...]
    _columns: Mapping[str, pa.Array | _Constant]
    _known: dict[tuple[str, int], pa.Array | _Constant] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: ManifestFile, storage: ManifestStorage, whole: DataManifest) -> Self:
        """Return the kept parts of ``whole``, in memory that others do not share."""
        columns = {name: _packed(_owned(whole.column(name))) for name in _SLIM_SCHEMA.names}
        return cls(manifest, storage, whole.spec_id, whole.partitions, columns)

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self._columns["path"])

    def column(self, name: str) -> pa.Array:
        """A column of the entries, but for statistics."""
        return _array(self._columns[name])

    def select(self, names: Sequence[str]) -> pa.RecordBatch:
        """Some columns of the entries, but for statistics."""
        return pa.RecordBatch.from_arrays([self.column(name) for name in names], names=list(names))

    def partition(self, row: int) -> Partition:
        """Partition tuple of one entry, in Iceberg's internal values."""
        return self.partitions[self.column("partition")[row].as_py()]

    def whole(self) -> DataManifest:
        """With all statistics. Raises OSError and NotWholeError when the manifest cannot be read again."""
        (whole,), _ = read_data_manifests([self.manifest], self.storage.io)
        return whole

    def knows(self, field_id: int) -> bool:
        """Return whether the bounds and counts of a column are in memory."""
        return (_TOGETHER[0], field_id) in self._known

    def statistic(self, name: str, field_id: int) -> pa.Array:
        """A statistic of a column for each entry. Raises as ``whole`` does."""
        kept = self._known.get((name, field_id))
        if kept is None:
            return map_values(self.whole().entries.column(name), field_id)
        return _array(kept)

    def learn(self, whole: DataManifest, field_ids: Collection[int]) -> None:
        """Keep the bounds and counts of some columns."""
        for name, field_id in itertools.product(_TOGETHER, field_ids):
            self._known[name, field_id] = _packed(map_values(whole.entries.column(name), field_id))


#: Those that some FileSet holds: the next snapshot has most of them, too.
_held: WeakValueDictionary[ManifestKey, SlimManifest] = WeakValueDictionary()


def read_slim_manifests(
    manifests: Sequence[ManifestFile], io: FileIO, field_ids: Collection[int] = ()
) -> list[SlimManifest]:
    """The live entries of each of ``manifests``, with the bounds and counts of some columns where they are read now.

    Raises OSError and NotWholeError when they cannot be read.
    """
    keys, storage = [ManifestKey.of(manifest) for manifest in manifests], ManifestStorage(io)
    by_key = {key: kept for key in keys if (kept := _held.get(key)) is not None}
    missing = {key: manifest for key, manifest in zip(keys, manifests, strict=True) if key not in by_key}
    decoded = decode_data_manifests(list(missing.values()), io)
    for key, manifest, whole in zip(missing, missing.values(), decoded, strict=True):
        slim = by_key[key] = _held[key] = SlimManifest.of(manifest, storage, whole)
        slim.learn(whole, field_ids)
    _let_go()
    return [by_key[key] for key in keys]


def learn_columns(manifests: Sequence[SlimManifest], field_ids: Collection[int]) -> None:
    """Have the bounds and counts of some columns in memory, reading each manifest once at most.

    Raises OSError and NotWholeError when they cannot be read.
    """
    wanting = [(slim, [field_id for field_id in field_ids if not slim.knows(field_id)]) for slim in manifests]
    missing = [(slim, unknown) for slim, unknown in wanting if unknown]
    for (slim, unknown), whole in zip(missing, _decoded_again([slim for slim, _ in missing]), strict=True):
        slim.learn(whole, unknown)
    if missing:
        _let_go()


def _decoded_again(manifests: Sequence[SlimManifest]) -> Iterator[DataManifest]:
    io = manifests[0].storage.io if manifests else None
    return decode_data_manifests([slim.manifest for slim in manifests], io) if io else iter(())


def _let_go() -> None:
    """Whole entries took much more memory than what is kept of them."""
    pa.default_memory_pool().release_unused()


def _owned(values: pa.Array) -> pa.Array:
    """A copy: those of manifests that are decoded together share their memory."""
    batch = pa.RecordBatch.from_arrays([values], names=[""])
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema).column(0)


def _array(packed: pa.Array | _Constant) -> pa.Array:
    return packed.array() if isinstance(packed, _Constant) else packed


def _packed(values: pa.Array) -> pa.Array | _Constant:
    """Most columns and counts have the same value for all files of a manifest."""
    if len(values) and values.null_count == len(values):
        return _Constant(pa.scalar(None, values.type), len(values))
    if len(values) and not values.null_count and not pa.types.is_nested(values.type):
        first = values[0].as_py()
        if pc.all(pc.equal(values, first)).as_py():
            return _Constant(pa.scalar(first, values.type), len(values))  # the array's own would keep all of it
    return values

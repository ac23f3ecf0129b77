"""The stage that compares the partitions of files with the source keys, each file by its own partition spec.

Called by merge runs. A partition field judges files when its source column is a key column; all such fields of a spec
are compared together, row by row. Values are transformed by PyIceberg, as the writer does. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TimeTransform,
    Transform,
    UnknownTransform,
    VoidTransform,
)
from pyiceberg.types import IcebergType
from skipstone_core.funnel import LeftOut, PruneStage
from skipstone_core.keys import KeyFamily, KeyType, key_type
from skipstone_core.merging.merges import BoundKey

from skipstone.compat.pyiceberg import transformed_values
from skipstone.kernels.canonical import Int64s, canonical, ordered_floats
from skipstone.kernels.changes import ChangeSlice, read_key_rows
from skipstone.kernels.matching import UNMATCHED, KeyMatcher
from skipstone.pruning.funnel import Candidates, SliceRunner, StageRefusal, run_here
from skipstone.pruning.keyfields import key_field
from skipstone.tables.arrow import arrow_type_of
from skipstone.tables.filesets import FileSet, SpecPartition

Mask = npt.NDArray[np.bool_]
#: With so many times more keys than buckets, every bucket holds one (all but one in ten million).
KEYS_PER_BUCKET = 16


@dataclass(frozen=True)
class JudgedField:
    """A partition field whose source column is the key column ``key`` of the table, there of type ``source_type``."""

    key: BoundKey
    transform: Transform  # type: ignore[type-arg]
    source_type: IcebergType

    @property
    def kind(self) -> KeyType:
        """How its values compare: identities as the keys do, others by the transform's result."""
        own = self._own_kind
        return self.key.type if own is None or isinstance(self.transform, IdentityTransform) else own

    @property
    def _own_kind(self) -> KeyType | None:
        return key_type(str(self.transform.result_type(self.source_type)))

    def of_partitions(self, values: Sequence[object]) -> pa.Array:
        """Canonical partition values; ``values`` are Iceberg's internal ones."""
        match self.kind.family:
            case KeyFamily.FLOAT:
                return _singles(pa.array(values, pa.float64()))
            case KeyFamily.DECIMAL:
                scale = self._own_kind.scale if self._own_kind else 0
                return canonical(pa.array(values, pa.decimal128(38, scale)), self.kind)
            case KeyFamily.STRING:
                return canonical(pa.array(values, pa.string()), self.kind)
            case KeyFamily.BINARY:
                return pa.array([v.bytes if isinstance(v, UUID) else v for v in values], pa.large_binary())
            case _:
                return pa.array([None if v is None else int(v) for v in values], pa.int64())  # type: ignore[call-overload]

    def of_keys(self, rows: pa.Table) -> pa.Array:
        """Canonical partition values of source keys; null where the table's column cannot hold the key."""
        keys = rows.column(self.key.source).combine_chunks()
        if self.kind.family is KeyFamily.FLOAT:
            return _singles(keys)
        if isinstance(self.transform, IdentityTransform):
            return canonical(keys, self.kind)
        if self.kind.family is KeyFamily.DECIMAL or self.key.type.family is KeyFamily.DECIMAL:
            keys = _at_scale(keys, arrow_type_of(self.source_type).scale, self.key.type)
        return canonical(transformed_values(self.transform, self.source_type, keys), self.kind)


def _singles(values: pa.Array) -> pa.Array:
    """Floats in single precision: manifests that PyIceberg rewrote hold doubles so (apache/iceberg-python 3808)."""
    return ordered_floats(pc.cast(pc.cast(values, pa.float64()), pa.float32(), safe=False))


def _at_scale(keys: pa.Array, scale: int, kind: KeyType) -> pa.Array:
    """Decimals at the scale of the table's column, null where that would change them."""
    scaled = pc.cast(keys, pa.decimal128(38, scale), safe=False)
    same = pc.equal(canonical(scaled, kind), canonical(keys, kind))
    return pc.if_else(same, scaled, pa.scalar(None, scaled.type))


@dataclass(frozen=True)
class SpecPartitions:
    """Partitions of one spec: their numbers, and the canonical values of the fields that judge them."""

    fields: tuple[JudgedField, ...]
    numbers: Int64s
    columns: tuple[pa.Array, ...]

    def hold(self, rows: pa.Table) -> Mask:
        """Which of them may hold one of the source rows."""
        wanted = pa.table({str(i): field.of_keys(rows) for i, field in enumerate(self.fields)})
        for i, field in enumerate(self.fields):
            if isinstance(field.transform, TimeTransform):
                wanted = _with_later(wanted, str(i))
        wanted = wanted.drop_null().group_by(wanted.column_names).aggregate([])
        matcher = KeyMatcher([wanted.column(i).combine_chunks() for i in range(wanted.num_columns)])
        return np.asarray(matcher.match(self.columns) != UNMATCHED)


def _with_later(rows: pa.Table, name: str) -> pa.Table:
    """Rows before 1970 once more in the period after: old writers rounded them towards 1970, as Iceberg allows for."""
    early = rows.filter(pc.less(rows.column(name), 0))
    later = pc.add(early.column(name), 1)
    return pa.concat_tables([rows, early.set_column(rows.column_names.index(name), name, later)])


@dataclass(frozen=True)
class PartitionSearch:
    """Searches one slice for the partitions that may hold a key of it; ``count``: partitions in all."""

    specs: tuple[SpecPartitions, ...]
    count: int

    def __call__(self, change_slice: ChangeSlice) -> Mask:
        """One boolean per partition."""
        hits = np.zeros(self.count, dtype=bool)
        if not change_slice.keyed:
            return hits
        keys = {field.key.source: field.key for spec in self.specs for field in spec.fields}
        rows = read_key_rows(change_slice, tuple(keys.values()))
        for spec in self.specs:
            hits[spec.numbers] = spec.hold(rows)
        return hits


@dataclass(frozen=True)
class PartitionStage:
    """Keeps files in whose partition a source key belongs; ``specs``: all of the table's, by id."""

    files: FileSet
    specs: Mapping[int, PartitionSpec]
    keys: Sequence[BoundKey]
    slices: Sequence[ChangeSlice]
    run: SliceRunner = run_here

    @property
    def name(self) -> PruneStage:
        """Return the name of the stage."""
        return PruneStage.PARTITIONS

    def prune(self, candidates: Candidates) -> Candidates | StageRefusal:
        """Drop files of partitions that no key belongs to. It pays unless surely every bucket is hit."""
        partitions, of_file = self.files.partitions()
        used = np.unique(of_file[candidates.files])
        judged = [spec for spec in self._by_spec(partitions, used) if spec.fields]
        if not judged:
            return StageRefusal(LeftOut.NOT_PARTITIONED_BY_KEY)
        if (count := sum(change_slice.keyed for change_slice in self.slices)) >= KEYS_PER_BUCKET * _buckets(judged):
            return StageRefusal(LeftOut.EVERY_PARTITION, f"{count} keys are in all {_buckets(judged):.0f} buckets")
        search = PartitionSearch(tuple(judged), len(partitions))
        keep = np.logical_or.reduce(self.run(search, self.slices))
        keep[np.setdiff1d(used, np.concatenate([spec.numbers for spec in judged]))] = True
        return candidates.among(np.flatnonzero(keep[of_file]))

    def _by_spec(self, partitions: Sequence[SpecPartition], used: Int64s) -> Iterable[SpecPartitions]:
        spec_ids = np.array([partition.spec_id for partition in partitions], dtype=np.int64)
        for spec_id in np.unique(spec_ids[used]).tolist():
            numbers = used[spec_ids[used] == spec_id]
            fields = [
                (i, part_field) for i, f in enumerate(self.specs[spec_id].fields) if (part_field := self._judged(f))
            ]
            columns = [
                part_field.of_partitions([partitions[n].values[i] for n in numbers.tolist()])
                for i, part_field in fields
            ]
            yield SpecPartitions(tuple(part_field for _, part_field in fields), numbers, tuple(columns))

    def _judged(self, field: PartitionField) -> JudgedField | None:
        """The field as a judge; void fields, unknown transforms and columns that are not keys judge nothing."""
        schema, transform = self.files.schema, field.transform
        for key in self.keys:
            source = key_field(schema, key)
            if source.field_id == field.source_id:
                is_silent = isinstance(transform, VoidTransform | UnknownTransform)
                fits = not is_silent and transform.can_transform(source.field_type)
                return JudgedField(key, transform, source.field_type) if fits else None
        return None


def _buckets(judged: Sequence[SpecPartitions]) -> float:
    """Into how many buckets keys are hashed at most; infinite when some spec goes by more than hashes."""
    transforms = [[field.transform for field in spec.fields] for spec in judged]
    if not all(isinstance(transform, BucketTransform) for spec in transforms for transform in spec):
        return float("inf")
    return float(
        max(
            prod(transform.num_buckets for transform in spec if isinstance(transform, BucketTransform))
            for spec in transforms
        )
    )

"""Which delete files apply to which data file of one snapshot.

Used by FileSet only. Errs towards applying: a delete that might apply is named, never dropped.
Must not read delete files themselves.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from propcache.api import cached_property
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform
from skipstone_core.indexing.snapshots import DeleteKind, is_delete_newer

from skipstone.compat.pyiceberg import optional_value
from skipstone.compat.rowdelta import CONTENT_OFFSET, CONTENT_SIZE, is_vector
from skipstone.tables.decoding.entries import Partition
from skipstone.tables.decoding.manifests import partition_tuple

#: Iceberg's reserved field id of the data file path in position deletes.
PATH_FIELD_ID = 2147483546


class DeleteScope(NamedTuple):
    """A partition of one spec: what a delete that names no data file applies to."""

    spec_id: int
    partition: Partition


@dataclass(frozen=True)
class Delete:
    """One live delete file."""

    file: DataFile
    kind: DeleteKind
    sequence: int
    added_snapshot_id: int

    @cached_property
    def only_path(self) -> str | None:
        """The one data file of which a position delete names rows, when that is known."""
        if self.kind is DeleteKind.EQUALITY:
            return None
        lower, upper = self._path_bounds
        return referenced_path(self.file) or (lower.decode() if lower is not None and lower == upper else None)

    @property
    def _path_bounds(self) -> tuple[bytes | None, bytes | None]:
        lower = (self.file.lower_bounds or {}).get(PATH_FIELD_ID)
        return lower, (self.file.upper_bounds or {}).get(PATH_FIELD_ID)

    @property
    def scope(self) -> DeleteScope:
        """The partition that it was written for."""
        return DeleteScope(self.file.spec_id, partition_tuple(self.file))

    @property
    def is_own(self) -> bool:
        """Return whether it is a Parquet file with positions of one data file: who adds to these may replace it."""
        return self.file.file_format == FileFormat.PARQUET and self.only_path is not None

    @property
    def is_vector(self) -> bool:
        """Return whether it is a deletion vector: it names all rows of one data file that are deleted by position."""
        return is_vector(self.file)

    @property
    def is_replaceable(self) -> bool:
        """Return whether who deletes rows of its one data file puts another in its place."""
        return self.is_own or self.is_vector

    @property
    def place(self) -> tuple[int, int] | None:
        """Where a deletion vector begins in its file, and how many bytes it has."""
        offset, length = optional_value(self.file, CONTENT_OFFSET), optional_value(self.file, CONTENT_SIZE)
        return None if offset is None or length is None else (offset, length)

    def may_touch(self, path: str) -> bool:
        """Return whether a position delete may name rows of ``path``; an equality delete always may."""
        if self.kind is DeleteKind.EQUALITY:
            return True
        if self.only_path:
            return self.only_path == path
        lower, upper, text = *self._path_bounds, path.encode()
        return (lower is None or lower <= text) and (upper is None or text <= upper)


@dataclass
class DeleteIndex:
    """Delete files by where they apply: everywhere, in one partition, or to one data file.

    Equality deletes of a spec without fields, or with void fields only, apply everywhere. Position deletes of one data
    file are found by its path: a table may have one for each of its files.
    """

    everywhere: list[Delete] = field(default_factory=list)
    by_path: dict[str, list[Delete]] = field(default_factory=lambda: defaultdict(list))
    by_scope: dict[DeleteScope, list[Delete]] = field(default_factory=lambda: defaultdict(list))

    def __bool__(self) -> bool:
        """Return whether there is any delete at all."""
        return bool(self.everywhere or self.by_path or self.by_scope)

    def all(self) -> list[Delete]:
        """Every live delete file."""
        parted = (*self.by_path.values(), *self.by_scope.values())
        return [*self.everywhere, *(delete for deletes in parted for delete in deletes)]

    def applying(self, path: str, scope: DeleteScope, data_sequence: int) -> list[Delete]:
        """The deletes that may apply to the data file ``path`` in ``scope``."""
        deletes = [*self.everywhere, *self.by_path.get(path, ())]
        if self.by_scope:
            deletes += self.by_scope.get(scope, ())
        return [
            delete
            for delete in deletes
            if is_delete_newer(delete.kind, data_sequence=data_sequence, delete_sequence=delete.sequence)
            and delete.may_touch(path)
        ]

    def add(self, entry: ManifestEntry, spec: PartitionSpec) -> None:
        """Take one entry of a delete manifest."""
        file = entry.data_file
        kind = DeleteKind.EQUALITY if file.content == DataFileContent.EQUALITY_DELETES else DeleteKind.POSITION
        delete = Delete(file, kind, entry.sequence_number or 0, entry.snapshot_id or 0)
        if kind is DeleteKind.EQUALITY and all(isinstance(field.transform, VoidTransform) for field in spec.fields):
            self.everywhere.append(delete)
        elif path := delete.only_path:
            self.by_path[path].append(delete)
        else:
            self.by_scope[DeleteScope(file.spec_id, partition_tuple(file))].append(delete)


def referenced_path(file: DataFile) -> str | None:
    """The one data file that all deletes of ``file`` are for, when the manifest says so."""
    path: str | None = optional_value(file, 17)
    return path

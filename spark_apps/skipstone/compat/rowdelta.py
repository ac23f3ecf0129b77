"""The snapshot of a change that takes files away: PyIceberg writes no delete files, and carries empty manifests along.

Used by ``swaps``, and by ``lineage`` for tables of format version 3. Must not decide what is deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, cast

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import (
    DataFile,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.properties import property_as_int

from skipstone.compat.pyiceberg import SnapshotSummary, field_ids, optional_value

#: Where a deletion vector lies in its file, and how long it is: fields that PyIceberg has no names for.
CONTENT_OFFSET, CONTENT_SIZE = 18, 19
#: The size of a file among its fields.
_SIZE = 5
#: The id of the elements of ``equality_ids``.
_ELEMENT_OF_IDS = 136


def _ids(schema: Schema) -> Set[int]:
    return field_ids(schema).keys()


def _renamed(field: NestedField) -> NestedField:
    return NestedField(field.field_id, f"{field.name} {field.field_id}", field.field_type, required=False)


def is_vector(file: DataFile) -> bool:
    """Return whether a delete file is a deletion vector."""
    return file.file_format == FileFormat.PUFFIN


class _DeleteKey(NamedTuple):
    """The key of a delete file: several deletion vectors may be in one file."""

    path: str
    offset: int | None


def _delete_key(file: DataFile) -> _DeleteKey:
    return _DeleteKey(file.file_path, optional_value(file, CONTENT_OFFSET))


def _counted(file: DataFile) -> DataFile:
    """The file as summaries count its bytes: of a file of deletion vectors, those of one."""
    size = optional_value(file, CONTENT_SIZE)
    if size is None:
        return file
    counted = DataFile(*file._data)
    counted._data[_SIZE] = size
    counted.spec_id = file.spec_id
    return counted


def with_int_ids(schema: Schema) -> Schema:
    """``schema`` of entries with ids of fields as int: PyIceberg writes long, which Java cannot read."""
    entry = {field.name: field for field in schema.fields}
    file = entry["data_file"]
    ids = ListType(_ELEMENT_OF_IDS, IntegerType(), element_required=True)
    fields = [
        NestedField(field.field_id, field.name, ids, required=False) if field.name == "equality_ids" else field
        for field in cast(StructType, file.field_type).fields
    ]
    narrowed = NestedField(file.field_id, file.name, StructType(*fields), required=True)
    return Schema(*(narrowed if name == file.name else field for name, field in entry.items()))


class DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files."""

    def content(self) -> ManifestContent:
        """Deletes."""
        return ManifestContent.DELETES

    def _with_partition(self, format_version: TableVersion) -> Schema:
        return with_int_ids(super()._with_partition(format_version))

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class AgedEntries(ManifestWriter):
    """Part of a writer of manifests whose new files have rows of a given age: None for that of the snapshot."""

    sequence: int | None = None

    def add(self, entry: ManifestEntry) -> ManifestWriter:
        """A new file."""
        if self.sequence is not None:
            entry.sequence_number = self.sequence
        return super().add(entry)


class _AgedWriter(AgedEntries, ManifestWriterV2):
    """Writes manifests of format version 2."""


class DeleteFiles(NamedTuple):
    """Delete files that a snapshot adds, with their spec ids, and live ones that it takes away."""

    added: Sequence[DataFile]
    replaced: Sequence[DataFile]


class RowDelta(_OverwriteFiles):
    """Adds and takes away data files and delete files."""

    def __init__(
        self,
        transaction: Transaction,
        deletes: DeleteFiles,
        summary: Mapping[str, str],
        names_deleted: Callable[[ManifestFile], bool],
        branch: str | None = None,
    ) -> None:
        """``summary``: what else the snapshot says.

        ``branch``: whose head is moved; None: main.

        ``names_deleted``: whether a manifest names a data file that is taken away; the others are not read.
        """
        super().__init__(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=transaction._table.io,
            snapshot_properties=dict(summary),
            branch=branch or MAIN_BRANCH,
        )
        self._deletes, self._replaced = deletes
        self._names_deleted = names_deleted
        self._data_sequence: int | None = None

    def as_rewrite(self, data_sequence: int | None) -> None:
        """The table has the same rows afterwards. ``data_sequence``: of the added files; None: that of the snapshot."""
        self._operation = Operation.REPLACE
        self._data_sequence = data_sequence

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        """Return the writer by which PyIceberg adds files."""
        if self._data_sequence is None:
            return super().new_manifest_writer(spec)
        output = self.new_manifest_output()
        writer = _AgedWriter(spec, self.schema(), output, self._snapshot_id, self._compression)
        writer.sequence = self._data_sequence
        return writer

    def schema(self) -> Schema:
        """The table's schema with the dropped columns that specs still name: partitions of old files need their types.

        A dropped column has a name of its own here, since another may have taken the old one.
        """
        metadata = self._transaction.table_metadata
        current = metadata.schema()
        sources = {field.source_id for spec in metadata.specs().values() for field in spec.fields}
        dropped = sorted(sources - _ids(current))
        if not dropped:
            return current
        known = {
            field_id: schema.find_field(field_id)
            for schema in metadata.schemas
            for field_id in dropped
            if field_id in _ids(schema)
        }
        lost = [_renamed(known[field_id]) for field_id in dropped if field_id in known]
        return Schema(
            *current.fields,
            *lost,
            schema_id=current.schema_id,
            identifier_field_ids=current.identifier_field_ids,
        )

    def _build_delete_files_partition_predicate(self) -> None:
        """Which manifests name files that are taken away is known: their partitions need not narrow them."""

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        """PyIceberg's own keeps the manifest that it looks at, and its threads share it: it misses manifests."""
        return self._names_deleted

    def _manifests(self) -> list[ManifestFile]:
        manifests = [manifest for manifest in super()._manifests() if self._is_worth_keeping(manifest)]
        return [*self._without_replaced(manifests), *self._added_deletes()]

    def _is_worth_keeping(self, manifest: ManifestFile) -> bool:
        """Return whether it names live files, or files that this very snapshot takes away."""
        is_new = manifest.added_snapshot_id == self._snapshot_id
        return is_new or manifest.has_added_files() or manifest.has_existing_files()

    def _deleted_entries(self) -> list[ManifestEntry]:
        return super()._deleted_entries() if self._deleted_data_files else []

    def _existing_manifests(self) -> list[ManifestFile]:
        if self._deleted_data_files:
            return super()._existing_manifests()
        head = self._transaction.table_metadata.snapshot_by_name(self._target_branch or MAIN_BRANCH)
        return head.manifests(self._io) if head else []

    def _added_deletes(self) -> Iterator[ManifestFile]:
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for file in self._deletes:
            by_spec[file.spec_id].append(self._entry(ManifestEntryStatus.ADDED, file))
        for spec_id, entries in by_spec.items():
            yield self._delete_manifest(spec_id, entries)

    def _without_replaced(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The manifests, those that name a replaced delete file written again. Raises ValidationException."""
        wanted, kept = {_delete_key(file) for file in self._replaced}, []
        for manifest in manifests:
            if not wanted or manifest.content != ManifestContent.DELETES:
                kept.append(manifest)
                continue
            entries = self.fetch_manifest_entry(manifest)
            gone = {_delete_key(entry.data_file) for entry in entries} & wanted
            wanted -= gone
            kept.append(self._rewritten(manifest, entries, gone) if gone else manifest)
        if wanted:
            raise ValidationException(f"the delete file {min(key.path for key in wanted)} is not in the table")
        return kept

    def _rewritten(
        self, manifest: ManifestFile, entries: Sequence[ManifestEntry], gone: Set[_DeleteKey]
    ) -> ManifestFile:
        changed = [
            self._entry(ManifestEntryStatus.DELETED, entry.data_file, entry)
            if _delete_key(entry.data_file) in gone
            else self._entry(ManifestEntryStatus.EXISTING, entry.data_file, entry)
            for entry in entries
        ]
        return self._delete_manifest(manifest.partition_spec_id, changed)

    def _entry(self, status: ManifestEntryStatus, file: DataFile, before: ManifestEntry | None = None) -> ManifestEntry:
        """An entry of a new manifest; one that stays keeps the snapshot that added it."""
        stays = before is not None and status == ManifestEntryStatus.EXISTING
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=before.snapshot_id if before is not None and stays else self._snapshot_id,
            sequence_number=before.sequence_number if before else None,
            file_sequence_number=before.file_sequence_number if before else None,
            data_file=file,
        )

    def _delete_manifest(self, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        spec, output = self.spec(spec_id), self.new_manifest_output()
        with DeleteManifestWriter(spec, self.schema(), output, self._snapshot_id, self._compression) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _vectors(self) -> dict[str, str]:
        """How many deletion vectors come and go."""
        counts = {"added-dvs": self._deletes, "removed-dvs": self._replaced}
        vectors = {name: sum(is_vector(file) for file in files) for name, files in counts.items()}
        return {name: str(count) for name, count in vectors.items() if count}

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        counts = _counts(
            self._transaction.table_metadata,
            (*self._added_data_files, *self._deletes),
            (*self._deleted_data_files, *self._replaced),
        )
        # PyIceberg knows no operation that replaces files
        counted = Summary(Operation.OVERWRITE, **counts, **self._vectors(), **(snapshot_properties or {}))
        summary = _with_totals(counted, self._transaction.table_metadata, self._parent_snapshot_id)
        return Summary(self._operation, **summary.additional_properties)


class FastAppend(_FastAppendFiles):
    """PyIceberg's, with names of partitions by any day and moment in the summary."""

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        metadata = self._transaction.table_metadata
        counts = _counts(metadata, self._added_data_files, ())
        counted = Summary(self._operation, **counts, **(snapshot_properties or {}))
        return _with_totals(counted, metadata, self._parent_snapshot_id)


def _counts(metadata: TableMetadata, added: Iterable[DataFile], removed: Iterable[DataFile]) -> dict[str, str]:
    """Return the counts of these files in the summary of a snapshot."""
    specs, schema = metadata.specs(), metadata.schema()
    limit = property_as_int(
        metadata.properties,
        TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
        TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
    )
    summary = SnapshotSummary(partition_summary_limit=limit or 0)
    for file in added:
        summary.add_file(_counted(file), schema, specs[file.spec_id])
    for file in removed:
        summary.remove_file(_counted(file), schema, specs[file.spec_id])
    return summary.build()


def _with_totals(summary: Summary, metadata: TableMetadata, parent_id: int | None) -> Summary:
    """``summary`` with the totals after it."""
    before = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
    return update_snapshot_summaries(summary, before.summary if before is not None else None)

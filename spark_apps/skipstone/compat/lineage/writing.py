"""Snapshots of tables in format version 3, whose manifests PyIceberg does not write.

Used by commits. Row ids are given out as the table specification of Apache Iceberg has it ("First Row ID Assignment").
Must not decide what is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from propcache.api import cached_property
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.exceptions import ValidationException
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _new_manifest_list_file_name
from pyiceberg.typedef import TableVersion

from skipstone.compat.lineage.reading import (
    FILE_ROW_ID,
    MANIFEST_ROW_ID,
    VERSION,
    manifest_row_id,
    read_entries,
    read_manifests,
)
from skipstone.compat.rowdelta import AgedEntries, RowDelta, with_int_ids

#: Fields of a data file or delete file.
_FILE_FIELDS = 20


class LineageManifestWriter(AgedEntries, ManifestWriterV2):
    """Writes manifests of format version 3."""

    def __init__(self, content: ManifestContent, *arguments: Any) -> None:
        """``arguments`` as PyIceberg's writers take them."""
        super().__init__(*arguments)
        self._content = content

    def content(self) -> ManifestContent:
        """Data files or deletes."""
        return self._content

    @property
    def version(self) -> Any:
        """Of the format."""
        return VERSION

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "data" if self._content == ManifestContent.DATA else "deletes"}

    def _with_partition(self, format_version: TableVersion) -> Schema:
        return with_int_ids(super()._with_partition(format_version))

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Of entries with all fields."""
        schema = self._with_partition(self.version)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """``entry`` as it is written."""
        prepared = super().prepare_entry(entry)
        values = [*prepared._data]
        values[-1] = self._file(entry)
        return ManifestEntry(*values)

    def _file(self, entry: ManifestEntry) -> DataFile:
        """The file with all fields. One that is added gets its row ids on reading, from its manifest."""
        values = [*entry.data_file._data, *[None] * (_FILE_FIELDS - len(entry.data_file._data))]
        if entry.status == ManifestEntryStatus.ADDED or self._content == ManifestContent.DELETES:
            values[FILE_ROW_ID] = None
        return DataFile(*values)


class _ManifestListWriter(ManifestListWriterV2):
    """Writes the manifest list of a snapshot and gives out row ids, from ``next_row_id`` on."""

    def __init__(self, first_row_id: int, output_file: OutputFile, *arguments: Any) -> None:
        super().__init__(output_file, *arguments)
        self._format_version = VERSION  # type: ignore[assignment]
        self._meta = {**self._meta, "format-version": str(VERSION), "first-row-id": str(first_row_id)}
        self.next_row_id = first_row_id

    def __enter__(self) -> _ManifestListWriter:
        """Open it."""
        schema = MANIFEST_LIST_FILE_SCHEMAS[VERSION]
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=schema,
            file_schema=schema,
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        """``manifest_file`` with the sequence number and the row ids that it gets of this snapshot."""
        first = manifest_row_id(manifest_file)
        prepared = super().prepare_manifest(manifest_file)
        if first is None and manifest_file.content == ManifestContent.DATA:
            first = self.next_row_id
            # existing files may have no row ids either: those of a table that was of format version 2 until now
            self.next_row_id += (manifest_file.added_rows_count or 0) + (manifest_file.existing_rows_count or 0)
        return ManifestFile(*prepared._data[:MANIFEST_ROW_ID], first)


class LineageDelta(RowDelta):
    """Adds and takes away data files and deletion vectors in a table of format version 3."""

    def fetch_manifest_entry(self, manifest: ManifestFile, *_: bool) -> list[ManifestEntry]:
        """The live entries; nobody here asks for others."""
        return read_entries(manifest, self._io)

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        """For data files."""
        writer = self._writer(ManifestContent.DATA, spec)
        writer.sequence = self._data_sequence
        return writer

    def _writer(self, content: ManifestContent, spec: PartitionSpec) -> LineageManifestWriter:
        output = self.new_manifest_output()
        return LineageManifestWriter(content, spec, self.schema(), output, self._snapshot_id, self._compression)

    def _delete_manifest(self, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        with self._writer(ManifestContent.DELETES, self.spec(spec_id)) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    @cached_property
    def _before(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        head = metadata.snapshot_by_name(self._target_branch or MAIN_BRANCH)
        return read_manifests(head, self._io, VERSION) if head else []

    @cached_property
    def _named(self) -> dict[str, list[ManifestEntry]]:
        """The live entries of manifests that name data files which are taken away."""
        if not self._deleted_data_files:
            return {}
        data = [
            manifest
            for manifest in self._before
            if manifest.content == ManifestContent.DATA and self._names_deleted(manifest)
        ]
        return {manifest.manifest_path: self.fetch_manifest_entry(manifest) for manifest in data}

    def _deleted_entries(self) -> list[ManifestEntry]:
        live = [entry for entries in self._named.values() for entry in entries]
        gone = [entry for entry in live if entry.data_file in self._deleted_data_files]
        self._validate_required_deletes(gone)
        return [self._entry(ManifestEntryStatus.DELETED, entry.data_file, entry) for entry in gone]

    def _existing_manifests(self) -> list[ManifestFile]:
        return [kept for manifest in self._before for kept in self._kept(manifest)]

    def _kept(self, manifest: ManifestFile) -> Iterator[ManifestFile]:
        """The manifest without what is taken away: itself, another, or none."""
        entries = self._named.get(manifest.manifest_path, [])
        rest = [entry for entry in entries if entry.data_file not in self._deleted_data_files]
        if len(rest) == len(entries):
            yield manifest
        elif rest:
            with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                for entry in rest:
                    writer.add_entry(self._entry(ManifestEntryStatus.EXISTING, entry.data_file, entry))
            yield writer.to_manifest_file()

    def _commit(self) -> UpdatesAndRequirements:
        if self._operation != Operation.REPLACE and not (self._deleted_data_files or self._deletes or self._replaced):
            self._operation = Operation.APPEND
        metadata = self._transaction.table_metadata
        manifests, number, first = self._manifests(), metadata.next_sequence_number(), _next_row_id(metadata)
        path, next_row_id = self._write_list(manifests, number, first)
        snapshot = Snapshot(  # type: ignore[call-arg]
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            manifest_list=path,
            sequence_number=number,
            summary=self._summary(self.snapshot_properties),
            schema_id=metadata.current_schema_id,
            first_row_id=first,
            added_rows=next_row_id - first,
        )
        branch = self._target_branch or MAIN_BRANCH
        head = metadata.refs.get(branch)
        moved = SetSnapshotRefUpdate(  # type: ignore[call-arg]
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            ref_name=branch,
            type=SnapshotRefType.BRANCH,
        )
        unmoved = AssertRefSnapshotId(snapshot_id=head.snapshot_id if head else None, ref=branch)  # type: ignore[call-arg]
        return (AddSnapshotUpdate(snapshot=snapshot), moved), (unmoved,)

    def _write_list(self, manifests: Iterable[ManifestFile], number: int, first: int) -> tuple[str, int]:
        """Write the manifest list; its path and the next row id."""
        name = _new_manifest_list_file_name(snapshot_id=self._snapshot_id, attempt=0, commit_uuid=self.commit_uuid)
        path = self._transaction._table.location_provider().new_metadata_location(name)
        self._written_manifest_lists.append(path)
        output, parent = self._io.new_output(path), self._parent_snapshot_id
        writer = _ManifestListWriter(first, output, self._snapshot_id, parent, number, self._compression)
        with writer:
            writer.add_manifests(list(manifests))
        return path, writer.next_row_id


def _next_row_id(metadata: TableMetadata) -> int:
    row_id = metadata.next_row_id if isinstance(metadata, TableMetadataV3) else None
    if row_id is None:
        raise ValidationException("the metadata has no next-row-id")
    return row_id

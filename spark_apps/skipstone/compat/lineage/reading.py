"""Manifests of tables in format version 3, with the ids of rows, which PyIceberg leaves out when it reads them.

Used by whoever reads manifests, and by commits. Row ids are given out as the table specification of Apache Iceberg has
it ("First Row ID Inheritance"). Must not judge what is read.
"""

from __future__ import annotations

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.snapshots import Snapshot

from skipstone.compat.doubles import exact_entries
from skipstone.compat.pyiceberg import optional_value, with_inherited

VERSION = 3
#: Where PyIceberg's records have the row id of the first row, which it has no name for: of a data file, of a manifest.
FILE_ROW_ID, MANIFEST_ROW_ID = 16, 15


def read_manifests(snapshot: Snapshot, io: FileIO, format_version: int) -> list[ManifestFile]:
    """The manifests of ``snapshot``, of a table of ``format_version``; PyIceberg leaves out their first row ids.

    It also remembers manifests by path; the first row id of one may differ between the snapshots that name it.
    """
    if format_version < VERSION:
        return snapshot.manifests(io)
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[VERSION],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def manifest_row_id(manifest: ManifestFile) -> int | None:
    """The row id that the first file without one gets of ``manifest``; None where rows have no ids."""
    found: int | None = manifest._data[MANIFEST_ROW_ID] if len(manifest._data) > MANIFEST_ROW_ID else None
    return found


def file_row_id(file: DataFile) -> int | None:
    """The row id of the first row of a live data file, as ``read_entries`` gives it."""
    found: int | None = optional_value(file, FILE_ROW_ID)
    return found


def read_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Entries that are not deleted, with what they inherit: sequence numbers, snapshot, spec and first row ids."""
    live = [one for one in exact_entries(manifest, io) if one.status != ManifestEntryStatus.DELETED]
    following = manifest_row_id(manifest) if manifest.content == ManifestContent.DATA else None
    for entry in live:
        file = entry.data_file
        if following is None:
            file._data[FILE_ROW_ID] = None
        elif file._data[FILE_ROW_ID] is None:
            file._data[FILE_ROW_ID] = following
            following += file.record_count
    return [with_inherited(entry, manifest) for entry in live]

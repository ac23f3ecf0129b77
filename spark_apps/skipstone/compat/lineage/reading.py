"""Manifests of tables in format version 3, with the ids of rows, which PyIceberg leaves out when it reads them.

Used by whoever reads manifests, and by commits. Row ids are given out as the table specification of Apache Iceberg has
it ("First Row ID Inheritance"). Must not judge what is read, but for whether it is all there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import pyiceberg.manifest
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from skipstone.caches import ContentCache
from skipstone.compat.avro.doubles import exact_entries
from skipstone.compat.avro.naming import read_schema
from skipstone.compat.avro.whole import NotWholeError, records_in
from skipstone.compat.pyiceberg import optional_value, with_inherited

VERSION = 3
#: Where PyIceberg's records have the row id of the first row, which it has no name for: of a data file, of a manifest.
FILE_ROW_ID, MANIFEST_ROW_ID = 16, 15
#: Schemas of manifest lists are few: one for each format version and engine.
_SCHEMAS_KEPT = 64
#: About the bytes that a manifest of a list takes in memory, and that each value of it takes which is a list.
_MANIFEST_BYTES, _SUMMARY_BYTES = 700, 220
_TOTAL_FILES = "total-data-files"
#: The values of each manifest.
_Lists = tuple[tuple[Any, ...], ...]
#: Decoded manifest lists: an expiry reads those of all snapshots, most of which the one before has read.
_lists: ContentCache[_Lists] = ContentCache("decoded manifest lists", 32 * 1024 * 1024, lambda lists: _nbytes(lists))


def read_manifests(snapshot: Snapshot, io: FileIO, format_version: int) -> list[ManifestFile]:
    """The manifests of ``snapshot``, of a table of ``format_version``; PyIceberg leaves out their first row ids.

    It also remembers manifests by path; the first row id of one may differ between the snapshots that name it.
    Raises OSError when the manifest list cannot be read, and NotWholeError when it is not all there.
    """
    manifests = read_manifest_list(io.new_input(snapshot.manifest_list), max(format_version, DEFAULT_READ_VERSION))
    require_listed(snapshot, manifests)
    return manifests


def read_manifest_list(file: InputFile, version: int = DEFAULT_READ_VERSION) -> list[ManifestFile]:
    """The manifests that the manifest list ``file`` names, with the fields of the format ``version``.

    Raises OSError when it cannot be read, and NotWholeError when it is not all there.
    """
    with file.open() as stream:
        content = stream.read()

    def decode() -> _Lists:
        records = records_in(content, file.location, partial(_list_reader, version=version))
        return tuple(tuple(record._data) for record in records)

    # who gets a manifest may change it: writers of lists do
    return [ManifestFile(*data) for data in _lists.get(content, decode, str(version))]


def _nbytes(lists: _Lists) -> int:
    summaries = sum(len(value) for data in lists for value in data if isinstance(value, list))
    return len(lists) * _MANIFEST_BYTES + summaries * _SUMMARY_BYTES


def refuse_cut_lists() -> None:
    """Make all of this process refuse manifest lists that are not all there; a process that commits has to.

    PyIceberg takes the manifests of the snapshot before from its list: a commit would lose those that it does not see.
    """
    pyiceberg.manifest.read_manifest_list = _as_pyiceberg_reads
    Snapshot.manifests = _manifests_of  # type: ignore[method-assign, assignment]


_pyiceberg_manifests = Snapshot.manifests


def _manifests_of(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    manifests = _pyiceberg_manifests(snapshot, io)
    require_listed(snapshot, manifests)
    return manifests


def _as_pyiceberg_reads(input_file: InputFile) -> Iterator[ManifestFile]:
    return iter(read_manifest_list(input_file))


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _list_reader(written: str, version: int) -> Reader:
    """To find out takes PyIceberg several times as long as reading a list, and an expiry reads them all."""
    return resolve_reader(
        AvroSchemaConversion().avro_to_iceberg(read_schema(written)),
        MANIFEST_LIST_FILE_SCHEMAS[version],
        {-1: ManifestFile, 508: PartitionFieldSummary},
        {517: ManifestContent},
    )


def manifest_row_id(manifest: ManifestFile) -> int | None:
    """The row id that the first file without one gets of ``manifest``; None where rows have no ids."""
    row_id: int | None = manifest._data[MANIFEST_ROW_ID] if len(manifest._data) > MANIFEST_ROW_ID else None
    return row_id


def file_row_id(file: DataFile) -> int | None:
    """The row id of the first row of a live data file, as ``read_entries`` gives it."""
    row_id: int | None = optional_value(file, FILE_ROW_ID)
    return row_id


def require_listed(snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> None:
    """Raise NotWholeError when the list of ``snapshot`` names no manifest, and its summary tells of data files.

    A list that is cut off after its header is a whole Avro file. Summaries of some writers are a little wrong, so they
    prove nothing of lists that name some.
    """
    total = (snapshot.summary.additional_properties if snapshot.summary else {}).get(_TOTAL_FILES, "0")
    if not manifests and total.isdigit() and int(total):
        raise NotWholeError(snapshot.manifest_list, f"names no manifest where its snapshot tells of {total} data files")


def require_all(manifest: ManifestFile, live: int) -> None:
    """Raise NotWholeError when ``manifest`` has fewer ``live`` entries than its list tells: a block is missing."""
    listed = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    if live < listed:
        why = f"has {live} live entries where its manifest list tells of {listed}"
        raise NotWholeError(manifest.manifest_path, why)


def read_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Entries that are not deleted, with what they inherit: sequence numbers, snapshot, spec and first row ids.

    Raises OSError when they cannot be read, and NotWholeError when they are not all there.
    """
    live = [
        live_entry for live_entry in exact_entries(manifest, io) if live_entry.status != ManifestEntryStatus.DELETED
    ]
    require_all(manifest, len(live))
    following = manifest_row_id(manifest) if manifest.content == ManifestContent.DATA else None
    for entry in live:
        file = entry.data_file
        if following is None:
            file._data[FILE_ROW_ID] = None
        elif file._data[FILE_ROW_ID] is None:
            file._data[FILE_ROW_ID] = following
            following += file.record_count
    return [with_inherited(entry, manifest) for entry in live]

"""Metadata files of tables, parsed once by a process: a run loads the same table many times.

Must not be asked for what a table is now: only its catalog knows that.
"""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from skipstone.tables.caches import ByteCache, is_content_final

METADATA_CACHE_BYTES = 64 * 1024 * 1024
#: What Python objects of a parsed file take, roughly.
_SNAPSHOT_BYTES, _LOG_ENTRY_BYTES, _FIELD_BYTES = 4096, 512, 1024


def _size_of(metadata: TableMetadata) -> int:
    logged = len(metadata.snapshot_log) + len(metadata.metadata_log)
    fields = sum(len(schema.fields) for schema in metadata.schemas)
    texts = sum(len(name) + len(value) for name, value in metadata.properties.items())
    counted = len(metadata.snapshots) * _SNAPSHOT_BYTES + logged * _LOG_ENTRY_BYTES + fields * _FIELD_BYTES
    return _SNAPSHOT_BYTES + counted + texts


_parsed: ByteCache[tuple[str, str], TableMetadata] = ByteCache("parsed metadata", METADATA_CACHE_BYTES, _size_of)


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """The metadata in the file at ``location``, which nobody may change.

    A file whose random name no other content ever has is read once. Raises OSError, and what PyIceberg raises for
    content that is no metadata.
    """

    def read() -> TableMetadata:
        return FromInputFile.table_metadata(io.new_input(location))

    if not is_content_final(location):
        return read()
    return _parsed.get((io.properties.get("s3.endpoint", ""), location), read)

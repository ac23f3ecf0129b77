"""Deletes files of a table's archive of transactions that were merged into others and that no metadata names any more.

Called by expiry. A merged file is named by metadata that is kept for a while; what the oldest of it does not name and
is older was replaced before. Must not touch what may be listed by a commit that is still on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyiceberg.table import Table
from skipstone_core.errors import ContractViolation
from skipstone_core.history.archives import decode_files
from skipstone_core.ids import ARCHIVE_DIRECTORY, ARCHIVE_PROPERTY

from skipstone.storage.opening import storage_of
from skipstone.tables.decoding.metadatafiles import read_old_metadata
from skipstone.tables.upkeep.removal import Deleted

#: A file this young may be of a commit that is still on its way. Clocks may be wrong by up to a day.
SPARED_MS = 2 * 86_400_000


def delete_old_archives(table: Table, now_ms: Callable[[], int]) -> Deleted:
    """Delete files that neither the head of ``table``, freshly loaded, nor its oldest metadata names, if they are old.

    Raises OSError, DependencyUnavailable when something cannot be read or deleted.
    """
    log = table.metadata.metadata_log
    named = _named(table.properties)
    if not named or not log:
        return Deleted()
    try:
        named |= _named(read_old_metadata(table.io.new_input(log[0].metadata_file)).properties)
    except (FileNotFoundError, ContractViolation):
        return Deleted()
    storage, before_ns = storage_of(table.catalog.properties), min(log[0].timestamp_ms, now_ms() - SPARED_MS) * 10**6
    listed = list(storage.list(f"{ARCHIVE_DIRECTORY}/{table.metadata.table_uuid}"))
    old = [file for file in listed if file.written_ns < before_ns and file.path.rpartition("/")[2] not in named]
    for entry in old:
        storage.delete(entry.path)
    return Deleted(files=len(old), nbytes=sum(entry.size for entry in old))


def _named(properties: Mapping[str, str]) -> set[str]:
    text = properties.get(ARCHIVE_PROPERTY)
    return {file.digest for file in decode_files(text)} if text else set()

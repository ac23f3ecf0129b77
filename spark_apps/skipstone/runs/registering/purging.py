"""Drops a table and deletes the files that were written for it, and no others.

Called by drop runs. A table can name files that lie elsewhere because they were registered in it: those stay. Must not
judge whether the table may be dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from skipstone_core.history.consumption import REGISTERED, consumed_property

from skipstone.compat.avro.doubles import exact_entries
from skipstone.compat.avro.whole import NotWholeError
from skipstone.compat.lineage.reading import read_manifests
from skipstone.tables.storage import plain_location

_log = logging.getLogger(__name__)


def purge(catalog: Catalog, table: Table, own: Sequence[str]) -> int:
    """Drop ``table`` and delete its files; how many data files stay because they are not below one of ``own``.

    A catalog server deletes by itself whatever the table names, so it is asked only when no file was registered. A file
    that cannot be read or deleted stays behind, with a warning.
    """
    identifier = table.name()
    if not isinstance(catalog, SqlCatalog) and consumed_property(REGISTERED) not in table.properties:
        catalog.purge_table(identifier)
        return 0
    manifests = _manifests(table)
    named = {path for manifest in manifests.values() for path in _files(table.io, manifest)}
    folders = tuple(f"{plain_location(folder).rstrip('/')}/" for folder in own)
    ours = {path for path in named if plain_location(path).startswith(folders)}
    catalog.drop_table(identifier)
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    old = {log.metadata_file for log in table.metadata.metadata_log}
    _delete(table.io, [*sorted(ours), *manifests, *sorted(lists), *sorted(old), table.metadata_location])
    return len(named) - len(ours)


def _manifests(table: Table) -> dict[str, ManifestFile]:
    """The manifests of all snapshots by path."""
    found: dict[str, ManifestFile] = {}
    for snapshot in table.metadata.snapshots:
        try:
            manifests = read_manifests(snapshot, table.io, table.metadata.format_version)
        except (OSError, NotWholeError) as error:
            _log.warning("files of snapshot %s stay behind: %s", snapshot.snapshot_id, error)
        else:
            found |= {manifest.manifest_path: manifest for manifest in manifests}
    return found


def _files(io: FileIO, manifest: ManifestFile) -> Iterator[str]:
    try:
        for entry in exact_entries(manifest, io):
            yield entry.data_file.file_path
    except (OSError, NotWholeError) as error:
        _log.warning("files of manifest %s stay behind: %s", manifest.manifest_path, error)


def _delete(io: FileIO, paths: Iterable[str]) -> None:
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("%s stays behind: %s", path, error)

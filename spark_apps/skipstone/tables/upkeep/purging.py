"""Drops exactly the table that was judged, and deletes the files that were written for it unless others use them.

Called by drop runs and by whoever builds an index again. A table can name files that lie elsewhere because they were
registered in it: those stay. No server is asked to delete files, unless it drops no table otherwise: it would delete
whatever the table under a name reaches. Must not judge whose the table is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.history.consumption import REGISTERED, consumed_property
from skipstone_core.ids import INDEX_UID_PROPERTY
from sqlalchemy import ColumnElement, CursorResult, delete, select
from sqlalchemy.orm import Session

from skipstone.compat.avro.doubles import exact_entries
from skipstone.compat.avro.whole import NotWholeError
from skipstone.compat.lineage.reading import read_manifests
from skipstone.tables.sharing.named import NamedFiles
from skipstone.tables.sharing.places import (
    find_sharing_with,
    find_told_sharing,
    is_below,
    metadata_folders,
    other_tables,
    own_data_folders,
)
from skipstone.tables.sharing.reach import metadata_files, statistics_of
from skipstone.tables.upkeep.removal import delete_files

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Purged:
    """The outcome of a drop. ``is_dropped``: the catalog has the table no more.

    ``why_kept``: a clause that says why all files stay; else ``elsewhere`` counts data files outside the table's own
    folders, which stay, and ``left`` those that could not be deleted.
    """

    is_dropped: bool = True
    why_kept: str = ""
    elsewhere: int = 0
    left: int = 0


def drop_exactly(catalog: Catalog, table: Table, *, may_purge: bool = False) -> bool:
    """Take ``table`` out of the catalog if its name still stands for this very metadata; whether it did. Files stay.

    ``may_purge``: a server that keeps files of no dropped table, such as S3 Tables, is asked to delete them.
    An SQL catalog compares and deletes in one transaction. A server drops by name only: the table is loaded again in
    the request before, and only what changes between these two requests is missed. Raises what the catalog raises.
    """
    if isinstance(catalog, SqlCatalog):
        return _delete_row(catalog, table.name(), table.metadata_location)
    if catalog.load_table(table.name()).metadata_location != table.metadata_location:
        return False
    try:
        catalog.drop_table(table.name())
    except BadRequestError:
        if not may_purge:
            raise
        catalog.purge_table(table.name())
    return True


def drop_damaged(catalog: Catalog, identifier: Identifier, is_damaged: Callable[[], bool]) -> bool:
    """Take a table whose metadata may be unreadable out of the catalog if ``is_damaged``; whether it did. Files stay.

    An SQL catalog drops it only while it names the metadata file that was judged. Raises what the catalog raises.
    """
    if not isinstance(catalog, SqlCatalog):
        if damaged := is_damaged():
            catalog.drop_table(identifier)
        return damaged
    place = _metadata_place(catalog, identifier)
    return place is not None and is_damaged() and _delete_row(catalog, identifier, place)


def purge(catalog: Catalog, table: Table) -> Purged | None:
    """Drop ``table`` and delete its own files, unless another table may use one; None when it changed meanwhile.

    Whether others use its files is asked before the drop, and once more between the drop and the first deletion. Raises
    DependencyUnavailable when the catalog or another table cannot be read before the drop; after it, all files stay.
    """
    if why := find_told_sharing(table):
        return Purged(is_dropped=False, why_kept=why)
    files = _files_of(table)
    is_index = INDEX_UID_PROPERTY in table.properties  # no other table takes files of one over
    named = NamedFiles(() if is_index else files.all())
    before = _Look(table, named)
    if before.why:
        return Purged(is_dropped=False, why_kept=before.why)
    if not drop_exactly(catalog, table, may_purge=consumed_property(REGISTERED) not in table.properties):
        return None
    if why := _why_after(table, named, before):
        return Purged(why_kept=why)
    return Purged(elsewhere=files.elsewhere, left=_delete(table.io, files))


def _why_after(table: Table, files: NamedFiles, before: _Look) -> str:
    """Why files stay, by a look after the drop. One that fails keeps them: no later attempt finds the table."""
    try:
        return _Look(table, files, before.places).why_after(before)
    except DependencyUnavailable as error:
        return f"whether another table uses it could not be seen after that ({str(error).rstrip('.')})"


class _Look:
    """One look at the other tables of the catalog, of which each has to be readable.

    ``why``: a clause that says why the files of the table must stay. ``known``: where the metadata of each is, by UUID.
    ``places``: where it is of all of them, copies of one another included.
    """

    def __init__(self, table: Table, files: NamedFiles, read: Collection[str] = ()) -> None:
        """``read``: places of metadata that name none of ``files``, as an earlier look found. Raises
        DependencyUnavailable.
        """
        self._table = table
        self.why = ""
        self.known: dict[UUID, str] = {}
        self.places: set[str] = set()
        self._renamed = ""
        for other in other_tables(table):
            self.known[other.metadata.table_uuid] = other.metadata_location
            self.places.add(other.metadata_location)
            if other.metadata.table_uuid == table.metadata.table_uuid:
                self._renamed = ".".join(other.name())
            is_read = other.metadata_location in read
            self.why = self.why or find_sharing_with(table, other) or (not is_read and files.find_use(other)) or ""

    def why_after(self, before: _Look) -> str:
        """Why files stay, when the name of the table was dropped since ``before``.

        The table may have been renamed at that moment, where the catalog drops by name only.
        """
        if not self._renamed or isinstance(self._table.catalog, SqlCatalog):
            return self.why
        name = ".".join(self._table.name())
        event = f"it was renamed to {self._renamed} while it was dropped"
        lost = sorted(place for uuid, place in before.known.items() if uuid not in self.known)
        if not lost:
            return event
        kept = f"no file of the table that had the name {name} by then was deleted"
        return f"{event}; {kept}: register its metadata again, which was {' or '.join(lost)}"


def _delete_row(catalog: SqlCatalog, identifier: Identifier, metadata_location: str) -> bool:
    is_it = (*_rows_of(catalog, identifier), IcebergTables.metadata_location == metadata_location)
    with Session(catalog.engine) as session:
        done = cast(CursorResult[Any], session.execute(delete(IcebergTables).where(*is_it)))
        session.commit()
    return done.rowcount == 1


def _metadata_place(catalog: SqlCatalog, identifier: Identifier) -> str | None:
    with Session(catalog.engine) as session:
        return session.scalar(select(IcebergTables.metadata_location).where(*_rows_of(catalog, identifier)))


def _rows_of(catalog: SqlCatalog, identifier: Identifier) -> tuple[ColumnElement[bool], ...]:
    *levels, name = identifier
    return (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == ".".join(levels),
        IcebergTables.table_name == name,
    )


@dataclass(frozen=True)
class _Files:
    """The files of a table in the order of deletion: a file that names others goes after them.

    ``elsewhere``: how many data files it names that are not its own.
    """

    data: frozenset[str]
    manifests: frozenset[str]
    rest: frozenset[str]
    elsewhere: int

    def all(self) -> frozenset[str]:
        """All of them."""
        return self.data | self.manifests | self.rest


def _files_of(table: Table) -> _Files:
    """The files that lie in the table's own folders. A file that cannot be read names nothing, with a warning."""
    manifests = _manifests(table)
    named = {path for manifest in manifests.values() for path in _named(table.io, manifest)}
    own, places = own_data_folders(table), metadata_folders(table)
    data = frozenset(path for path in named if is_below(path, own))
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    rest = lists | statistics_of(table.metadata) | metadata_files(table)
    return _Files(
        data=data,
        manifests=frozenset(path for path in manifests if is_below(path, places)),
        rest=frozenset(path for path in rest if is_below(path, places)),
        elsewhere=len(named) - len(data),
    )


def _manifests(table: Table) -> dict[str, ManifestFile]:
    """The manifests of all snapshots by path."""
    by_path: dict[str, ManifestFile] = {}
    for snapshot in table.metadata.snapshots:
        try:
            manifests = read_manifests(snapshot, table.io, table.metadata.format_version)
        except (OSError, NotWholeError) as error:
            _log.warning("files of snapshot %s stay behind: %s", snapshot.snapshot_id, error)
        else:
            by_path |= {manifest.manifest_path: manifest for manifest in manifests}
    return by_path


def _named(io: FileIO, manifest: ManifestFile) -> Iterator[str]:
    try:
        for entry in exact_entries(manifest, io):
            yield entry.data_file.file_path
    except (OSError, NotWholeError) as error:
        _log.warning("files of manifest %s stay behind: %s", manifest.manifest_path, error)


def _delete(io: FileIO, files: _Files) -> int:
    """How many could not be deleted."""
    groups: Iterable[frozenset[str]] = (files.data, files.manifests, files.rest)
    return sum(delete_files(io, dict.fromkeys(paths, 0)).left for paths in groups)

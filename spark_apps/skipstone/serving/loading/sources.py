"""Where plans get their tables from, and the FileIO that reads their manifests.

The caller's credentials decide whether there is a table; files are read with the server's own.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final, Protocol

from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from starlette.requests import Request

from skipstone.serving.answers import NO_TABLE, Refused, unavailable
from skipstone.serving.loading.decoded import DecodedTable
from skipstone.serving.names import Target
from skipstone.tables.catalogs import catalog_answers

#: Of how many tables a FileIO is kept, each with its connections.
_MOST: Final = 500
#: What gives the table in a thread that may wait.
OpenTable = Callable[[], Table]


class TableSource(Protocol):
    """Loads tables for callers."""

    async def load(self, request: Request, target: Target) -> OpenTable:
        """Ask whether the caller of ``request`` may load the table now; the rest is done in a thread.

        Raises Refused and Passed.
        """


class OwnTables:
    """Tables as the server's own catalog loads them: for their FileIO, which renews credentials by itself."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: LRUCache[tuple[Identifier, str, str], FileIO] = LRUCache(_MOST)
        self._lock = Lock()

    def opened(self, identifier: Identifier, decoded: DecodedTable) -> Table:
        """The table that the catalog told the caller of. Raises Refused, and as ``catalog_answers`` does."""
        io = self._io(identifier, decoded)
        return Table(identifier, decoded.metadata, decoded.location, io, self._catalog)

    def _io(self, identifier: Identifier, decoded: DecodedTable) -> FileIO:
        uuid, location = str(decoded.metadata.table_uuid), decoded.metadata.location
        key = (identifier, uuid, location)
        with self._lock:
            io = self._kept.get(key)
        if io is None:
            io = self._loaded(identifier, uuid).io
            with self._lock:
                self._kept[key] = io
        return io

    def _loaded(self, identifier: Identifier, uuid: str) -> Table:
        name = ".".join(identifier)
        with catalog_answers(self._catalog.name):
            try:
                table = self._catalog.load_table(identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                raise Refused(404, NO_TABLE, f"the table {name} was dropped while its scan was planned") from None
        if str(table.metadata.table_uuid) != uuid:
            raise unavailable(f"the table {name} was replaced while its scan was planned: try again")
        return table

"""An Sql catalog for who only reads: the database is asked for each table, and the storage once for each metadata file.

Must not be given to who commits: callers share what they load.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from skipstone.caches import ByteCache
from skipstone.compat.pyiceberg import field_ids
from skipstone.tables.catalogs import OwnSqlCatalog
from skipstone.tables.storage import never_changes

_BUDGET: Final = 64 * 1024 * 1024
#: About what parsed metadata takes, and what each snapshot and each field of a schema adds.
_BYTES, _SNAPSHOT_BYTES, _FIELD_BYTES = 8192, 4096, 1000

_tables: ByteCache[tuple[str, str], Table] = ByteCache(
    "tables of the catalog", _BUDGET, lambda table: _nbytes(table.metadata)
)


class ReadingSqlCatalog(OwnSqlCatalog):
    """Its tables are as the database names them at each call."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """As PyIceberg's. Metadata is shared with other callers, who must not change it."""
        name = self.identifier_to_tuple(identifier)
        location = self.metadata_location_of(name)
        if location is None or not never_changes(location):
            return super().load_table(identifier)
        known = _tables.peek((self.name, location))
        if known is None:
            known = super().load_table(identifier)
            if never_changes(known.metadata_location):
                _tables.put((self.name, known.metadata_location), known)
        return Table(name, known.metadata, known.metadata_location, known.io, self)


def _nbytes(metadata: TableMetadata) -> int:
    fields = sum(len(field_ids(schema)) for schema in metadata.schemas)
    return _BYTES + _SNAPSHOT_BYTES * len(metadata.snapshots) + _FIELD_BYTES * fields

"""Opens catalogs and loads tables from them with the identity checks that every run needs.

Called by the runs and by the query planner. Credentials come from the environment only.
Must not create or change tables.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone_core.jobs import TableRef, WarehouseRef


def open_catalog(warehouse: WarehouseRef) -> Catalog:
    """Open the catalog of ``warehouse``; its default table locations are under ``warehouse.root``.

    Raises BadSpec for a uri or property that cannot work, DependencyUnavailable (CATALOG_UNAVAILABLE) when the
    catalog does not answer.
    """
    raise NotImplementedError(warehouse)


def load_table(catalog: Catalog, ref: TableRef) -> Table:
    """Load the current metadata of ``ref``.

    Raises BadSpec with TABLE_MISSING when the catalog has no such table, TABLE_REPLACED when its UUID is not
    ``ref.table_uuid``; DependencyUnavailable with CATALOG_UNAVAILABLE when the catalog does not answer.
    """
    raise NotImplementedError(catalog, ref)


def require_writable(table: Table) -> None:
    """Raise BadSpec (FORMAT_VERSION_UNSUPPORTED) unless loads and merges can write this table (format version 2)."""
    raise NotImplementedError(table)

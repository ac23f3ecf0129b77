"""A lake of benchmarks: a folder with a catalog in SQLite, as Warehouses on a volume have it.

The base of the tables of several benchmarks. Must not know what tables there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from propcache.api import cached_property
from pyiceberg.catalog.sql import SqlCatalog
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef


class SqlLake(ABC):
    """All of it lies below ``root``. ``namespace``: the one of its tables."""

    namespace: str

    @property
    @abstractmethod
    def root(self) -> Path:
        """Where it lies."""

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return WarehouseRef(name="bench", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))

    @cached_property
    def catalog(self) -> SqlCatalog:
        """The catalog, in SQLite."""
        self.root.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{self.root}/catalog.db"
        catalog = SqlCatalog(self.warehouse.catalog.name, uri=uri, warehouse=f"file://{self.root}")
        catalog.create_namespace_if_not_exists(self.namespace)
        return catalog

"""Which table in which catalog a Table claims, and who claimed it first.

Two Tables may name one table of one catalog: the oldest wins. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skipstone_core.contract.requests import CatalogType

from skipstone_operator.ports import Key
from skipstone_operator.worlds.subjects import TableSubject, WarehouseSubject

Claim = tuple[str, ...]


def catalog_identity(warehouse: WarehouseSubject) -> Claim:
    """What makes two Warehouses share tables: an SQLite file is known by its claim, others by address and name."""
    catalog = warehouse.spec.catalog
    if catalog.type is CatalogType.SQL and (not catalog.uri or catalog.uri.startswith("sqlite")):
        claim = warehouse.spec.storage.pvc.claim_name
        return ("sqlite", warehouse.meta.namespace, claim, _file_of(catalog.uri), catalog.name)
    where = catalog.properties.get("warehouse", "") if catalog.type is CatalogType.REST else catalog.name
    return (catalog.type.value, catalog.uri.rstrip("/"), where)


def _file_of(uri: str) -> str:
    # sqlite:////skipstone/<warehouse>/<file>: the mount point differs by Warehouse, the file in the claim does not.
    return uri.partition("/skipstone/")[2].partition("/")[2] or "catalog.db"


def table_claim(table: TableSubject, warehouse: WarehouseSubject) -> Claim:
    """What ``table`` claims."""
    return (*catalog_identity(warehouse), table.spec.identifier.namespace, table.spec.identifier.name)


def find_older_claimant(
    table: TableSubject,
    warehouse: WarehouseSubject | None,
    tables: Iterable[TableSubject],
    warehouses: Mapping[Key, WarehouseSubject],
) -> TableSubject | None:
    """The oldest other Table with the same claim, if it is older than ``table``."""
    if warehouse is None:
        return None
    claim = table_claim(table, warehouse)
    rivals = [other for other in tables if other.meta.uid != table.meta.uid and _claims(other, claim, warehouses)]
    oldest = min((*rivals, table), key=lambda subject: (subject.age, subject.meta.uid))
    return None if oldest.meta.uid == table.meta.uid else oldest


def _claims(other: TableSubject, claim: Claim, warehouses: Mapping[Key, WarehouseSubject]) -> bool:
    home = warehouses.get(Key("Warehouse", other.meta.namespace, other.spec.warehouse_ref.name))
    return home is not None and table_claim(other, home) == claim

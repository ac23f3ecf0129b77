"""Which table in which catalog a Table claims, and who claimed it first.

Two Tables may name one table of one catalog: the oldest wins. Pure.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from skipstone_core.contract.requests import CatalogType

from skipstone_operator.ports import Key
from skipstone_operator.resources.storage import place_text
from skipstone_operator.worlds.subjects import TableSubject, WarehouseSubject

Claim = tuple[str, ...]
DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}
#: What Kubernetes adds to the name and the namespace of a Service.
SERVICE_SUFFIXES = (".svc.cluster.local", ".svc")


def catalog_identity(warehouse: WarehouseSubject) -> Claim:
    """What makes two Warehouses share tables: an SQLite file is known by its claim, others by address and name."""
    catalog = warehouse.spec.catalog
    if catalog.type is CatalogType.SQL and (not catalog.uri or catalog.uri.startswith("sqlite")):
        place = place_text(warehouse.spec.storage)
        return ("sqlite", warehouse.meta.namespace, place, _file_of(catalog.uri), catalog.name)
    where = catalog.properties.get("warehouse", "") if catalog.type is CatalogType.REST else catalog.name
    return (catalog.type.value, *_address(catalog.uri, warehouse.meta.namespace), where)


def _file_of(uri: str) -> str:
    # sqlite:////skipstone/<warehouse>/<file>: the mount point differs by Warehouse, the file in the claim does not.
    path = posixpath.normpath(unquote(uri.partition("?")[0].partition("sqlite:")[2])).lstrip("/")
    return path.partition("skipstone/")[2].partition("/")[2] or "catalog.db"


def _address(uri: str, namespace: str) -> Claim:
    """Where ``uri`` leads: scheme, host, port and path. Who logs in, and how, makes no other catalog of it."""
    try:
        parts = urlsplit(uri.strip())
        port = parts.port
    except ValueError:
        return (uri,)
    scheme, _, _ = parts.scheme.lower().partition("+")
    host, asked = _host(parts)
    where = port or asked or DEFAULT_PORTS.get(scheme, 0)
    path = posixpath.normpath("/" + unquote(parts.path).lstrip("/"))
    return (scheme, _service(host, namespace), str(where), path)


def _host(parts: SplitResult) -> tuple[str, int]:
    """Host and port; the client of PostgreSQL takes them from the query as well."""
    query = parse_qs(parts.query)
    host = parts.hostname or query.get("host", [""])[0].lower()
    asked = query.get("port", ["0"])[0]
    return host.rstrip("."), int(asked) if asked.isdecimal() else 0


def _service(host: str, namespace: str) -> str:
    """A Service by name and namespace, whichever of its names ``host`` is; any other host as it is."""
    for suffix in SERVICE_SUFFIXES:
        if host.endswith(suffix):
            return host.removesuffix(suffix)
    is_short = host and "." not in host and ":" not in host and host != "localhost"
    return f"{host}.{namespace}" if is_short else host


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
    rivals = [table]
    for other in tables:
        home = warehouses.get(Key("Warehouse", other.meta.namespace, other.spec.warehouse_ref.name))
        if other.meta.uid != table.meta.uid and home is not None and table_claim(other, home) == claim:
            rivals.append(other)
    oldest = min(rivals, key=lambda subject: (subject.age, subject.meta.uid))
    return None if oldest.meta.uid == table.meta.uid else oldest

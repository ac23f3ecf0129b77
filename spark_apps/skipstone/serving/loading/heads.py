"""The catalog as plans ask it for indexes: what it lists and loads is good for a moment.

An answer that is a little old costs files, never rows: which files an index covers is decided file by file. Must not
be used for the table that is planned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, cast

from cachetools import TTLCache
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

#: How long answers are good.
HEAD_SECONDS: Final = 1.0
_MOST: Final = 10_000


class RememberedCatalog:
    """``catalog``, whose lists and tables are asked for at most once a second."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._kept: TTLCache[Hashable, Any] = TTLCache(_MOST, HEAD_SECONDS, clock)
        self._lock = Lock()

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """As the catalog's."""
        found: list[Identifier] = self._remembered(("list", namespace), lambda: self._catalog.list_tables(namespace))
        return found

    def load_table(self, identifier: str | Identifier) -> Table:
        """As the catalog's."""
        found: Table = self._remembered(("table", identifier), lambda: self._catalog.load_table(identifier))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def _remembered(self, key: Hashable, ask: Callable[[], Any]) -> Any:
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = ask()
            with self._lock:
                self._kept[key] = found
        return found


def remembered(catalog: Catalog) -> Catalog:
    """``catalog`` for those who look for indexes."""
    return cast(Catalog, RememberedCatalog(catalog))

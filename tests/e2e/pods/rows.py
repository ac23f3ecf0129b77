"""Prints all rows of tables as plain PyIceberg reads them.

Runs in a pod that mounts the Warehouse's claim: ``ROOT NAMESPACE.TABLE[@REF]...``, with a branch or tag after ``@``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog


def rows_of(catalog: SqlCatalog, path: str) -> list[dict[str, Any]]:
    """The rows of a table, or of one of its branches and tags."""
    table, _, ref = path.partition("@")
    scan = catalog.load_table(table).scan()
    found: list[dict[str, Any]] = (scan.use_ref(ref) if ref else scan).to_arrow().to_pylist()
    return found


root, *paths = sys.argv[1:]
catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db", warehouse=root)
print("ANSWER " + json.dumps({path: rows_of(catalog, path) for path in paths}, default=str))

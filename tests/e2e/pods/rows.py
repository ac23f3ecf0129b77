"""Prints all rows of a table as plain PyIceberg reads them.

Runs in a pod that mounts the Warehouse's claim: ``ROOT NAMESPACE.TABLE``.
"""

from __future__ import annotations

import json
import sys

from pyiceberg.catalog.sql import SqlCatalog

root, table = sys.argv[1:]
catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db", warehouse=root)
rows = catalog.load_table(table).scan().to_arrow().to_pylist()
print("ANSWER " + json.dumps(rows, default=str))

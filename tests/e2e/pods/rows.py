"""Prints all rows of tables as plain PyIceberg reads them.

Runs in a pod that mounts the Warehouse's claim: ``ROOT NAMESPACE.TABLE...``.
"""

from __future__ import annotations

import json
import sys

from pyiceberg.catalog.sql import SqlCatalog

root, *tables = sys.argv[1:]
catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db", warehouse=root)
rows = {name: catalog.load_table(name).scan().to_arrow().to_pylist() for name in tables}
print("ANSWER " + json.dumps(rows, default=str))

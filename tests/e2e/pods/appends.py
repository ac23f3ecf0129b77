"""A foreign writer that goes on: appends to tables in turn, about once a second, by plain PyIceberg.

Runs in a pod that mounts the Warehouse's claim: ``ROOT STOP NAMESPACE.TABLE...``. Every append has two rows, with ids
from 1,000 and from 100,000 on, until the file STOP (below ROOT) is there. Prints the ids of each table.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

root, stop, *tables = sys.argv[1:]
catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db?timeout=60", warehouse=root)
made: dict[str, list[int]] = {name: [] for name in tables}
number = 0
while not (Path(root) / stop).exists():
    for name in tables:
        table = catalog.load_table(name)
        rows = [{"id": i, "name": "theirs", "city": "Oslo", "born": None} for i in (1_000 + number, 100_000 + number)]
        try:
            table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
        except CommitFailedException:
            continue
        made[name] += [row["id"] for row in rows]
    number += 1
    time.sleep(1)
print("ANSWER " + json.dumps(made))

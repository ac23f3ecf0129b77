"""From the arrival of a file to its visible row, on this machine: `make bench-freshness`.

Starts `skipstone local up` with a MergeSchedule of every minute, an Inline index and a table of a million rows. Then it
puts files of 200 changes into the folder of the feed, each a few seconds into a minute, and looks at the table until a
reader sees the rows. Prints the seconds from the arrival and from the schedule's minute; writes
build/bench/freshness.jsonl.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pyiceberg.table import Table
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.bench.results import FOLDER, keep, show_goals

ROOT = Path(__file__).parents[2]
RESULTS = FOLDER / "freshness.jsonl"
CHANGES, MINUTE, LOOK, PATIENCE = 200, 60, 0.05, 300
MANIFESTS = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: lake}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}
---
apiVersion: skipstone.dev/v1alpha1
kind: Warehouse
metadata: {name: lake}
spec: {catalog: {type: Sql}, storage: {pvc: {claimName: lake}}}
---
apiVersion: skipstone.dev/v1alpha1
kind: Table
metadata: {name: orders}
spec:
  warehouseRef: {name: lake}
  identifier: {namespace: sales, name: orders}
  columns: [{name: id, type: long, required: true}, {name: customer, type: string}, {name: price, type: long}]
---
apiVersion: skipstone.dev/v1alpha1
kind: LoadJob
metadata: {name: first}
spec: {tableRef: {name: orders}, source: {format: Parquet, paths: [first]}}
---
apiVersion: skipstone.dev/v1alpha1
kind: SecondaryIndex
metadata: {name: by-customer}
spec: {tableRef: {name: orders}, columns: [customer], maintenance: Inline}
---
apiVersion: skipstone.dev/v1alpha1
kind: MergeSchedule
metadata: {name: feed}
spec:
  schedule: "* * * * *"
  mergeTemplate:
    spec:
      tableRef: {name: orders}
      source: {format: Json, paths: [feed], consume: New}
      keys: [{target: id, source: id}]
      whenMatched: [{action: Update}]
      whenNotMatched: [{action: Insert}]
"""


def main() -> None:
    """Measure so many files."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-freshness-", dir=options.work) as work:
        claim = Path(work) / "lake" / "claims" / "default" / "lake"
        _first(claim / "first", options.rows)
        manifests = Path(work) / "manifests.yaml"
        manifests.write_text(MANIFESTS)
        with _served(Path(work) / "lake", manifests):
            table = _loaded(claim, options.rows)
            lines = [_measure(claim, table, number) for number in range(1, options.files + 1)]
    seconds = [line["from_minute_s"] for line in lines]
    median, most = statistics.median(seconds), max(seconds)
    print(f"from the minute to the row: median {median:.1f} s, most {most:.1f} s")
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5, help="how many files arrive, one a minute")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--work", help="where the lake is made (the usual temporary folder)")
    return parser.parse_args()


def _first(folder: Path, rows: int) -> None:
    """The rows of the table, in a file."""
    folder.mkdir(parents=True)
    made = duckdb.sql(
        f"select range::bigint as id, 'c' || hash(range) % 100000 as customer, 1::bigint as price from range({rows})"
    )
    pq.write_table(made.to_arrow_table(), folder / "first.parquet")
    _arrive(folder.parent / "feed", 0, [0])


@contextmanager
def _served(root: Path, manifests: Path) -> Iterator[None]:
    command = [str(Path(sys.executable).parent / "skipstone"), "local", "up", "--root", str(root), "-f", str(manifests)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.terminate()


def _loaded(claim: Path, rows: int) -> Table:
    """The table once the load has committed."""
    place = WarehouseRef(name="lake", root=str(claim), catalog=CatalogRef(type=CatalogType.SQL))
    for _ in _looks():
        if (claim / "catalog.db").exists() and open_catalog(place).table_exists("sales.orders"):
            table = open_catalog(place).load_table("sales.orders")
            if table.current_snapshot() and table.scan().count() == rows:
                return table
    raise AssertionError


def _measure(claim: Path, table: Table, number: int) -> dict[str, Any]:
    """One file of updates and inserts: `arrived` is when its name was complete."""
    time.sleep(MINUTE - time.time() % MINUTE + random.uniform(5, 50))
    _arrive(claim / "feed", number, [*random.sample(range(1_000_000), CHANGES - 1), 10_000_000 + number])
    arrived = time.time()
    for _ in _looks():
        if table.refresh().scan(f"id = {10_000_000 + number}").count():
            break
    seen = time.time()
    minute = (arrived // MINUTE + 1) * MINUTE
    line = keep(RESULTS, {"case": f"file {number}", "from_arrival_s": seen - arrived, "from_minute_s": seen - minute})
    print(f"file {number}: {seen - arrived:.1f} s from its arrival, {seen - minute:.1f} s from the minute", flush=True)
    return line


def _arrive(feed: Path, number: int, keys: Sequence[int]) -> None:
    """Put a file of changes into the folder, by a rename once it is complete."""
    feed.mkdir(exist_ok=True)
    rows = ({"id": key, "customer": f"n{key}", "price": 1_000_000 + number} for key in keys)
    hidden = feed / f".{number}"
    hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    hidden.rename(feed / f"{number}.json")


def _looks() -> Iterator[None]:
    """Looks at the table, until patience ends."""
    end = time.time() + PATIENCE
    while time.time() < end:
        yield
        time.sleep(LOOK)
    raise SystemExit(f"nothing was seen for {PATIENCE} s")


if __name__ == "__main__":
    main()

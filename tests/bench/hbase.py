"""An index in HBase beside the same index in its table: `make bench-hbase`.

Both are built by a driver without a JVM, on the same table, whose keys are spread over all files. HBase is one process
on this machine, on local files. Prints a line per measure and writes build/bench/hbase.jsonl: ratio = table / HBase, so
above 1 HBase is faster or smaller.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from skipstone.indexes.found import FoundIndex, find_indexes
from skipstone.indexes.stores.port import store_of
from skipstone.tables.filesets import read_file_set
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.contract.requests import IndexRef
from skipstone_core.contract.stores import HBaseRef
from skipstone_core.indexing.use import ReadCost
from skipstone_core.keys import KeyFamily, KeyType

from tests.bench.results import FOLDER, keep, show_goals
from tests.spark.hbase import hbase_server
from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append

RESULTS = FOLDER / "hbase.jsonl"
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64())])
KIND = KeyType(KeyFamily.INTEGER)
#: Reading the files instead costs so much that every index is asked.
ANYTHING = ReadCost(files=1_000_000, bytes=1 << 50)
SEED = 7


@dataclass(frozen=True)
class Bench:
    """A lake with one table of ``rows``, and the index in both stores."""

    lake: Lake
    rows: int
    files: int
    indexes: dict[str, IndexRef]

    def fill(self) -> None:
        """Write the table in one commit per file: keys are a permutation, so that all files have keys of all ranges."""
        self.lake.create(SCHEMA)
        keys = np.random.default_rng(SEED).permutation(self.rows)
        for part in np.array_split(keys, self.files):
            append(self.lake.table(), pa.table({"k": part, "v": part}, SCHEMA))

    def found(self, name: str) -> FoundIndex:
        """An index with its coverage of the head."""
        table = self.lake.table()
        usable, _ = find_indexes(self.lake.catalog, table.name(), read_file_set(table))
        return next(index for index in usable if (index.index.stored.store is None) == (name == "table"))

    def ask(self, name: str, keys: int) -> Callable[[], list[int]]:
        """The search of so many random keys, of which nine in ten exist, by one index."""
        index = self.found(name)
        wanted = np.ones(len(index.covered), np.bool_)

        def search() -> list[int]:
            asked = pa.array(np.random.default_rng(keys).choice(self.rows * 10 // 9, keys, replace=False))
            finder = store_of(index.index).search(index, [KIND], wanted, ANYTHING)
            return [*finder.hits(finder.plan([asked]), [asked]).tolist()]

        return search


def timed(work: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Median of the seconds that ``work`` takes, and what it returns."""
    seconds, answer = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), answer


def compare(case: str, values: dict[str, float], rows: int) -> None:
    """Print and keep a line."""
    ratio = values["table"] / values["hbase"]
    line = {"case": case, "scale": rows, **{name: round(value, 4) for name, value in values.items()}}
    line["ratio"] = round(ratio, 3)
    keep(RESULTS, line)
    print(json.dumps(line), flush=True)


def run(bench: Bench, repeats: int) -> None:
    """All measures."""
    bench.fill()
    built = {name: timed(lambda index=index: bench.lake.reindex(index))[0] for name, index in bench.indexes.items()}
    compare("build, seconds", built, bench.rows)
    compare("bytes", {name: float(bench.lake.state(index).bytes) for name, index in bench.indexes.items()}, bench.rows)
    for keys in (10**2, 10**3, 10**4, 10**5, 10**6):
        if keys <= bench.rows:
            answers = {name: timed(bench.ask(name, keys), repeats) for name in bench.indexes}
            if answers["table"][1] != answers["hbase"][1]:
                raise RuntimeError(f"the indexes find other files of {keys} keys")
            compare(
                f"search of {keys} keys, seconds", {name: seconds for name, (seconds, _) in answers.items()}, bench.rows
            )
    append(bench.lake.table(), pa.table({"k": np.arange(1000), "v": np.arange(1000)}, SCHEMA))
    caught = {name: timed(lambda index=index: bench.lake.reindex(index))[0] for name, index in bench.indexes.items()}
    compare("catch-up of 1,000 rows, seconds", caught, bench.rows)


def main() -> None:
    """Make the lake and HBase, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    share = replace(USUAL_SHARE, indexed_rows=1 << 40)
    with tempfile.TemporaryDirectory() as folder, hbase_server(Path(folder) / "hbase") as port:
        (Path(folder) / "lake").mkdir()
        store = HBaseRef(host="127.0.0.1", port=port, timeout_seconds=120)
        indexes = {
            "table": index_on("k", name="in-table"),
            "hbase": replace(index_on("k", name="in-hbase"), store=store),
        }
        indexes["hbase"] = replace(indexes["hbase"], uid="7" + indexes["hbase"].uid[1:])
        run(Bench(Lake(Path(folder) / "lake", share=share), options.rows, options.files, indexes), options.repeats)
    show_goals(RESULTS)


if __name__ == "__main__":
    main()

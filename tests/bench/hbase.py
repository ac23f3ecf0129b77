"""An index in HBase beside the same index in its table: `make bench-hbase`.

Both are built by a driver without a JVM, on the same table, whose keys are spread over all files. HBase is one process
on this machine, on local files. Each search is the first of a new process, as in a pod, and then comes again in it.
Processors: seconds of all processors, those of HBase too, which say how much work it was on a machine that is busy.
Prints each measure as soon as it is there, and writes build/bench/hbase.jsonl: ratio = table / HBase, so above 1 HBase
is faster or smaller. With --folder, the lake and HBase stay there: the next call searches without building them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

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
from tests.ports import free_port
from tests.spark.hbase import hbase_server
from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append

RESULTS = FOLDER / "hbase.jsonl"
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64())])
KIND = KeyType(KeyFamily.INTEGER)
#: Reading the files instead costs so much that every index is asked.
ANYTHING = ReadCost(files=1_000_000, bytes=1 << 50)
SEED = 7
KEYS = (10**2, 10**3, 10**4, 10**5, 10**6)
IN_TABLE, IN_HBASE = "table", "hbase"


@dataclass(frozen=True)
class Work:
    """Seconds that something took, and seconds of processors, those of HBase among them."""

    seconds: float
    cpu: float


@dataclass
class Clock:
    """Counts from when it is made. ``servers``: ids of processes whose processors count besides this one's."""

    servers: Sequence[int]
    _start: Work = field(init=False)

    def __post_init__(self) -> None:
        """Start."""
        self._start = self._now()

    def work(self) -> Work:
        """The work until now."""
        now = self._now()
        return Work(now.seconds - self._start.seconds, now.cpu - self._start.cpu)

    def _now(self) -> Work:
        cpu = time.process_time()
        for number in self.servers:
            fields = Path("/proc", str(number), "stat").read_text().rpartition(")")[2].split()
            cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return Work(time.perf_counter(), cpu)


@dataclass(frozen=True)
class Place:
    """A lake below ``root`` with one table of ``rows``, and the ``port`` of HBase; goes to processes that search.

    ``servers``: ids of HBase's processes.
    """

    root: Path
    rows: int
    port: int
    servers: tuple[int, ...]

    @property
    def lake(self) -> Lake:
        """Whose driver builds indexes of any size."""
        return Lake(self.root, share=replace(USUAL_SHARE, indexed_rows=1 << 40))

    def index(self, name: str) -> IndexRef:
        """The index in the table, or in HBase."""
        index = index_on("k", name=f"in-{name}")
        if name == IN_TABLE:
            return index
        store = HBaseRef(host="127.0.0.1", port=self.port, timeout_seconds=120)
        return replace(index, uid="7" + index.uid[1:], store=store)

    def servers_of(self, name: str) -> tuple[int, ...]:
        """Whose work belongs to an index, besides this process."""
        return self.servers if name == IN_HBASE else ()

    def found(self, name: str) -> FoundIndex:
        """An index with its coverage of the head."""
        lake = self.lake
        table = lake.table()
        usable, _ = find_indexes(lake.catalog, table.name(), read_file_set(table))
        return next(index for index in usable if (index.index.stored.store is None) == (name == IN_TABLE))


@dataclass(frozen=True)
class Searched:
    """The ``first`` of equal searches in a process, the medians of the ``next`` ones, and the files that they found."""

    first: Work
    next: Work
    files: Sequence[int]


def search(place: Place, name: str, keys: int, repeats: int) -> Searched:
    """Search so many random keys, of which nine in ten exist, by one index, which is looked up each time."""
    asked = pa.array(np.random.default_rng(keys).choice(place.rows * 10 // 9, keys, replace=False))
    works, files = list[Work](), list[int]()
    for _ in range(repeats):
        index = place.found(name)
        clock = Clock(place.servers_of(name))
        finder = store_of(index.index).search(index, [KIND], np.ones(len(index.covered), np.bool_), ANYTHING)
        files = [*finder.hits(finder.plan([asked]), [asked]).tolist()]
        works.append(clock.work())
    later = Work(*(statistics.median(parts) for parts in zip(*map(astuple, works[1:]), strict=True)))
    return Searched(works[0], later, files)


def in_process(place: Place, name: str, keys: int, repeats: int) -> Searched:
    """``search`` in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(search, place, name, keys, repeats).result()


def fill(place: Place, files: int) -> None:
    """Write the table in one commit per file: keys are a permutation, so that all files have keys of all ranges."""
    place.lake.create(SCHEMA)
    keys = np.random.default_rng(SEED).permutation(place.rows)
    for part in np.array_split(keys, files):
        append(place.lake.table(), pa.table({"k": part, "v": part}, SCHEMA))


def both(case: str, place: Place, measure: Callable[[str], float]) -> None:
    """Measure both indexes, and print and keep a line."""
    values = {}
    for name in (IN_TABLE, IN_HBASE):
        values[name] = round(measure(name), 4)
        print(f"{case}: {name} {values[name]}", flush=True)
    line = {"case": case, "scale": place.rows, **values, "ratio": round(values[IN_TABLE] / values[IN_HBASE], 3)}
    keep(RESULTS, line)
    print(json.dumps(line), flush=True)


def build(place: Place, name: str) -> Work:
    """A reindex run of all that is missing."""
    clock = Clock(place.servers_of(name))
    place.lake.reindex(place.index(name))
    return clock.work()


def children() -> tuple[int, ...]:
    """Ids of the processes that this one started and that run."""
    lists = Path("/proc/self/task").glob("*/children")
    return tuple(int(number) for part in lists for number in part.read_text().split())


def compare_builds(case: str, place: Place) -> None:
    """Measure a reindex run of each index."""
    works = dict[str, Work]()

    def seconds(name: str) -> float:
        works[name] = build(place, name)
        return works[name].seconds

    both(f"{case}, seconds", place, seconds)
    both(f"processors of {case}, seconds", place, lambda name: works[name].cpu)


def compare_searches(place: Place, keys: int, repeats: int) -> None:
    """Measure searches of so many keys. Raises RuntimeError for indexes that find other files."""
    searched = {name: in_process(place, name, keys, repeats) for name in (IN_TABLE, IN_HBASE)}
    if searched[IN_TABLE].files != searched[IN_HBASE].files:
        raise RuntimeError(f"the indexes find other files of {keys} keys")
    both(f"first search of {keys} keys, seconds", place, lambda name: searched[name].first.seconds)
    both(f"processors of first search of {keys} keys, seconds", place, lambda name: searched[name].first.cpu)
    both(f"next search of {keys} keys, seconds", place, lambda name: searched[name].next.seconds)
    both(f"processors of next search of {keys} keys, seconds", place, lambda name: searched[name].next.cpu)


def search_all(place: Place, keys: Sequence[int], repeats: int) -> None:
    """All searches."""
    for count in keys:
        if count <= place.rows:
            compare_searches(place, count, repeats)


def build_all(place: Place, files: int) -> None:
    """The lake, and builds of both indexes."""
    place.root.mkdir()
    fill(place, files)
    compare_builds("build", place)
    both("bytes", place, lambda name: float(place.lake.state(place.index(name)).bytes))


@contextmanager
def workplace(folder: str, heap: str) -> Iterator[tuple[Path, int]]:
    """Where the lake is, and the port of HBase: in a folder that stays, or in one that goes."""
    if not folder:
        with tempfile.TemporaryDirectory() as made, hbase_server(Path(made) / "hbase", heap=heap) as port:
            yield Path(made) / "lake", port
        return
    kept = Path(folder) / "port"
    if not kept.exists():
        kept.parent.mkdir(parents=True)
        kept.write_text(str(free_port()))
    with hbase_server(kept.parent / "hbase", heap=heap, kept_port=int(kept.read_text())) as port:
        yield kept.parent / "lake", port


def main() -> None:
    """Make the lake and HBase, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--keys", type=int, nargs="*", default=KEYS, help="of searches; none: no search")
    parser.add_argument("--repeats", type=int, default=4, help="searches in each process, at least 2")
    parser.add_argument("--heap", default="1g", help="of HBase, as Java takes it")
    parser.add_argument("--folder", default="", help="where the lake and HBase stay")
    options = parser.parse_args()
    with workplace(options.folder, options.heap) as (root, port):
        place = Place(root, options.rows, port, children())
        if not place.root.exists():
            build_all(place, options.files)
        search_all(place, options.keys, options.repeats)
        if not options.folder:
            append(place.lake.table(), pa.table({"k": np.arange(1000), "v": np.arange(1000)}, SCHEMA))
            compare_builds("catch-up of 1,000 rows", place)
    show_goals(RESULTS)


if __name__ == "__main__":
    main()

"""Merges by `skipstone.open` beside PyIceberg's `Table.upsert`: `make bench-upsert`.

Both tables begin with the rows of the same files, in SQLite catalogs on this disk. Then the same changes, nine keys of
ten known and one new, go into each of them: as an Arrow table, by one call, timed from its begin to its end; ours with
the object, the driver's start and all. After each pair, the rows of both tables are compared with a merge by DuckDB.
PyIceberg runs in a process of its own that is ended after `--bound` seconds, or above `--memory` GiB: its time is then
given as "at least", and it is not asked for more keys. Prints how far it is, then a table of times by the clock,
processor seconds and the peak of memory (RSS) of the processes that do the work; writes build/bench/upsert.jsonl.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import skipstone
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.bench.processes import cpu_seconds, resident_bytes, watching_children
from tests.bench.results import EXIT_MISSED, FOLDER, keep, show_goals

ROOT = Path(__file__).parents[2]
RESULTS = FOLDER / "upsert.jsonl"
#: The columns of a row with the key `id`, as it was before change number `version`.
COLUMNS = """
    id::bigint as id, 'customer-' || (hash(id) % 100000) as customer,
    (hash(id, {version}) % 1000000)::bigint as price, md5(id::varchar) || '{version}' as note
"""
#: A number that makes keys out of numbers: every number gets another one, and neighbors lie far apart.
SPREAD, MODULUS = 2654435761, 1 << 32
#: Our table for each way to merge.
MODES = {"copy-on-write": "bench.orders", "merge-on-read": "bench.marked"}
#: Seconds between two looks at PyIceberg's process, and between two lines about it.
LOOK, LINE = 1.0, 60.0


@dataclass(frozen=True)
class Bed:
    """The folder of a run, with the rows of both tables in files: `appends` of them, all of `rows` rows."""

    folder: Path
    rows: int
    appends: int

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/pyiceberg/catalog.db"

    def parts(self) -> list[Path]:
        return [self.folder / f"part-{part:03d}.parquet" for part in range(self.appends)]

    def changes(self, keys: int) -> Path:
        return self.folder / f"changes-{keys}.parquet"

    def expected(self, keys: int) -> Path:
        """The rows after the changes of so many keys; those before all of them for 0."""
        return self.folder / f"expected-{keys}.parquet"


@dataclass(frozen=True)
class Cost:
    """What one merge took. ``cut``: why it was ended before its end, with what it had taken until then."""

    seconds: float
    cpu_seconds: float
    peak_mib: int
    cut: str = ""


@dataclass(frozen=True)
class Bounds:
    """When PyIceberg's process is ended."""

    seconds: float
    gib: float


def main() -> None:
    """Measure each number of keys on both sides."""
    options = _options()
    if options.upsert:
        print(json.dumps(_upsert(**json.loads(options.upsert))))
        return
    bounds = Bounds(options.bound, options.memory)
    with tempfile.TemporaryDirectory(prefix="bench-upsert-", dir=options.work) as work:
        lines = _measure(Bed(Path(work), options.rows, options.appends), options.keys, bounds)
    print(f"{'keys':>9} {'table':>14} {'files':>6} {'skipstone':>28} {'pyiceberg':>28} {'ratio':>8} {'CPU':>8}")
    for line in lines:
        least = ">= " if line["pyiceberg"]["cut"] else ""
        ratios = "".join(f" {least + format(line[name], '.1f'):>8}" for name in ("ratio", "cpu_ratio"))
        costs = f"{_shown(line['skipstone']):>28} {least + _shown(line['pyiceberg']):>28}"
        print(f"{line['keys']:>9} {line['mode']:>14} {line['files']:>6} {costs}{ratios}")
    print("rows are equal to a merge by DuckDB on every side that finished")
    if not show_goals(RESULTS):
        sys.exit(EXIT_MISSED)


def _shown(cost: dict[str, Any]) -> str:
    return f"{cost['seconds']:.1f} s ({cost['cpu_seconds']:.0f} CPU) {cost['peak_mib']} MiB"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--appends", type=int, default=40)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--bound", type=float, default=3600.0, help="seconds for PyIceberg; 0: leave it out")
    parser.add_argument("--memory", type=float, default=16.0, help="GiB for one upsert of PyIceberg")
    parser.add_argument("--work", help="a folder on the disk to measure")
    parser.add_argument("--upsert", help=argparse.SUPPRESS)
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _measure(bed: Bed, keys: list[int], bounds: Bounds) -> list[dict[str, Any]]:
    _say(f"rows: {bed.rows} in {bed.appends} files, and what DuckDB makes of them")
    _lay(bed, keys)
    lines: list[dict[str, Any]] = []
    with skipstone.open(bed.folder / "lake") as lake:
        for mode, name in MODES.items():
            _say(f"Skipstone: load, {mode}")
            properties = {"write.merge.mode": mode}
            lake.table(name, pq.read_schema(bed.parts()[0]), properties=properties)
            lake.load(name, bed.parts())
        peer = _lay_peer(bed) if bounds.seconds else None
        for count in keys:
            merged = {mode: _merge(lake, name, bed, count) for mode, name in MODES.items()}
            theirs = Cost(bounds.seconds, 0.0, 0, "not asked")
            if peer is not None:
                theirs = _upsert_in_bounds(bed, count, bounds)
                _say(f"PyIceberg: {count} keys, {_shown(asdict(theirs))} {theirs.cut}")
            if peer is not None and not theirs.cut:
                _compare(peer.refresh().scan().to_arrow(), bed.expected(count), "PyIceberg")
            peer = None if theirs.cut else peer
            for mode, (ours, files) in merged.items():
                line = {"case": f"{count:,} changes, {mode}", "scale": bed.rows, "keys": count, "mode": mode}
                line |= {"files": files, "skipstone": asdict(ours), "pyiceberg": asdict(theirs)}
                ratios = {"ratio": theirs.seconds / ours.seconds, "cpu_ratio": theirs.cpu_seconds / ours.cpu_seconds}
                lines.append(keep(RESULTS, line | ratios))
                print(json.dumps(lines[-1]), flush=True)
    return lines


def _merge(lake: Any, name: str, bed: Bed, keys: int) -> tuple[Cost, int]:
    """What our merge took, and how many files the table had; fails unless its rows are right."""
    changes = pq.read_table(bed.changes(keys))
    with watching_children() as peak:
        used, begin = cpu_seconds(), time.perf_counter()
        merged = lake.merge(changes, into=name, keys="id")
        cost = Cost(time.perf_counter() - begin, cpu_seconds() - used, peak.size >> 20)
    _say(f"Skipstone: {keys} keys into {name}, {_shown(asdict(cost))}, of which the driver {merged.duration}")
    _compare(lake.read(name), bed.expected(keys), f"{name} of Skipstone")
    return cost, merged.files_total


def _lay(bed: Bed, keys: list[int]) -> None:
    """Write the rows, the changes and what is expected after each of them."""
    numbers = f"range * {SPREAD} % {MODULUS} as id"
    step = -(-bed.rows // bed.appends)
    with duckdb.connect() as base:
        for number, part in enumerate(bed.parts()):
            these = f"select {numbers} from range({number * step}, {min(bed.rows, (number + 1) * step)})"
            base.sql(f"select {COLUMNS.format(version=0)} from ({these})").write_parquet(str(part))
        parts = ", ".join(f"'{part}'" for part in bed.parts())
        base.sql(f"select * from read_parquet([{parts}])").write_parquet(str(bed.expected(0)))
        before = 0
        for version, count in enumerate(keys, 1):
            known_keys = count * 9 // 10
            every = max(1, bed.rows // known_keys)
            known = f"select {numbers} from range(0, {bed.rows}, {every}) limit {known_keys}"
            new = f"select {numbers} from range({bed.rows}, {bed.rows + count - known_keys})"
            these = f"({known}) union all {new}"
            base.sql(f"select {COLUMNS.format(version=version)} from ({these})").write_parquet(str(bed.changes(count)))
            old, changed = f"'{bed.expected(before)}'", f"'{bed.changes(count)}'"
            kept = f"select * from {old} anti join (select id from {changed}) using (id)"
            base.sql(f"{kept} union all select * from {changed}").write_parquet(str(bed.expected(count)))
            before = count


def _lay_peer(bed: Bed) -> Table:
    """PyIceberg's table, made by as many appends."""
    (bed.folder / "pyiceberg").mkdir()
    catalog = _peer_catalog(bed.uri)
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.orders", pq.read_schema(bed.parts()[0]))
    for number, part in enumerate(bed.parts(), 1):
        table.append(pq.read_table(part))
        if number % 10 == 0 or number == bed.appends:
            _say(f"PyIceberg: append {number} of {bed.appends}")
    return table


def _peer_catalog(uri: str) -> SqlCatalog:
    folder = uri.removeprefix("sqlite:///").removesuffix("/catalog.db")
    return SqlCatalog("peer", uri=uri, warehouse=f"file://{folder}")


def _upsert_in_bounds(bed: Bed, keys: int, bounds: Bounds) -> Cost:
    """What the upsert took, or had taken when it left its bounds."""
    given = json.dumps({"uri": bed.uri, "changes": str(bed.changes(keys))})
    command = [sys.executable, "-m", "tests.bench.upsert", "--upsert", given]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        begin, peak, line = time.perf_counter(), 0, LINE
        try:
            while process.poll() is None:
                seconds, size = time.perf_counter() - begin, resident_bytes(process.pid) >> 20
                now = Cost(seconds, cpu_seconds(process.pid), peak := max(peak, size))
                if seconds > bounds.seconds:
                    return replace(now, cut="cut: time")
                if size > bounds.gib * 1024:
                    return replace(now, cut="cut: memory")
                if seconds > line:
                    _say(f"PyIceberg: {keys} keys, {_shown(asdict(now))} until now")
                    line += LINE
                time.sleep(LOOK)
        finally:
            process.kill()
        said = process.stdout.read() if process.stdout else ""
        if process.returncode:
            return replace(now, cut=f"ended with {process.returncode}")
    return Cost(**json.loads(said.splitlines()[-1]))


def _upsert(uri: str, changes: str) -> dict[str, Any]:
    """One upsert, in a process of its own; imports and the read of the changes are not counted."""
    table, rows = _peer_catalog(uri).load_table("bench.orders"), pq.read_table(changes)
    begin, used = time.perf_counter(), time.process_time()
    table.upsert(rows, join_cols=["id"])
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    return asdict(Cost(seconds, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10))


def _compare(found: pa.Table, expected: Path, who: str) -> None:
    """Fail unless the rows are those of the file, each as often."""
    with duckdb.connect(config={"memory_limit": "4GB"}) as base:
        base.register("found", found)
        wanted = f"select id, customer, price, note from '{expected}'"
        columns = "select id, customer, price, note from found"
        ((count, right),) = base.sql(
            f"select (select count(*) from found), (select count(*) from ({wanted}))"
        ).fetchall()
        ((lacking,),) = base.sql(f"select count(*) from ({wanted} except all {columns})").fetchall()
    if (count, lacking) != (right, 0):
        sys.exit(f"{who} has other rows than a merge by DuckDB: {count} of {right}, {lacking} differ")


if __name__ == "__main__":
    main()

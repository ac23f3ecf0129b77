"""Merges by `skipstone.open` beside PyIceberg's `Table.upsert`: `make bench-upsert`.

Both tables begin with the rows of the same files, in SQLite catalogs on this disk. Then the same changes, nine keys of
ten known and one new, go into each of them: as an Arrow table, by one call, timed from its begin to its end; ours with
the object, the driver's start and all. After each pair, the rows of both tables are compared with a merge by DuckDB.
PyIceberg runs in a process of its own that is ended after `--bound` seconds: its time is then given as "at least", and
it is not asked for more keys. Prints a table and writes build/bench/upsert.jsonl.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import skipstone
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "bench" / "upsert.jsonl"
GOAL = 20.0
#: The columns of a row with the key `id`, as it was before change number `version`.
COLUMNS = """
    id::bigint as id, 'customer-' || (hash(id) % 100000) as customer,
    (hash(id, {version}) % 1000000)::bigint as price, md5(id::varchar) || '{version}' as note
"""
#: A number that makes keys out of numbers: every number gets another one, and neighbors lie far apart.
SPREAD, MODULUS = 2654435761, 1 << 32


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


def main() -> None:
    """Measure each number of keys on both sides."""
    options = _options()
    if options.upsert:
        print(json.dumps(_upsert(**json.loads(options.upsert))))
        return
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-upsert-", dir=options.work) as work:
        lines = _measure(Bed(Path(work), options.rows, options.appends), options.keys, options.bound)
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{'keys':>9} {'rows':>11} {'files':>6} {'skipstone s':>12} {'pyiceberg s':>12} {'ratio':>8}")
    for line in lines:
        least = "" if line["finished"] else ">= "
        peer, ratio = f"{least}{line['pyiceberg_s']:.1f}", f"{least}{line['ratio']:.1f}"
        sizes = f"{line['keys']:>9} {line['rows']:>11} {line['files']:>6}"
        print(f"{sizes} {line['skipstone_s']:>12.1f} {peer:>12} {ratio:>8}")
    print(f"goal: {GOAL:.0f}x; rows equal to a merge by DuckDB on every side that finished")
    if missed := [line["keys"] for line in lines if line["ratio"] < GOAL]:
        sys.exit(f"the goal is missed with {', '.join(map(str, missed))} keys")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--appends", type=int, default=40)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--bound", type=float, default=3600.0, help="seconds for one upsert of PyIceberg")
    parser.add_argument("--work", help="a folder on the disk to measure")
    parser.add_argument("--upsert", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(bed: Bed, keys: list[int], bound: float) -> list[dict[str, Any]]:
    _lay(bed, keys)
    peer = _lay_peer(bed)
    lines, goes_on = [], True
    with skipstone.open(bed.folder / "lake") as lake:
        lake.table("bench.orders", pq.read_schema(bed.parts()[0]))
        lake.load("bench.orders", bed.parts())
        for count in keys:
            changes = pq.read_table(bed.changes(count))
            begin = time.perf_counter()
            merged = lake.merge(changes, into="bench.orders", keys="id")
            ours = time.perf_counter() - begin
            _compare(lake.read("bench.orders"), bed.expected(count), "Skipstone")
            theirs, finished = _upsert_in_bound(bed, count, bound) if goes_on else (bound, False)
            if finished:
                peer = peer.refresh()
                _compare(peer.scan().to_arrow(), bed.expected(count), "PyIceberg")
            goes_on = finished
            lines.append({
                "keys": count, "rows": bed.rows, "files": merged.files_total, "rewritten": merged.files_rewritten,
                "skipstone_s": ours, "pyiceberg_s": theirs, "finished": finished, "ratio": theirs / ours,
                "driver": merged.duration,
            })  # fmt: skip
            print(json.dumps(lines[-1]), flush=True)
    return lines


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
    for part in bed.parts():
        table.append(pq.read_table(part))
    return table


def _peer_catalog(uri: str) -> SqlCatalog:
    folder = uri.removeprefix("sqlite:///").removesuffix("/catalog.db")
    return SqlCatalog("peer", uri=uri, warehouse=f"file://{folder}")


def _upsert_in_bound(bed: Bed, keys: int, bound: float) -> tuple[float, bool]:
    """Seconds that the upsert took, and whether it ended within its bound."""
    given = json.dumps({"uri": bed.uri, "changes": str(bed.changes(keys))})
    command = [sys.executable, "-m", "tests.bench.upsert", "--upsert", given]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=bound, check=True)
    except subprocess.TimeoutExpired:
        return bound, False
    return json.loads(done.stdout.splitlines()[-1])["seconds"], True


def _upsert(uri: str, changes: str) -> dict[str, float]:
    """One upsert, in a process of its own; imports and the read of the changes are not counted."""
    table, rows = _peer_catalog(uri).load_table("bench.orders"), pq.read_table(changes)
    begin = time.perf_counter()
    table.upsert(rows, join_cols=["id"])
    return {"seconds": time.perf_counter() - begin}


def _compare(found: pa.Table, expected: Path, who: str) -> None:
    """Fail unless the rows are those of the file, each as often."""
    with duckdb.connect() as base:
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

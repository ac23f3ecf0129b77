"""Compaction beside Iceberg's rewrite_data_files, on tables of the same small files: `make bench-compaction`.

Ours and the peer compact in turn, to files of the same size; rows are compared after each. With indexes, ours keeps two
in sync in the same run, and the peer's run is followed by ours that brings the indexes up to date. Then a scan and a
lookup are timed on a table with many merges on read, before and after its compaction.
Prints a table and writes build/bench/compaction.jsonl: ratio = peer / ours, medians of the repetitions; cpu_ratio is
that of processor seconds of all processes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import skipstone
from pyspark.sql import SparkSession

from tests.bench import compaction_tables as tables
from tests.bench.compaction_tables import KEYS, Bed
from tests.bench.lineitem import Lineitem, iceberg_session, say
from tests.bench.peers import AGGREGATE, ICEBERG, is_wanted
from tests.bench.processes import cpu_seconds
from tests.bench.results import FOLDER, is_left, keep, show_goals, verdict

RESULTS = FOLDER / "compaction.jsonl"
#: Orders in calls of Iceberg's procedures are read by these.
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
SORTED_BY = "l_partkey"
#: Files that ours sorts together; the peer is told the same.
SORTED_TARGETS = 4
UPDATED, INSERTED = 200, 20


@dataclass(frozen=True)
class Case:
    """A compaction. ``indexed``: with two indexes in sync before and after."""

    name: str
    sort_by: tuple[str, ...] = ()
    indexed: bool = False


CASES = (
    Case("bin-pack"),
    Case(f"sorted by {SORTED_BY}", (SORTED_BY,)),
    Case("bin-pack with two indexes", indexed=True),
    Case(f"sorted by {SORTED_BY} with two indexes", (SORTED_BY,), indexed=True),
)


def main() -> None:
    """Run all cases."""
    options = _options()
    bed = Bed(Lineitem(options.scale, options.segments, options.of), options.files)
    shutil.rmtree(bed.root, ignore_errors=True)
    bed.catalog.list_tables("compact")
    spark = iceberg_session(bed, {"spark.sql.extensions": EXTENSIONS})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        for line in _lines(bed, spark, options):
            print(_shown(keep(RESULTS, line | {"files": options.files, "scale": options.scale})), flush=True)
    finally:
        tables.close()
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=3, help="of lineitem")
    parser.add_argument("--segments", type=int, default=40, help="commits that it is made by")
    parser.add_argument("--of", type=int, default=400, help="files of it")
    parser.add_argument("--files", type=int, default=160, help="of these, in each table")
    parser.add_argument("--target", type=int, default=32, help="MiB of a compacted file")
    parser.add_argument("--merges", type=int, default=200, help="on read, before the scans and lookups")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name holds one of these, separated by semicolons")
    return parser.parse_args()


def _shown(line: dict[str, Any]) -> str:
    peers = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in line["peers"].items())
    more = f" ({line['ours_files']} and {line['peer_files']} files)" if "ours_files" in line else ""
    cpu = f", CPU {line['cpu_ratio']:.2f}" if "cpu_ratio" in line else ""
    return f"{line['case']:<50} ours {line['ours_s']:.3f} s, {peers}: {line['ratio']:.2f}{cpu}{more} {verdict(line)}"


def _lines(bed: Bed, spark: SparkSession, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    target = options.target * 1024 * 1024
    scale = options.scale
    cases = [case for case in CASES if is_wanted(case.name, options.only) and is_left(RESULTS, [case.name], scale)]
    if cases:
        for name in ("ours", "peer"):
            bed.make(name)
        _compacted(bed, spark, cases[0], target)  # classes are loaded and compiled
    for case in cases:
        yield _measured(bed, spark, case, target, options.repeats)
    reads = [f"{what}: before compaction / after, ours" for what in ("scan", "lookup")]
    if is_wanted("merges on read", options.only) and is_left(RESULTS, reads, scale):
        yield from _reads(bed, spark, options, target)


def _measured(bed: Bed, spark: SparkSession, case: Case, target: int, repeats: int) -> dict[str, Any]:
    if case.indexed:
        for name in ("ours", "peer"):
            bed.restore(name)
            bed.reindex(name)
            for index in bed.index_names(name):
                bed.keep(index)
    runs = [_compacted(bed, spark, case, target) for _ in range(repeats)]
    (ours, ours_cpu), (peer, peer_cpu) = (_median(costs) for costs in zip(*runs, strict=True))
    sizes = {who: bed.sizes(who) for who in ("ours", "peer")}
    return {
        "case": case.name,
        "repeats": repeats,
        "ours_s": round(ours, 3),
        "peers": {ICEBERG: round(peer, 3)},
        "ratio": round(peer / ours, 3),
        "ours_cpu_s": round(ours_cpu, 3),
        "peer_cpu_s": round(peer_cpu, 3),
        "cpu_ratio": round(peer_cpu / ours_cpu, 3),
        **{f"{who}_files": len(found) for who, found in sizes.items()},
        **{f"{who}_mib": round(sum(found) / 1024**2, 1) for who, found in sizes.items()},
        **{f"{who}_median_mib": round(statistics.median(found) / 1024**2, 1) for who, found in sizes.items()},
    }


class Cost(NamedTuple):
    """Seconds by the clock and of processors."""

    wall: float
    cpu: float


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(one) for one in zip(*costs, strict=True)))


def _compacted(bed: Bed, spark: SparkSession, case: Case, target: int) -> tuple[Cost, Cost]:
    """What ours and the peer cost. Raises RuntimeError when rows differ afterwards."""
    for name in ("ours", "peer"):
        for one in (name, *(bed.index_names(name) if case.indexed else ())):
            bed.restore(one)
    begun = cpu_seconds()
    wall = bed.compact("ours", target, case.sort_by, indexed=case.indexed)
    ours = Cost(wall, cpu_seconds() - begun)
    begun = cpu_seconds()
    wall = _rewritten(spark, bed, case, target) + (bed.reindex("peer") if case.indexed else 0)
    peer = Cost(wall, cpu_seconds() - begun)
    held = {_content(spark, bed.sql(name)) for name in ("ours", "peer")}
    if len(held) != 1:
        raise RuntimeError(f"{case.name}: the rows differ: {held}")
    return ours, peer


def _rewritten(spark: SparkSession, bed: Bed, case: Case, target: int) -> float:
    """Seconds of Iceberg's own compaction."""
    options = {
        "target-file-size-bytes": target,
        "min-input-files": 2,
        "max-concurrent-file-group-rewrites": tables.CORES,
    }
    if case.sort_by:
        options["max-file-group-size-bytes"] = SORTED_TARGETS * target
    told = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    how = f"strategy => 'sort', sort_order => '{', '.join(case.sort_by)}'" if case.sort_by else "strategy => 'binpack'"
    name, _, table = bed.sql("peer").partition(".")
    spark.sql(f"refresh table {bed.sql('peer')}")
    start = time.perf_counter()
    spark.sql(f"call {name}.system.rewrite_data_files(table => '{table}', {how}, options => map({told}))").collect()
    return time.perf_counter() - start


def _content(spark: SparkSession, table: str) -> tuple[Any, ...]:
    """What tells other rows from the same ones, in any order."""
    spark.sql(f"refresh table {table}")
    (row,) = spark.sql(f"select count(*), sum(cast(xxhash64(*) as decimal(38, 0))) from {table}").collect()
    return tuple(row)


def _reads(bed: Bed, spark: SparkSession, options: argparse.Namespace, target: int) -> Iterator[dict[str, Any]]:
    """A scan and a lookup before and after the compaction of a table with many merges on read."""
    bed.make("merged")
    bed.reindex("merged")
    keys = _merge_often(bed, options.merges)
    queries = {
        "scan": [f"select {AGGREGATE} from {bed.sql('merged')}"] * (options.repeats + 1),
        "lookup": [f"select * from {bed.sql('merged')} where l_partkey = {key}" for key in keys[: options.repeats + 1]],
    }
    before = {what: _timed(spark, texts) for what, texts in queries.items()}
    held = _content(spark, bed.sql("merged"))
    seconds = bed.compact("merged", target, indexed=True)
    say(f"the compaction of the table with {options.merges} merges on read took {seconds:.1f} s")
    if _content(spark, bed.sql("merged")) != held:
        raise RuntimeError("the rows of the merged table differ after its compaction")
    after = {what: _timed(spark, texts) for what, texts in queries.items()}
    for what in queries:
        for moment, found in (("before", before[what]), ("after", after[what])):
            yield _line(f"{what} after {options.merges} merges on read, {moment} compaction", *found)
        yield _line(f"{what}: before compaction / after, ours", after[what][0], before[what][0]) | {
            "peer_gain": round(before[what][1] / after[what][1], 3)
        }


def _line(case: str, ours: float, other: float) -> dict[str, Any]:
    ratio = round(other / ours, 3)
    seconds = {"ours_s": round(ours, 4), "peers": {ICEBERG: round(other, 4)}}
    return {"case": case, **seconds, "ratio": ratio}


def _merge_often(bed: Bed, merges: int) -> list[int]:
    """Merge small feeds; values of ``l_partkey`` that stand in the table."""
    chance = np.random.default_rng(1)
    rows = bed.table("merged").scan().to_arrow()
    highest = int(pc.max(rows[KEYS[0]]).as_py())
    for number in range(merges):
        feed = rows.take(chance.choice(len(rows), UPDATED + INSERTED, replace=False))
        orders = feed[KEYS[0]].to_numpy().copy()
        orders[UPDATED:] = highest + 1 + number * INSERTED + np.arange(INSERTED)
        feed = feed.set_column(0, KEYS[0], pa.array(orders))
        folder = bed.root / "feeds" / f"{number}"
        folder.mkdir(parents=True)
        pq.write_table(feed, folder / "part-0.parquet")
        bed.merge("merged", f"feeds/{number}")
        if (number + 1) % 50 == 0:
            say(f"{number + 1} of {merges} merges on read")
    return [int(key) for key in rows["l_partkey"].take(list(range(0, len(rows), len(rows) // 50))).to_pylist()]


def _timed(spark: SparkSession, texts: list[str]) -> tuple[float, float]:
    """Median seconds of ours and of Iceberg; the first query warms up. Raises RuntimeError for other answers."""
    for table in {text.split(" from ")[1].split(" ")[0] for text in texts}:
        spark.sql(f"refresh table {table}")
    runs = []
    for text in texts:
        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda text=text: skipstone.sql(spark, text),
            "peer": lambda text=text: spark.sql(text),
        }
        seconds, answers = [], set()
        for call in calls.values():
            start = time.perf_counter()
            found = call().collect()
            seconds.append(time.perf_counter() - start)
            answers.add(tuple(sorted(map(repr, found))))
        if len(answers) != 1:
            raise RuntimeError(f"the answers differ: {text}")
        runs.append(seconds)
    ours, peer = (statistics.median(one) for one in zip(*runs[1:], strict=True))
    return ours, peer


if __name__ == "__main__":
    main()

"""Merges of change feeds beside Delta and Iceberg on the same files: `make bench-merge`.

Every case runs ours and its peers in turn, each from the same first state, in warm sessions. The tables that come out
are compared: all columns after the merge that warms up, those that feeds change after the last one.
Prints a table and writes build/bench/merge.jsonl: ratio = peer / ours, medians of the repetitions. Ours runs twice:
ours_s copies on write, ours_mor_s merges on read, and ratio_cow compares the first with the best peer that copies on
write, ratio_best with the best of all, ratio_best_mor the second with the best of all, ratio_fitting the faster one.
limit_ratio = reading and writing the touched files once with pyarrow on the same cores / ours_s.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from skipstone.files.parquet import FILTER_SIZES
from skipstone.files.writer import write_spec

from tests.bench.lineitem import Lineitem, say, session
from tests.bench.merge_cases import Feeds
from tests.bench.merge_engines import CORES, Case, Engine, Ours, engines_of
from tests.bench.merge_tables import CODEC, LEVEL, Bed
from tests.bench.results import FOLDER, is_left, keep, show_goals, verdict

RESULTS = FOLDER / "merge.jsonl"
PEERS = ("delta_cow", "delta_dv", "iceberg_cow", "iceberg_mor")


def main() -> None:
    """Run all cases."""
    options = _options()
    bed = Bed(Lineitem(options.scale, options.segments, options.files))
    say(f"TPC-H lineitem, scale {options.scale:g}, {options.files} files, {CODEC} level {LEVEL}")
    feeds = Feeds(bed)
    cases = [case for case in feeds.cases(options.only) if is_left(RESULTS, [case.name], options.scale)]
    files = feeds.files
    spark = _session(bed)
    ours, peers = engines_of(bed, spark, files, options.peers.split(","))
    for case in cases:
        line = _measured(spark, case, (ours, peers), options.repeats)
        line |= _against_limit(bed, case, ours[0], line["ours_s"])
        kept = keep(RESULTS, line | {"scale": options.scale, "repeats": options.repeats})
        print(f"{_shown(kept)} {verdict(kept)}", flush=True)
    ours[0].close()
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=6)
    parser.add_argument("--segments", type=int, default=24)
    parser.add_argument("--files", type=int, default=240)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds one of these, parted by semicolons")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated; empty for ours alone")
    return parser.parse_args()


def _session(bed: Bed) -> SparkSession:
    """The session of the peers."""
    extra = {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.parquet.compression.codec": CODEC,
        # the first state comes back behind the session's back
        f"spark.sql.catalog.{bed.warehouse.catalog.name}.cache-enabled": "false",
    }
    spark = session(bed, extra)
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext._jsc.hadoopConfiguration().setInt("parquet.compression.codec.zstd.level", LEVEL)
    return spark


def _measured(
    spark: SparkSession, case: Case, engines: tuple[tuple[Ours, Ours], Sequence[Engine]], repeats: int
) -> dict[str, Any]:
    """Medians of one case; the first merge of each engine warms up and is checked in all columns."""
    ours, peers = engines
    both: list[Engine] = [*ours, *peers]
    spark.read.parquet(str(case.feed)).createOrReplaceTempView("changes")
    for engine in both:
        engine.prepare(case)
    runs: dict[str, list[float]] = {engine.name: [] for engine in both}
    for number in range(repeats + 1):
        sums = {}
        for engine in both:
            seconds = engine.merge(case)
            say(f"{case.name}, {number or 'warming up'}: {engine.name} {seconds:.2f} s")
            if number in (0, repeats):
                columns = case.changed if number else case.columns
                sums[engine.name] = _checksum(spark, engine.read(case), columns)
            engine.restore(case)
            if number:
                runs[engine.name].append(seconds)
        if len(set(sums.values())) > 1:
            raise RuntimeError(f"the results of {case.name!r} differ: {sums}")
    medians = {name: statistics.median(times) for name, times in runs.items()}
    return _ratios(case, medians, peers) | _told(ours[0])


def _checksum(spark: SparkSession, table: str, columns: Sequence[str]) -> tuple[Any, ...]:
    hashed = f"sum(cast(xxhash64({', '.join(columns)}) as decimal(38, 0)))"
    return tuple(spark.sql(f"select count(*), {hashed} from {table}").collect()[0])


def _ratios(case: Case, medians: dict[str, float], peers: Sequence[Engine]) -> dict[str, Any]:
    seconds = medians["ours"]
    copying = [medians[peer.name] for peer in peers if peer.copies_on_write]
    best = min((medians[peer.name] for peer in peers), default=None)
    return {
        "case": case.name,
        "ours_s": seconds,
        "ours_mor_s": medians["ours_mor"],
        "peers": {peer.name: medians[peer.name] for peer in peers},
        "ratio_cow": min(copying) / seconds if copying else None,
        "ratio_best": best / seconds if best else None,
        "ratio_best_mor": best / medians["ours_mor"] if best else None,
        "ratio_fitting": best / min(seconds, medians["ours_mor"]) if best else None,
    }


def _told(ours: Ours) -> dict[str, Any]:
    """What ours reports of its last merge."""
    if ours.report is None:
        raise RuntimeError("nothing was merged")
    counts = ours.report.counts
    files = {name: counts[f"files{name.capitalize()}"] for name in ("total", "candidate", "touched")}
    return {
        "files": files,
        "candidates_per_touched": files["candidate"] / files["touched"] if files["touched"] else None,
        "counts": dict(counts),
        "stages_ms": dict(ours.report.stages_ms),
    }


def _against_limit(bed: Bed, case: Case, ours: Ours, seconds: float) -> dict[str, Any]:
    """Read and write what a merge replaced, once, with what ours writes with."""
    before = _paths(bed, case)
    ours.merge(case)
    touched = sorted(before - _paths(bed, case))
    ours.restore(case)
    size = sum(Path(path).stat().st_size for path in touched)
    options = write_spec(bed.table(f"{case.target.name}_ours"), "limit").parquet_options
    options.pop(FILTER_SIZES)
    folder = bed.root / "limit"
    folder.mkdir(exist_ok=True)
    start = time.perf_counter()
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(lambda path: _copied(path, folder, options), touched))
    limit = time.perf_counter() - start
    shutil.rmtree(folder)
    return {
        "limit_s": limit,
        "limit_ratio": limit / seconds if touched else None,
        "mb_per_s": size / 1e6 / seconds,
        "codec": CODEC,
        "level": LEVEL,
    }


def _paths(bed: Bed, case: Case) -> set[str]:
    tasks = bed.table(f"{case.target.name}_ours").scan().plan_files()
    return {task.file.file_path.removeprefix("file://") for task in tasks}


def _copied(path: str, folder: Path, options: dict[str, Any]) -> None:
    copy = folder / Path(path).name
    rows = pq.read_table(path, use_threads=False)
    pq.write_table(
        rows, copy, row_group_size=1024 * 1024, store_decimal_as_integer=True, write_page_index=True, **options
    )
    copy.unlink()


def _shown(line: dict[str, Any]) -> str:
    peers = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in line["peers"].items())
    names = ("ratio_cow", "ratio_best", "ratio_best_mor", "limit_ratio")
    ratios = ", ".join(f"{name} {line[name]:.2f}" for name in names if line[name])
    files = "/".join(str(number) for number in line["files"].values())
    ours = f"ours {line['ours_s']:.2f} s, on read {line['ours_mor_s']:.2f} s"
    return f"{line['case']:<42} {ours}, {peers}; {ratios} (files {files}) {line['stages_ms']}"


if __name__ == "__main__":
    main()

"""How long a reindex of one new segment takes when a table has few segments, and when it has ten times as many.

Run by ``make bench-catchup``. Small files, so that what is measured is what a run costs whatever it builds. Prints a
line per table and the ratio of the medians; writes them to ``build/bench/catchup.jsonl``. Merges of index files fall
on every eighth run and are shown apart: they cost the logarithm of the number of segments.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.bench.results import FOLDER, keep, show_goals
from tests.spark.index_bed import Lake, index_on

RESULTS = FOLDER / "catchup.jsonl"
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
INDEX = index_on("k")
RATIOS = {"ratio": "median_s", "cpu_ratio": "median_cpu_s"}
Measured = dict[str, Any]


def rows(segment: int, count: int) -> pa.Table:
    keys = (np.arange(count, dtype=np.int64) * 7919 + segment) % 1_000_003
    return pa.table({"k": keys, "name": [f"n{key % 97}" for key in keys]}, schema=SCHEMA)


@dataclass(frozen=True)
class Run:
    """One catch-up: wall-clock and processor seconds, and whether index files were merged in it."""

    seconds: float
    processor: float
    merged: bool


def catch_up(lake: Lake, segment: int, count: int) -> Run:
    """Enter one new segment."""
    lake.table().append(rows(segment, count))
    before = len(lake.index_table(INDEX).entries)
    start, processor = time.perf_counter(), time.process_time()
    report = lake.reindex(INDEX)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    if report.counts["segments"] != 1:
        raise RuntimeError(f"the run entered {report.counts['segments']} segments instead of 1: {report.message}")
    return Run(seconds, processor, merged=len(lake.index_table(INDEX).entries) <= before)


def measure(segments: int, count: int, repeats: int) -> Measured:
    """Medians for a table of ``segments`` segments of ``count`` rows."""
    with tempfile.TemporaryDirectory(prefix="catchup-") as folder:
        lake = Lake(Path(folder))
        table = lake.create(SCHEMA)
        for segment in range(segments):
            table.append(rows(segment, count))
        lake.reindex(INDEX)
        runs = [catch_up(lake, segments + number, count) for number in range(repeats)]
        lake.catalog.close()
    plain, merging = [run for run in runs if not run.merged], [run for run in runs if run.merged]
    return {
        "case": f"catch-up at {segments} segments",
        "scale": segments,
        "rows": count,
        "runs": len(plain),
        "median_s": round(statistics.median(run.seconds for run in plain), 4),
        "median_cpu_s": round(statistics.median(run.processor for run in plain), 4),
        "merging_s": round(max(run.seconds for run in merging), 4) if merging else None,
    }


def ratios(few: Measured, many: Measured) -> Measured:
    """How many times longer a run takes with many segments, by the clock and by the processor."""
    return {name: round(many[source] / few[source], 2) for name, source in RATIOS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=40, help="segments of the small table")
    parser.add_argument("--many", type=int, default=400, help="segments of the large table")
    parser.add_argument(
        "--rows", type=int, default=200, help="rows of a segment; so few that all is built in the driver"
    )
    parser.add_argument("--repeats", type=int, default=9, help="runs measured per table")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    measure(2, given.rows, 2)  # what is imported or compiled once is not measured
    found = [measure(segments, given.rows, given.repeats) for segments in (given.few, given.many)]
    times = ratios(*found)
    found.append({"case": "catch-up ratio", "scale": given.many, **times})
    for one in found:
        print(json.dumps(keep(RESULTS, one)))
    show_goals(RESULTS)


if __name__ == "__main__":
    main()

"""How long a reindex of one new segment takes when a table has few segments, and when it has ten times as many.

Run by ``make bench-catchup``. Small files, so that what is measured is what a run costs whatever it builds. Prints a
line per table and the ratio of the medians; appends them to ``build/bench/catchup.jsonl``. Merges of index files fall
on every eighth run and are shown apart: they cost the logarithm of the number of segments.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.spark.index_bed import Lake, index_on

OUTPUT = Path(__file__).parents[2] / "build" / "bench" / "catchup.jsonl"
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
INDEX = index_on("k")
TARGET = 1.3


def rows(segment: int, count: int) -> pa.Table:
    keys = (np.arange(count, dtype=np.int64) * 7919 + segment) % 1_000_003
    return pa.table({"k": keys, "name": [f"n{key % 97}" for key in keys]}, schema=SCHEMA)


def catch_up(lake: Lake, segment: int, count: int) -> tuple[float, bool]:
    """Seconds of the run that enters one new segment, and whether it merged."""
    lake.table().append(rows(segment, count))
    before = len(lake.index_table(INDEX).entries)
    start = time.perf_counter()
    report = lake.reindex(INDEX)
    seconds = time.perf_counter() - start
    if report.counts["segments"] != 1:
        raise RuntimeError(f"the run entered {report.counts['segments']} segments instead of 1: {report.message}")
    return seconds, len(lake.index_table(INDEX).entries) <= before


def measure(segments: int, count: int, repeats: int) -> dict[str, object]:
    """Medians for a table of ``segments`` segments of ``count`` rows."""
    with tempfile.TemporaryDirectory(prefix="catchup-") as folder:
        lake = Lake(Path(folder))
        table = lake.create(SCHEMA)
        for segment in range(segments):
            table.append(rows(segment, count))
        lake.reindex(INDEX)
        runs = [catch_up(lake, segments + number, count) for number in range(repeats)]
        lake.catalog.close()
    plain = [seconds for seconds, merged in runs if not merged]
    merging = [seconds for seconds, merged in runs if merged]
    return {
        "case": "catch-up",
        "segments": segments,
        "rows": count,
        "runs": len(plain),
        "median_s": round(statistics.median(plain), 4),
        "all_median_s": round(statistics.median(seconds for seconds, _ in runs), 4),
        "merging_s": round(max(merging), 4) if merging else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=40, help="segments of the small table")
    parser.add_argument("--many", type=int, default=400, help="segments of the large table")
    parser.add_argument("--rows", type=int, default=1000, help="rows of a segment")
    parser.add_argument("--repeats", type=int, default=9, help="runs measured per table")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    measure(2, given.rows, 2)  # what is imported or compiled once is not measured
    found = [measure(segments, given.rows, given.repeats) for segments in (given.few, given.many)]
    few, many = (float(str(one["median_s"])) for one in found)
    found.append({"case": "catch-up ratio", "ratio": round(many / few, 2), "target": TARGET})
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with OUTPUT.open("a") as lines:
        for one in found:
            print(json.dumps(one))
            lines.write(json.dumps(one) + "\n")


if __name__ == "__main__":
    main()

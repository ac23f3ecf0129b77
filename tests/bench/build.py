"""An index built in one run, beside the same columns written in their order by Spark: `make bench-build`.

The peer is `CREATE TABLE … AS SELECT … ORDER BY` of the indexed columns into an Iceberg table, in a warm session. Ours
is a whole reindex run in a process and session of its own, warmed up as far as to import what tasks need. Prints a
table and writes build/bench/build.jsonl: ratio = ours / peer, medians of the repetitions.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from tests.bench.lineitem import NAME, NAMESPACE, OTHERS, Lineitem, index_on, reindex, say, session
from tests.bench.peers import ICEBERG
from tests.bench.results import FOLDER, is_left, keep, show_goals, verdict

RESULTS = FOLDER / "build.jsonl"
CASES = (("l_suppkey",), ("l_orderkey",), ("l_partkey", "l_suppkey"), ("l_shipinstruct", "l_shipdate"))


def main() -> None:
    """Run all cases."""
    options = _options()
    lineitem = Lineitem(options.scale, options.segments, options.files)
    say(f"TPC-H lineitem, scale {options.scale:g}, {options.segments} segments, {options.files} files")
    lineitem.make()
    spark = session(lineitem)
    spark.sparkContext.setLogLevel("ERROR")
    for line in _lines(lineitem, spark, options):
        kept = keep(RESULTS, line)
        ours, peer = line["ours_s"], line["peers"][ICEBERG]
        print(
            f"{line['case']:<50} ours {ours:.2f} s, Spark {peer:.2f} s: {line['ratio']:.2f} {verdict(kept)}", flush=True
        )
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=3)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--columns", nargs="*", type=lambda text: tuple(text.split(",")), default=CASES)
    return parser.parse_args()


def _lines(lineitem: Lineitem, spark: SparkSession, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    ordered(lineitem, spark, CASES[0])  # classes are loaded and compiled
    for columns in options.columns:
        if not is_left(RESULTS, [_case(columns)], options.scale):
            continue
        runs = [(built(lineitem, columns), ordered(lineitem, spark, columns)) for _ in range(options.repeats)]
        ours, peer = (statistics.median(seconds) for seconds in zip(*runs, strict=True))
        yield {
            "case": _case(columns),
            "scale": options.scale,
            "repeats": options.repeats,
            "ours_s": round(ours, 3),
            "peers": {ICEBERG: round(peer, 3)},
            "ratio": round(ours / peer, 3),
        }


def _case(columns: tuple[str, ...]) -> str:
    return f"build on {', '.join(columns)}"


def built(lineitem: Lineitem, columns: tuple[str, ...]) -> float:
    """Seconds of the run that builds an index which is not there."""
    lineitem.drop_indexes(keep=OTHERS)
    return reindex(lineitem.warehouse, NAME, index_on(columns))


def ordered(lineitem: Lineitem, spark: SparkSession, columns: tuple[str, ...]) -> float:
    """Seconds in which Spark writes the columns in order."""
    name, listed = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}", ", ".join(columns)
    start = time.perf_counter()
    spark.sql(f"create table {name}.ordered using iceberg as select {listed} from {name}.{NAME} order by {listed}")
    seconds = time.perf_counter() - start
    spark.sql(f"drop table {name}.ordered purge")
    return seconds


if __name__ == "__main__":
    main()

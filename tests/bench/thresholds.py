"""What the settings of a session about the cost of an index do, at each side of their limits: `make bench-thresholds`.

One table, an index on a column whose values are everywhere, and one that includes the column that is summed. Every
query runs with each value of a setting in turn, in one warm session, with another range each time; answers are
compared. Prints a table and writes build/bench/thresholds.jsonl: medians of the repetitions.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import skipstone
from pyspark.sql import SparkSession

from tests.bench.lineitem import ROOT, iceberg_session
from tests.bench.peers import keep
from tests.spark.index_bed import Lake, index_on

RESULTS = ROOT / "build" / "bench" / "thresholds.jsonl"
TABLE = "skipstone.ns.t"
KEYS = 1_000_000
PLAIN, INCLUDING = index_on("k", name="by_k"), index_on("d", name="by_d", include=("n",))


@dataclass(frozen=True)
class Case:
    """A column, the part of its keys that a range takes, and the values of one setting."""

    column: str
    part: float
    setting: str
    values: tuple[str, ...]


CASES = (
    Case("k", 0.000_02, "skipstone.worthwhilePart", ("0", "0.5", "1")),
    Case("k", 0.001, "skipstone.worthwhilePart", ("0.01", "0.5", "1")),
    Case("k", 0.02, "skipstone.worthwhilePart", ("0.1", "0.5", "1")),
    Case("k", 0.000_02, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("k", 0.001, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("k", 0.02, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("d", 0.1, "skipstone.scanRowsPart", ("0", "0.25", "1")),
    Case("d", 0.4, "skipstone.scanRowsPart", ("0", "0.25", "1")),
)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--rows", type=int, default=150_000, help="of each file")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        _fill(lake, options.files, options.rows)
        spark = iceberg_session(lake)
        for case in CASES:
            for line in _measured(spark, case, options.repeats):
                keep(RESULTS, line)
                print(f"{line['case']:<56} {line['ours_s']:.3f} s, {line['read']} files, {line['by']}", flush=True)


def _fill(lake: Lake, files: int, rows: int) -> None:
    names = {"k": pa.int64(), "d": pa.int64(), "n": pa.int64(), **{f"text{at}": pa.string() for at in range(4)}}
    table, chance = lake.create(pa.schema(names)), np.random.default_rng(1)
    for _ in range(files):
        numbers = {name: chance.integers(0, KEYS, rows) for name in ("k", "d", "n")}
        texts = {f"text{at}": [f"{value:016x}" for value in chance.integers(0, 1 << 60, rows)] for at in range(4)}
        table.append(pa.table({**numbers, **texts}))
    for index in (PLAIN, INCLUDING):
        lake.reindex(index)


def _measured(spark: SparkSession, case: Case, repeats: int) -> Iterator[dict[str, Any]]:
    seconds: dict[str, list[float]] = {value: [] for value in case.values}
    reads: dict[str, tuple[int, str]] = {}
    width = int(KEYS * case.part)
    columns = "sum(n)" if case.column == "d" else "sum(n), max(text0), max(text1), max(text2), max(text3)"
    for repeat in range(repeats + 1):
        start = 1000 + repeat * 7919
        text = f"select {columns} from {TABLE} where {case.column} between {start} and {start + width}"
        answers = set()
        for value in case.values:
            spark.conf.set(case.setting, value)
            begin = time.perf_counter()
            answers.add(str(skipstone.sql(spark, text).collect()))
            if repeat:
                seconds[value].append(time.perf_counter() - begin)
            (relation,) = skipstone.explain(spark.sql(text)).relations
            by = "by tasks from the index" if relation.scan else "by the driver" if relation.driver else "by tasks"
            read = relation.plan.funnel.read if relation.plan and relation.is_rewritten else -1
            reads[value] = (read, by if relation.is_rewritten else "as Spark")
            spark.conf.unset(case.setting)
        assert len(answers) == 1, text
    for value in case.values:
        read, by = reads[value]
        yield {
            "case": f"{case.column}, {case.part:.3%} of the keys, {case.setting}={value}",
            "ours_s": statistics.median(seconds[value]),
            "read": read,
            "by": by,
        }


if __name__ == "__main__":
    main()

"""What the settings of a session about the cost of reading do, at each side of their limits: `make bench-thresholds`.

A table with an index on a column whose values are everywhere, one that includes the column that is summed, and a small
and a large table to join it with, by keys and by buckets. Every query runs with each value of a setting in turn, in one
warm session, with another range each time; answers are compared. Prints a table and writes
build/bench/thresholds.jsonl: medians of the repetitions. ``skipstone.runtimeFilterPart`` is not measured.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import skipstone
from pyspark.sql import SparkSession
from skipstone.query.plans.explanation import Explanation

from tests.bench.lineitem import iceberg_session
from tests.bench.results import FOLDER, keep, show_goals
from tests.spark.index_bed import Lake, index_on

RESULTS = FOLDER / "thresholds.jsonl"
TABLE, SMALL, OTHER = "skipstone.ns.t", "skipstone.ns.small", "skipstone.ns.other"
KEYS = 1_000_000
PLAIN, INCLUDING = index_on("k", name="by_k"), index_on("d", name="by_d", include=("n",))
BUCKETS = index_on("d", name="by_bucket", include=("n",), buckets=8)
#: Of each column a range of keys is asked; joins ask for that of the other table.
QUERIES = {
    "k": f"select sum(n), max(text0), max(text1), max(text2), max(text3) from {TABLE} where k between {{}} and {{}}",
    "d": f"select sum(n) from {TABLE} where d between {{}} and {{}}",
    "small join": f"select sum(n), max(text0) from {SMALL} s join {TABLE} t on t.k = s.k where v between {{}} and {{}}",
    "large join": f"select sum(t.n * o.n) from {OTHER} o join {TABLE} t on t.d = o.d where o.n between {{}} and {{}}",
}


@dataclass(frozen=True)
class Case:
    """A query, the part of its keys that a range takes, the values of one setting, and other ``settings``."""

    query: str
    part: float
    setting: str
    values: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


#: Spark shuffles both sides of a join, as those of large tables.
SHUFFLED = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
CASES = (
    Case("k", 0.000_02, "skipstone.worthwhilePart", ("0", "0.5", "1")),
    Case("k", 0.001, "skipstone.worthwhilePart", ("0.01", "0.5", "1")),
    Case("k", 0.02, "skipstone.worthwhilePart", ("0.1", "0.5", "1")),
    Case("k", 0.000_02, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("k", 0.001, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("k", 0.02, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("d", 0.1, "skipstone.scanRowsPart", ("0", "0.25", "1")),
    Case("d", 0.4, "skipstone.scanRowsPart", ("0", "0.25", "1")),
    Case("small join", 0.000_02, "skipstone.joinBytes", ("0", "128m", "1g")),
    Case("small join", 0.001, "skipstone.joinBytes", ("0", "128m", "1g")),
    Case("small join", 0.000_02, "skipstone.smallSidePart", ("0", "0.125", "1"), {"skipstone.joinBytes": "0"}),
    Case("large join", 1.0, "skipstone.coveringPart", ("0", "0.9", "1"), SHUFFLED),
    Case("k", 0.000_02, "skipstone.driverBytes", ("1k", "256m", "1g")),
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
        spark = iceberg_session(lake)  # before a reindex starts a session without Iceberg
        _fill(lake, options.files, options.rows)
        for case in CASES:
            for line in _measured(spark, case, options.repeats):
                keep(RESULTS, line)
                print(f"{line['case']:<56} {line['ours_s']:.3f} s, {line['read']} files, {line['by']}", flush=True)
    show_goals(RESULTS)


def _fill(lake: Lake, files: int, rows: int) -> None:
    names = {"k": pa.int64(), "d": pa.int64(), "n": pa.int64(), **{f"text{at}": pa.string() for at in range(4)}}
    table, chance = lake.create(pa.schema(names)), np.random.default_rng(1)
    for _ in range(files):
        numbers = {name: chance.integers(0, KEYS, rows) for name in ("k", "d", "n")}
        texts = {f"text{at}": [f"{value:016x}" for value in chance.integers(0, 1 << 60, rows)] for at in range(4)}
        table.append(pa.table({**numbers, **texts}))
    for index in (PLAIN, INCLUDING, BUCKETS):
        lake.reindex(index)
    numbers = {name: chance.integers(0, KEYS, rows) for name in ("k", "v", "d", "n")}
    small = lake.create(pa.schema({"k": pa.int64(), "v": pa.int64()}), "small")
    small.append(pa.table({"k": numbers["k"], "v": numbers["v"]}))
    other = lake.create(pa.schema({"d": pa.int64(), "n": pa.int64()}), "other")
    for _ in range(max(1, files // 4)):
        other.append(pa.table({name: chance.integers(0, KEYS, rows) for name in ("d", "n")}))
    lake.reindex(BUCKETS, name="other")


def _measured(spark: SparkSession, case: Case, repeats: int) -> Iterator[dict[str, Any]]:
    seconds: dict[str, list[float]] = {value: [] for value in case.values}
    reads: dict[str, tuple[int, str]] = {}
    width = int(KEYS * case.part)
    for name, value in case.settings.items():
        spark.conf.set(name, value)
    for repeat in range(repeats + 1):
        start = 0 if case.part == 1 else 1000 + repeat * 7919
        text = QUERIES[case.query].format(start, start + width)
        answers = set()
        for value in case.values:
            spark.conf.set(case.setting, value)
            begin = time.perf_counter()
            answers.add(str(skipstone.sql(spark, text).collect()))
            if repeat:
                seconds[value].append(time.perf_counter() - begin)
            reads[value] = _read(skipstone.explain(spark.sql(text)))
            spark.conf.unset(case.setting)
        assert len(answers) == 1, text
    for name in case.settings:
        spark.conf.unset(name)
    for value in case.values:
        read, by = reads[value]
        yield {
            "case": f"{case.query}, {case.part:.3%} of the keys, {case.setting}={value}",
            "ours_s": statistics.median(seconds[value]),
            "read": read,
            "by": by,
        }


def _read(explanation: Explanation) -> tuple[int, str]:
    """How many files of the table are read, and by whom; -1 where no plan says it."""
    relation = next(known for known in explanation.relations if known.table.endswith(".t"))
    read = relation.plan.funnel.read if relation.plan else -1
    if " buckets" in relation.text():
        return read, "by buckets"
    if not relation.is_rewritten:
        return read, "as Spark"
    return read, "by tasks from the index" if relation.scan else "by the driver" if relation.driver else "by tasks"


if __name__ == "__main__":
    main()

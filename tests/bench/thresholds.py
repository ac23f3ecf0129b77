"""What the settings of a session about the cost of reading do, at each side of their defaults: `make bench-thresholds`.

A table with an index on a column whose values are everywhere, one that includes the column that is summed, and a small
and a large table to join it with, by keys and by buckets; and a table in partitions, one of which a join leaves
when it runs. Every query runs with each value of a setting in turn, in one warm session, with another range each time;
answers are compared. The tables are kept under .cache/bench. Prints a table and writes build/bench/thresholds.jsonl:
medians of the repetitions, and default_ratio = the best of the times / the time of the default.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import skipstone
from pyspark.sql import SparkSession
from skipstone.query.plans.explanation import Explanation
from skipstone_core.contract.requests import IndexRef
from skipstone_core.indexing.limits import SETTINGS

from tests.bench.lineitem import iceberg_session, say
from tests.bench.peers import is_wanted
from tests.bench.results import FOLDER, ROOT, is_left, keep, show_goals, verdict
from tests.spark.index_bed import Lake, index_on

RESULTS = FOLDER / "thresholds.jsonl"
TABLE, SMALL, OTHER, PARTED = (f"skipstone.ns.{name}" for name in ("t", "small", "other", "parted"))
KEYS = 1_000_000
PLAIN, INCLUDING = index_on("k", name="by_k"), index_on("d", name="by_d", include=("n",))
BUCKETS = index_on("d", name="by_bucket", include=("n",), buckets=8)
INDEXED = (("t", PLAIN), ("t", INCLUDING), ("t", BUCKETS), ("other", BUCKETS), ("parted", PLAIN))
#: Partitions of the table in partitions; a join leaves one of them.
PARTITIONS = 8
#: Of each column a range of keys is asked; joins ask for that of the other table, or of the one in partitions.
QUERIES = {
    "rows": f"select sum(n), max(text0), max(text1), max(text2), max(text3) from {TABLE} where k between {{}} and {{}}",
    "included column": f"select sum(n) from {TABLE} where d between {{}} and {{}}",
    "small join": f"select sum(n), max(text0) from {SMALL} s join {TABLE} t on t.k = s.k where v between {{}} and {{}}",
    "large join": f"select sum(t.n * o.n) from {OTHER} o join {TABLE} t on t.d = o.d where o.n between {{}} and {{}}",
    "join of partitions": f"select sum(t.n), max(text0) from {PARTED} t join skipstone.ns.names s on t.p = s.p "
    "where s.name = 'n3' and t.k between {} and {}",
}


@dataclass(frozen=True)
class Case:
    """A query, the part of its keys that a range takes, values of one setting, and other ``settings``.

    The second one of the values is the default.
    """

    query: str
    part: float
    setting: str
    values: tuple[str, str, str]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The setting, the query and its part."""
        return f"{self.setting}: {self.query}, {self.part:.3%} of the keys"


#: Spark shuffles both sides of a join, as those of large tables.
SHUFFLED = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
#: Tasks read what an index finds: what the driver reads is never left to Spark.
BY_TASKS = {"skipstone.driverRows": "0"}
CASES = (
    Case("rows", 0.000_02, "skipstone.worthwhilePart", ("0", "0.5", "1")),
    Case("rows", 0.001, "skipstone.worthwhilePart", ("0.01", "0.5", "1")),
    Case("rows", 0.02, "skipstone.worthwhilePart", ("0.1", "0.5", "1")),
    Case("rows", 0.000_02, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("rows", 0.001, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("rows", 0.02, "skipstone.narrowPart", ("0.2", "0.9", "1")),
    Case("included column", 0.1, "skipstone.scanRowsPart", ("0", "0.25", "1")),
    Case("included column", 0.4, "skipstone.scanRowsPart", ("0", "0.25", "1")),
    Case("small join", 0.000_02, "skipstone.joinBytes", ("0", "128m", "1g")),
    Case("small join", 0.001, "skipstone.joinBytes", ("0", "128m", "1g")),
    Case("small join", 0.000_02, "skipstone.smallSidePart", ("0", "0.125", "1"), {"skipstone.joinBytes": "0"}),
    Case("large join", 1.0, "skipstone.coveringPart", ("0", "0.9", "1"), SHUFFLED),
    Case("join of partitions", 0.000_005, "skipstone.runtimeFilterPart", ("0", "0.1", "1"), BY_TASKS),
    Case("join of partitions", 0.000_05, "skipstone.runtimeFilterPart", ("0", "0.1", "1"), BY_TASKS),
    Case("rows", 0.000_02, "skipstone.driverBytes", ("1k", "256m", "1g")),
)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--rows", type=int, default=150_000, help="of each file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds one of these, separated by semicolons")
    options = parser.parse_args()
    root, scale = ROOT / ".cache" / "bench" / f"thresholds-{options.files}-{options.rows}", options.files * options.rows
    is_made = (root / "complete").exists()
    if not is_made:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
    lake = Lake(root)
    spark = iceberg_session(lake)  # before a reindex starts a session without Iceberg
    spark.sparkContext.setLogLevel("ERROR")
    if not is_made:
        _fill(lake, spark, options.files, options.rows)
        for name, index in INDEXED:
            say(f"{index.name} of {name}")
            _index(root, name, index)
        (root / "complete").touch()
    for case in CASES:
        if is_wanted(case.name, options.only) and is_left(RESULTS, [case.name], scale):
            line = keep(RESULTS, {**_measured(spark, case, options.repeats), "scale": scale})
            print(f"{case.name}: default {line['default_ratio']:.2f} {verdict(line)}")
            for value, run in line["values"].items():
                print(f"  {value:>8} {run['seconds']:.3f} s, {run['files']} files, {run['by']}", flush=True)
    show_goals(RESULTS)


def _fill(lake: Lake, spark: SparkSession, files: int, rows: int) -> None:
    chance = np.random.default_rng(1)
    names = {"k": pa.int64(), "d": pa.int64(), "n": pa.int64(), **{f"text{at}": pa.string() for at in range(4)}}
    table = lake.create(pa.schema(names))
    for number in range(files):
        say(f"file {number + 1} of {files}")
        numbers = {name: chance.integers(0, KEYS, rows) for name in ("k", "d", "n")}
        texts = {f"text{at}": [f"{value:016x}" for value in chance.integers(0, 1 << 60, rows)] for at in range(4)}
        table.append(pa.table({**numbers, **texts}))
    numbers = {name: chance.integers(0, KEYS, rows) for name in ("k", "v", "d", "n")}
    small = lake.create(pa.schema({"k": pa.int64(), "v": pa.int64()}), "small")
    small.append(pa.table({"k": numbers["k"], "v": numbers["v"]}))
    other = lake.create(pa.schema({"d": pa.int64(), "n": pa.int64()}), "other")
    for _ in range(max(1, files // 4)):
        other.append(pa.table({name: chance.integers(0, KEYS, rows) for name in ("d", "n")}))
    _fill_partitions(lake, spark, max(1, files // 4), rows)


def _fill_partitions(lake: Lake, spark: SparkSession, commits: int, rows: int) -> None:
    """A table with a file in each partition for each commit, and the names of its partitions."""
    names = f"select int(id) as p, concat('n', id) as name from range({PARTITIONS})"
    spark.sql(f"create table skipstone.ns.names using iceberg as {names}")
    spark.sql(f"create table {PARTED} (k bigint, n bigint, text0 string, p int) using iceberg partitioned by (p)")
    table, chance = lake.table("parted"), np.random.default_rng(2)
    for _ in range(commits):
        columns = {name: pa.array(chance.integers(0, KEYS, rows)) for name in ("k", "n")}
        columns["text0"] = pa.array([f"{value:016x}" for value in chance.integers(0, 1 << 60, rows)])
        columns["p"] = pa.array(chance.integers(0, PARTITIONS, rows).astype(np.int32))
        table.append(pa.table(columns))


def _index(root: Path, name: str, index: IndexRef) -> None:
    """Build an index of a table. Raises RuntimeError if it does not cover all segments.

    In a process of its own, as in a pod: Python workers of the user's session would not find what builds it.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        left = process.submit(_segments_left, root, name, index).result()
    if left:
        raise RuntimeError(left)


def _segments_left(root: Path, name: str, index: IndexRef) -> str:
    """What went wrong; empty if the index covers all segments."""
    lake = Lake(root)
    report = lake.reindex(index, name=name)
    missing = lake.state(index, name).segments_missing
    return f"{index.name} of {name} lacks {missing} segments: {report.message}" if missing else ""


def _measured(spark: SparkSession, case: Case, repeats: int) -> dict[str, Any]:
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
            else:
                reads[value] = _read(skipstone.explain(spark.sql(text)))
            spark.conf.unset(case.setting)
        if len(answers) != 1:
            raise RuntimeError(f"the answers differ: {text}")
    for name in case.settings:
        spark.conf.unset(name)
    medians = {value: statistics.median(times) for value, times in seconds.items()}
    default = next(value for value in case.values if _is_default(case.setting, value))
    return {
        "case": case.name,
        "setting": case.setting,
        "query": f"{case.query}, {case.part:.4%} of the keys",
        "values": {
            value: {"seconds": medians[value], "files": reads[value][0], "by": reads[value][1]} for value in case.values
        },
        "default": default,
        "default_ratio": min(medians.values()) / medians[default],
        "repeats": repeats,
    }


def _is_default(name: str, value: str) -> bool:
    setting = next(setting for setting in SETTINGS if setting.name == name)
    return setting.read(value) == setting.usual


def _read(explanation: Explanation) -> tuple[int, str]:
    """How many files of the table are read, and by whom; -1 where no plan says it."""
    relation = next(known for known in explanation.relations if known.table.endswith((".t", ".parted")))
    read = relation.plan.funnel.read if relation.plan else -1
    if " buckets" in relation.text():
        return read, "by buckets"
    if not relation.is_rewritten:
        return read, "as Spark"
    return read, "by tasks from the index" if relation.scan else "by the driver" if relation.driver else "by tasks"


if __name__ == "__main__":
    main()

"""What queries pay in an enabled session that gain nothing or little there: `make bench-overhead`.

A table whose keys are everywhere: without an index, with indexes on columns that no query names, with one that answers
nearly all rows, and long lists. Each query runs in turn in the session when it is enabled and when it is not, both
warm; answers are compared. Prints a table and writes build/bench/overhead.jsonl: ratio = plain / ours, medians of the
repetitions; calls to the JVM that one run makes more, and milliseconds of each rule.
"""

from __future__ import annotations

import argparse
import logging
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import skipstone
from pyspark.sql import SparkSession
from skipstone.compat.pyspark import java_frame
from skipstone.query.plans.session import rewrite_as_run

from tests.bench.lineitem import iceberg_session
from tests.bench.results import FOLDER, ROOT, is_left, keep, show_goals, verdict
from tests.spark.index_bed import Lake, index_on
from tests.spark.jvmcalls import counted_calls

RESULTS = FOLDER / "overhead.jsonl"
CATALOG = "skipstone"
KEYS = 1_000_000
#: Columns besides the key, the value and the text.
OTHERS = tuple(f"c{number}" for number in range(12))
VALUES = 5_000
_RULE = re.compile(r"rule (\w+): (?!disabled).*, ([\d.]+) ms")


@dataclass(frozen=True)
class Case:
    """A query of a table, and whether it is planned only."""

    name: str
    query: str
    is_planned: bool = False


LISTED = ", ".join(str(number * 17) for number in range(VALUES))
CASES = (
    Case("no index", "select count(*), sum(v) from {plain} where k > 990000"),
    Case("no index, 0.2 s", "select count(*), sum(v), max(s), sum(c1), sum(c2) from {plain} where k > 10000"),
    Case("indexes on other columns", "select count(*), sum(v) from {other} where k > 990000"),
    Case("join without an index", "select sum(p.v) from {plain} p join {small} s on p.k = s.k where s.v < 100"),
    Case("an index that answers nearly all rows", "select count(*), sum(v) from {held} where k > 10000"),
    Case("an index, and nearly all files match", "select sum(v), max(s) from {held} where k between 1 and 9000"),
    Case(f"in of {VALUES:,} values, planned", f"select sum(v) from {{held}} where k in ({LISTED})", True),
    Case(f"in of {VALUES:,} values", f"select sum(v) from {{held}} where k in ({LISTED})"),
)


@dataclass
class Times:
    """Seconds of each repetition, those of planning included."""

    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=50_000, help="of each file")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="a part of the names of cases")
    options = parser.parse_args()
    root = ROOT / ".cache" / "bench" / f"overhead-{options.files}-{options.rows}"
    root.mkdir(parents=True, exist_ok=True)
    spark = iceberg_session(Lake(root))  # before a reindex starts a session without Iceberg
    _make(root, options.files, options.rows)
    spark.sparkContext.setLogLevel("ERROR")
    rows = options.files * options.rows
    for case in (case for case in CASES if options.only in case.name and is_left(RESULTS, [case.name])):
        line = keep(RESULTS, {**_measured(spark, case, options.repeats), "rows": rows})
        print(
            f"{line['case']:<42} ours {line['ours_s']:.3f} s, plain {line['plain_s']:.3f} s: {line['ratio']:.3f} "
            f"{verdict(line)}, {line['more_ms']:.1f} ms more, {line['calls']} calls",
            flush=True,
        )
        print("    " + ", ".join(f"{name} {ms:.1f}" for name, ms in line["rules_ms"].items() if ms >= 0.1))
    show_goals(RESULTS)


def _make(root: Path, files: int, rows: int) -> None:
    """The tables, unless they are there."""
    if (root / "complete").exists():
        return
    lake = Lake(root)
    for name in ("plain", "other", "held"):
        _fill(lake, name, files, rows)
    _fill(lake, "small", 1, 1_000)
    for column in OTHERS[:4]:
        lake.reindex(index_on(column, name=f"by_{column}"), name="other")
    lake.reindex(index_on("k", include=("v",)), name="held")
    (root / "complete").touch()


def _fill(lake: Lake, name: str, files: int, rows: int) -> None:
    numbers = ("k", "v", *OTHERS)
    table = lake.create(pa.schema({**dict.fromkeys(numbers, pa.int64()), "s": pa.string()}), name)
    chance = np.random.default_rng(1)
    for _ in range(files):
        columns = {column: chance.integers(0, KEYS, rows) for column in numbers}
        table.append(pa.table({**columns, "s": [f"{value:012x}" for value in columns["v"]]}))


def _measured(spark: SparkSession, case: Case, repeats: int) -> dict[str, Any]:
    names = {name: f"{CATALOG}.ns.{name}" for name in ("plain", "other", "held", "small")}
    text, times = case.query.format(**names), Times()
    run: Callable[[str], object] = _planned if case.is_planned else _collected
    for repeat in range(repeats + 3):
        answers = []
        for is_ours in (repeat % 2 == 0, repeat % 2 == 1):
            (skipstone.enable if is_ours else skipstone.disable)(spark)
            start = time.perf_counter()
            answers.append(run(spark, text, is_ours))
            (times.ours if is_ours else times.plain).append(time.perf_counter() - start)
        if answers[0] != answers[1]:
            raise RuntimeError(f"the answers differ: {text}")
    skipstone.disable(spark)
    ours, plain = (statistics.median(seconds[3:]) for seconds in (times.ours, times.plain))
    line = {
        "case": case.name,
        "ours_s": ours,
        "plain_s": plain,
        "ratio": plain / ours,
        "more_ms": 1000 * (ours - plain),
    }
    return {**line, **_profile(spark, text), "repeats": repeats}


def _collected(spark: SparkSession, text: str, _: bool) -> list[str]:
    return sorted(map(repr, spark.sql(text).collect()))


def _planned(spark: SparkSession, text: str, is_ours: bool) -> None:
    df = spark.sql(text)
    java_frame(rewrite_as_run(df) if is_ours else df).queryExecution().executedPlan()


class _Rules(logging.Handler):
    """Milliseconds of each rule, as the log has them."""

    def __init__(self) -> None:
        super().__init__()
        self.ms: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if match := _RULE.fullmatch(record.getMessage()):
            self.ms[match[1]] = float(match[2])


def _profile(spark: SparkSession, text: str) -> dict[str, Any]:
    """Calls to the JVM by which a query is rewritten, and the times of the rules."""
    logger, rules, df = logging.getLogger("skipstone.query"), _Rules(), spark.sql(text)
    level = logger.level
    logger.addHandler(rules)
    logger.setLevel(logging.DEBUG)
    try:
        with counted_calls() as calls:
            rewrite_as_run(df)
    finally:
        logger.removeHandler(rules)
        logger.setLevel(level)
    return {"calls": len(calls), "rules_ms": rules.ms}


if __name__ == "__main__":
    main()

"""One query of ours, of plain Iceberg and of Delta, in turn and in one warm session: seconds, and the same answers."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import skipstone
from pyspark.sql import DataFrame, SparkSession

OURS, ICEBERG, DELTA = "ours", "iceberg", "delta"
PEERS = (ICEBERG, DELTA)
#: What of lineitem's rows is selected in an aggregate.
AGGREGATE = "count(*) as n, sum(l_extendedprice) as price, min(l_shipdate) as shipped"

_turns = itertools.count()


def timed(spark: SparkSession, ours: str, delta: str) -> dict[str, float]:
    """Seconds of one run of each; ``delta``: the query on the Delta tables. Raises RuntimeError for other answers.

    Each call begins with another of them: who runs first after another query finds other caches and more garbage.
    """
    calls: dict[str, Callable[[], DataFrame]] = {
        OURS: lambda: skipstone.sql(spark, ours),
        ICEBERG: lambda: spark.sql(ours),
        DELTA: lambda: spark.sql(delta),
    }
    seconds, answers, first = {}, {}, next(_turns) % len(calls)
    names = list(calls)
    for peer in (*names[first:], *names[:first]):
        start = time.perf_counter()
        answers[peer] = calls[peer]().collect()
        seconds[peer] = time.perf_counter() - start
    if len({tuple(sorted(map(repr, rows))) for rows in answers.values()}) != 1:
        raise RuntimeError(f"the answers differ: {ours}")
    return seconds


def warm(spark: SparkSession, ours: str, delta: str) -> None:
    """Scan ``ours`` and ``delta``, two copies of lineitem, until the JVM has compiled what scans them: what is measured
    before tells of the compiler.
    """
    for columns, times in ((AGGREGATE, 10), ("*", 2)):
        for _ in range(times):
            text = f"select {columns} from {{}} where l_partkey = 1000"
            timed(spark, text.format(ours), text.format(delta))


def compared(runs: Sequence[dict[str, float]], among: Sequence[str] = PEERS) -> dict[str, Any]:
    """Medians of the runs after the first, which warms up; ``ratio``: the best peer of ``among`` / ours."""
    medians = {name: statistics.median(run[name] for run in runs[1:]) for name in (OURS, *PEERS)}
    ours = medians.pop(OURS)
    ratio = min(medians[name] for name in among) / ours
    return {"ours_s": ours, "peers": medians, "ratio": ratio, "against": list(among), "repeats": len(runs) - 1}


def is_wanted(name: str, only: str) -> bool:
    """Whether a case is selected by ``--only``: parts of names, separated by semicolons."""
    return any(part in name for part in only.split(";"))

"""One query of ours, of plain Iceberg and of Delta, in turn and in one warm session: seconds, and the same answers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import skipstone
from pyspark.sql import DataFrame, SparkSession

OURS, ICEBERG, DELTA = "ours", "iceberg", "delta"
#: What of lineitem's rows is selected in an aggregate.
AGGREGATE = "count(*) as n, sum(l_extendedprice) as price, min(l_shipdate) as shipped"


def timed(spark: SparkSession, ours: str, delta: str) -> dict[str, float]:
    """Seconds of one run of each; ``delta``: the query on the Delta tables. Raises RuntimeError for other answers."""
    calls: dict[str, Callable[[], DataFrame]] = {
        OURS: lambda: skipstone.sql(spark, ours),
        ICEBERG: lambda: spark.sql(ours),
        DELTA: lambda: spark.sql(delta),
    }
    seconds, answers = {}, {}
    for peer, call in calls.items():
        start = time.perf_counter()
        answers[peer] = call().collect()
        seconds[peer] = time.perf_counter() - start
    if len({tuple(sorted(map(repr, rows))) for rows in answers.values()}) != 1:
        raise RuntimeError(f"the answers differ: {ours}")
    return seconds


def compared(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians of the runs after the first, which warms up; ``ratio``: best peer / ours."""
    medians = {name: statistics.median(run[name] for run in runs[1:]) for name in (OURS, ICEBERG, DELTA)}
    ours = medians.pop(OURS)
    return {"ours_s": ours, "peers": medians, "ratio": min(medians.values()) / ours}

"""Merges of recent keys and point lookups on S3 when every request takes longer: `make bench-latency`.

Each case runs ours and Iceberg's in turn, in warm processes, through the proxy as it is and then with a delay of every
request. Prints a table and writes build/bench/latency.jsonl: ``ratio`` = peer / ours with the delay, ``ratio_plain``
without it, ``ratio_kept`` = the first / the second, ``slowdown`` = ours with the delay / without; medians of the
repetitions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pyarrow as pa
import skipstone
from pyspark.sql import SparkSession
from skipstone_core.contract.requests import JobRequest, ReindexTask, RunKind

from tests.bench.lineitem import say
from tests.bench.requests import BY_PART, FILES, PER_COMMIT, ROWS, rows_of, run_here
from tests.bench.results import FOLDER, keep, show_goals, verdict
from tests.bench.s3lake import S3Lake, s3_lake
from tests.spark.merge_bed import task_of

RESULTS = FOLDER / "latency.jsonl"
#: Files at the end of the table that a merge of recent keys touches.
RECENT = 8
Call = Callable[[], float]


def main() -> None:
    """Run both cases, without the delay and with it."""
    options = _options()
    with s3_lake() as lake, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        say(f"{FILES} files of {ROWS} rows in {FILES // PER_COMMIT} segments; {options.latency_ms} ms")
        bench = _Bench(lake, process)
        for case, (ours, theirs) in bench.cases().items():
            line = _line(lake, options, ours, theirs)
            kept = keep(RESULTS, {"case": case, **line})
            print(case, json.dumps(line), verdict(kept), flush=True)
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def _line(lake: S3Lake, options: argparse.Namespace, ours: Call, theirs: Call) -> dict[str, Any]:
    found: dict[float, tuple[float, float]] = {}
    for delay in (0.0, options.latency_ms / 1000):
        lake.proxy.delay_seconds = delay
        runs = [(ours(), theirs()) for _ in range(options.repeats + 1)][1:]
        found[delay] = statistics.median(one for one, _ in runs), statistics.median(other for _, other in runs)
    (plain, plain_peer), (delayed, delayed_peer) = found.values()
    ratio, before, slowdown = delayed_peer / delayed, plain_peer / plain, delayed / plain
    return {
        "latency_ms": options.latency_ms,
        "ours_s": delayed,
        "peers": {"iceberg": delayed_peer},
        "ours_plain_s": plain,
        "peers_plain": {"iceberg": plain_peer},
        "ratio": ratio,
        "ratio_plain": before,
        "ratio_kept": ratio / before,
        "slowdown": slowdown,
    }


class _Bench:
    """Tables, and who works on them; ours merges in a process of its own that stays."""

    def __init__(self, lake: S3Lake, process: ProcessPoolExecutor) -> None:
        self._lake, self._process = lake, process
        for name in ("t", "peer"):
            lake.make(name, [rows_of(number) for number in range(FILES)], PER_COMMIT, {"format-version": "2"})
        request = lake.direct.request(RunKind.REINDEX, indexes=(BY_PART,), reindex=ReindexTask(index=BY_PART))
        process.submit(run_here, request).result()
        self._rows = pa.concat_tables(rows_of(number).slice(0, ROWS // 5) for number in range(FILES - RECENT, FILES))
        self._spark: SparkSession = lake.session()
        self._keys, self._names = itertools.count(1), itertools.count(1)

    def cases(self) -> dict[str, tuple[Call, Call]]:
        """Ours and theirs by name."""
        return {
            "point lookup": (self._lookup, self._select),
            "merge of recent keys": (self._merge, self._merge_into),
        }

    def _point(self, table: str) -> str:
        return f"select * from {self._lake.name(table)} where part = {next(self._keys) * 7919 % (FILES * ROWS)}"

    def _lookup(self) -> float:
        return _timed(lambda: skipstone.sql(self._spark, self._point("t")).collect())

    def _select(self) -> float:
        return _timed(lambda: self._spark.sql(self._point("peer")).collect())

    def _merge(self) -> float:
        name = f"changed {next(self._names)}"  # the same rows again would not be applied
        names = pa.array([name] * self._rows.num_rows)
        self._lake.direct.put("changes/c.parquet", self._rows.set_column(2, "name", names))
        return self._process.submit(
            _run_timed, self._lake.bed.request(RunKind.MERGE, merge=task_of("changes"))
        ).result()

    def _merge_into(self) -> float:
        return _timed(self._statement)

    def _statement(self) -> object:
        self._spark.read.parquet(self._lake.address("changes/c.parquet")).createOrReplaceTempView("source")
        return self._spark.sql(
            f"merge into {self._lake.name('peer')} t using source s on t.id = s.id "
            "when matched then update set * when not matched then insert *"
        ).collect()


def _run_timed(request: JobRequest) -> float:
    return _timed(lambda: run_here(request))


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

"""Lookups through partly synced indexes against plain Iceberg and Delta on the same files: `make bench-lookup`.

Every case runs ours and its peers in turn, in one warm session, with another key each time; answers are compared.
Prints a table and writes build/bench/lookup.jsonl: ratio = best peer / ours, medians of the repetitions.
Several threads of one session look keys up at the same time, too: throughput_ratio = theirs / that of one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import skipstone
from pyspark.sql import SparkSession
from skipstone.query.plans.explanation import RelationExplanation

from tests.bench.lineitem import NAME, NAMESPACE, OTHERS, Lineitem, say, session
from tests.bench.peers import AGGREGATE, ICEBERG, PEERS, compared, is_wanted, timed, warm
from tests.bench.processes import cpu_seconds
from tests.bench.results import FOLDER, is_left, keep, show_goals, verdict

RESULTS = FOLDER / "lookup.jsonl"
SHAPES = {"aggregate": AGGREGATE, "rows": "*"}
INDEXED_ONLY = {"indexed columns": "l_partkey"}
#: Columns that an index on l_partkey holds besides, and what is selected of them.
INCLUDED = ("l_extendedprice", "l_shipdate")
HELD = {"aggregate": AGGREGATE, "rows": ", ".join(("l_partkey", *INCLUDED))}
#: Threads that look keys up at the same time, and lookups of each of them.
THREADS, EACH = 8, 10
CONCURRENT = f"{THREADS} threads of one session"


@dataclass(frozen=True)
class Case:
    """A condition per repetition, on tables in a state of sync; ``peers``: whose best time the ratio is about."""

    name: str
    conditions: tuple[str, ...]
    shapes: dict[str, str]
    peers: tuple[str, ...] = PEERS


def main() -> None:
    """Run all cases."""
    options = _options()
    lineitem = Lineitem(options.scale, options.segments, options.files)
    say(f"TPC-H lineitem, scale {options.scale:g}, {options.segments} segments, {options.files} files")
    lineitem.make()
    spark = session(lineitem)
    spark.sparkContext.setLogLevel("ERROR")
    lineitem.make_delta(spark)
    warm(spark, f"{lineitem.warehouse.catalog.name}.{NAMESPACE}.{NAME}", f"delta.`{lineitem.delta_path}`")
    for measured in _lines(lineitem, spark, options.repeats, options.only):
        line = keep(RESULTS, measured | {"scale": options.scale})
        peers = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in line["peers"].items())
        hit = f"({line['files_hit']}/{line['files_total']} files)" if "files_hit" in line else ""
        hit += f" {verdict(line)}"
        print(f"{line['case']:<55} ours {line['ours_s']:.3f} s, {peers}: {line['ratio']:.2f} {hit}", flush=True)
    if is_wanted(CONCURRENT, options.only) and is_left(RESULTS, [CONCURRENT], options.scale):
        line = keep(RESULTS, _concurrent(lineitem, spark) | {"scale": options.scale})
        print(_throughput(line), flush=True)
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds one of these, separated by semicolons")
    return parser.parse_args()


def _lines(lineitem: Lineitem, spark: SparkSession, repeats: int, only: str) -> Iterator[dict[str, Any]]:
    keys = _Keys(lineitem, repeats + 1)
    lineitem.drop_indexes(keep=OTHERS)
    before = 0
    for synced, case in keys.states(lineitem.segments):
        if _is_due(lineitem, case, only):
            if synced:
                lineitem.reindex("l_partkey", synced - before)
            before = synced
            yield from _measured(lineitem, spark, case)
    indexes = [("l_partkey", ()), ("l_suppkey", ()), ("l_orderkey", ())]
    for cases, needed in ((keys.cases(), indexes), (keys.included(), [("l_partkey", INCLUDED)])):
        wanted = [case for case in cases if _is_due(lineitem, case, only)]
        for column, include in needed if wanted else ():
            lineitem.reindex(column, include=include)
        for case in wanted:
            yield from _measured(lineitem, spark, case)


def _is_due(lineitem: Lineitem, case: Case, only: str) -> bool:
    cases = [f"{case.name}: {shape}" for shape in case.shapes]
    return is_wanted(case.name, only) and is_left(RESULTS, cases, lineitem.scale)


class _Keys:
    """Keys that stand in the table, other ones for every repetition; the first is for warming up."""

    def __init__(self, lineitem: Lineitem, repeats: int) -> None:
        chance = np.random.default_rng(1)
        self.parts = chance.integers(1, int(200_000 * lineitem.scale), (repeats, 100))
        self.orders = chance.integers(1, int(6_000_000 * lineitem.scale) - 6000, repeats)
        self.order_lists = chance.integers(1, int(6_000_000 * lineitem.scale), (repeats, 100))
        self.width = int(6_000 * lineitem.scale)
        rows = lineitem.table().scan(selected_fields=("l_partkey", "l_suppkey"), limit=repeats * 50).to_arrow()
        self.pairs = rows.slice(0, repeats * 50).take(list(range(0, repeats * 50, 50))).to_pylist()

    def states(self, segments: int) -> Iterator[tuple[int, Case]]:
        """Points, with so many segments synced. Without an index, Iceberg's own time is what counts."""
        points = tuple(f"l_partkey = {key}" for key in self.parts[:, 0])
        states = {"none": 0, "half": segments // 2, "all but 3": segments - 3, "all": segments}
        for state, synced in states.items():
            peers = (ICEBERG,) if not synced else PEERS
            yield synced, Case(f"point, {state} synced", points, SHAPES, peers)

    def cases(self) -> Iterator[Case]:
        """Cases on fully synced indexes."""
        part_range = max(1, self.parts.max() // 1000)
        pairs = tuple(f"l_partkey = {p['l_partkey']} and l_suppkey = {p['l_suppkey']}" for p in self.pairs)
        lists = tuple(f"l_partkey in ({', '.join(map(str, row))})" for row in self.parts)
        starts = self.parts[:, 0]
        uniform = tuple(f"l_partkey between {key} and {key + part_range}" for key in starts)
        ordered = tuple(f"l_orderkey between {key} and {key + self.width}" for key in self.orders)
        order_lists = tuple(f"l_orderkey in ({', '.join(map(str, row))})" for row in self.order_lists)
        yield Case("and of two indexes", pairs, SHAPES)
        yield Case("point", tuple(f"l_partkey = {key}" for key in starts), INDEXED_ONLY)
        yield Case("in of 100, uniform", lists, SHAPES)
        yield Case("range of 0.1 %, uniform", uniform, SHAPES)
        yield Case("in of 100, load order", order_lists, SHAPES)
        yield Case("range of 0.1 %, load order", ordered, SHAPES)

    def included(self) -> Iterator[Case]:
        """Cases that an index of included columns answers: few rows by the driver, many by tasks."""
        last, starts = int(self.parts.max()), self.parts[:, 0]
        for part, shapes in ((0.001, HELD), (0.03, {"aggregate": AGGREGATE})):
            width = max(1, int(last * part))
            ranges = tuple(f"l_partkey between {key} and {key + width}" for key in np.minimum(starts, last - width))
            yield Case(f"keys and included columns, range of {part:.1%}", ranges, shapes)
        points = tuple(f"l_partkey = {key}" for key in starts)
        yield Case("keys and included columns, point", points, HELD)


def _measured(lineitem: Lineitem, spark: SparkSession, case: Case) -> Iterator[dict[str, Any]]:
    """Bytes are sizes of files: ``bytes_hit`` of those in which an index found hits, ``bytes_read`` of all opened."""
    ours, delta = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}.{NAME}", f"delta.`{lineitem.delta_path}`"
    for shape, columns in case.shapes.items():
        texts = [f"select {columns} from {{}} where {condition}" for condition in case.conditions]
        runs = [timed(spark, text.format(ours), text.format(delta)) for text in texts]
        line = {"case": f"{case.name}: {shape}", **compared(runs, case.peers), **_read(spark, texts[-1].format(ours))}
        yield line


def _concurrent(lineitem: Lineitem, spark: SparkSession) -> dict[str, Any]:
    """Lookups in a second by several threads of one session, and by one.

    ``cpu_ms``: processor time of one lookup, in Python and the JVM; ``most_ratio``: what all cores could do with that.
    """
    lineitem.reindex("l_partkey")
    ours = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}.{NAME}"
    keys = np.random.default_rng(2).integers(1, int(200_000 * lineitem.scale), THREADS * EACH)
    texts = [f"select {AGGREGATE} from {ours} where l_partkey = {key}" for key in keys]
    for _ in range(2):  # the first time warms up
        before = cpu_seconds()
        alone = _per_second(spark, texts, 1)
        cpu = (cpu_seconds() - before) / len(texts)
        together = _per_second(spark, texts, THREADS)
    cores = len(os.sched_getaffinity(0))
    return {
        "case": CONCURRENT,
        "lookups_per_s": together,
        "alone_per_s": alone,
        "throughput_ratio": together / alone,
        "cpu_ms": 1000 * cpu,
        "most_ratio": cores / cpu / alone,
    }


def _throughput(line: dict[str, Any]) -> str:
    speed = (
        f"{line['lookups_per_s']:.1f} lookups/s, one thread {line['alone_per_s']:.1f}: {line['throughput_ratio']:.2f}"
    )
    most = f"at most {line['most_ratio']:.2f} by {line['cpu_ms']:.0f} ms of processor time for each"
    return f"{line['case']:<55} {speed}, {most} {verdict(line)}"


def _per_second(spark: SparkSession, texts: Sequence[str], threads: int) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for rows in pool.map(lambda text: skipstone.sql(spark, text).collect(), texts):
            if len(rows) != 1:
                raise RuntimeError(f"an aggregate gave {len(rows)} rows")
    return len(texts) / (time.perf_counter() - start)


def _is_answered(relation: RelationExplanation) -> bool:
    """Whether an index gives rows alone, to the driver or to tasks."""
    return relation.scan is not None or (relation.driver is not None and relation.driver.takes_answer)


def _read(spark: SparkSession, query: str) -> dict[str, int]:
    (relation,) = skipstone.explain(skipstone.sql(spark, query)).relations
    if relation.plan is None:
        return {"files_hit": -1, "files_total": -1, "bytes_hit": -1, "bytes_read": -1, "bytes_total": -1}
    sizes = relation.plan.files.files["size"].to_numpy()
    answered = set(relation.plan.answer.ordinals.tolist()) if _is_answered(relation) and relation.plan.answer else set()
    opened = [ordinal for ordinal in relation.plan.ordinals if ordinal not in answered]
    read = sizes[opened] if relation.is_rewritten else sizes
    hit = sorted({*relation.plan.row_groups, *relation.plan.positions}) if relation.is_rewritten else []
    return {
        "files_hit": len(read) if relation.is_rewritten else relation.plan.funnel.min_max,
        "files_total": len(sizes),
        "bytes_hit": int(sizes[np.array(hit, dtype=int)].sum()),
        "bytes_read": int(read.sum()),
        "bytes_total": int(sizes.sum()),
    }


if __name__ == "__main__":
    main()

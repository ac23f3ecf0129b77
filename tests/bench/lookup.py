"""Lookups through partly synced indexes against plain Iceberg and Delta on the same files: `make bench-lookup`.

Every case runs ours and its peers in turn, in one warm session, with another key each time; answers are compared.
Prints a table and writes build/bench/lookup.jsonl: ratio = best peer / ours, medians of the repetitions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import skipstone
from pyspark.sql import SparkSession
from skipstone.query.plans.explanation import RelationExplanation

from tests.bench.lineitem import NAME, NAMESPACE, OTHERS, ROOT, Lineitem, say, session
from tests.bench.peers import AGGREGATE, ICEBERG, compared, timed

RESULTS = ROOT / "build" / "bench" / "lookup.jsonl"
SHAPES = {"aggregate": AGGREGATE, "rows": "*"}
INDEXED_ONLY = {"indexed columns": "l_partkey"}
#: Columns that an index on l_partkey holds besides, and what is selected of them.
INCLUDED = ("l_extendedprice", "l_shipdate")
HELD = {"aggregate": AGGREGATE, "rows": ", ".join(("l_partkey", *INCLUDED))}


@dataclass(frozen=True)
class Case:
    """A condition per repetition, on tables in a state of sync."""

    name: str
    conditions: tuple[str, ...]
    shapes: dict[str, str]
    target: float


def main() -> None:
    """Run all cases."""
    options = _options()
    lineitem = Lineitem(options.scale, options.segments, options.files)
    say(f"TPC-H lineitem, scale {options.scale:g}, {options.segments} segments, {options.files} files")
    lineitem.make()
    spark = session(lineitem)
    spark.sparkContext.setLogLevel("ERROR")
    lineitem.make_delta(spark)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w") as results:
        for line in _lines(lineitem, spark, options.repeats):
            results.write(json.dumps(line) + "\n")
            results.flush()
            peers = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in line["peers"].items())
            hit = f"({line['files_hit']}/{line['files_total']} files)" if "files_hit" in line else ""
            print(f"{line['case']:<55} ours {line['ours_s']:.3f} s, {peers}: {line['ratio']:.2f} {hit}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def _lines(lineitem: Lineitem, spark: SparkSession, repeats: int) -> Iterator[dict[str, Any]]:
    keys = _Keys(lineitem, repeats + 1)
    points = tuple(f"l_partkey = {key}" for key in keys.parts[:, 0])
    lineitem.drop_indexes(keep=OTHERS)
    before = 0
    for synced in (0, lineitem.segments // 2, lineitem.segments - 3, lineitem.segments):
        if synced:
            lineitem.reindex("l_partkey", synced - before)
        before = synced
        name = f"point, {synced} of {lineitem.segments} segments synced"
        yield from _measured(lineitem, spark, Case(name, points, SHAPES, 0.0))
    for column in ("l_suppkey", "l_orderkey"):
        yield _built(lineitem, spark, column)
    for case in keys.cases():
        yield from _measured(lineitem, spark, case)
    lineitem.reindex("l_partkey", include=INCLUDED)
    for case in keys.included():
        yield from _measured(lineitem, spark, case)


def _built(lineitem: Lineitem, spark: SparkSession, column: str) -> dict[str, Any]:
    """An index built in one run, beside the same column written in its order by Spark."""
    name = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}"
    select = f"select {column} from {name}.{NAME} order by {column}"
    start = time.perf_counter()
    spark.sql(f"create table {name}.ordered using iceberg as {select}")
    peer = time.perf_counter() - start
    spark.sql(f"drop table {name}.ordered purge")
    ours = lineitem.reindex(column)
    return {"case": f"build on {column}", "ours_s": ours, "peers": {ICEBERG: peer}, "ratio": peer / ours}


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

    def cases(self) -> Iterator[Case]:
        """Cases on fully synced indexes."""
        part_range = max(1, self.parts.max() // 1000)
        pairs = tuple(f"l_partkey = {p['l_partkey']} and l_suppkey = {p['l_suppkey']}" for p in self.pairs)
        lists = tuple(f"l_partkey in ({', '.join(map(str, row))})" for row in self.parts)
        starts = self.parts[:, 0]
        uniform = tuple(f"l_partkey between {key} and {key + part_range}" for key in starts)
        ordered = tuple(f"l_orderkey between {key} and {key + self.width}" for key in self.orders)
        order_lists = tuple(f"l_orderkey in ({', '.join(map(str, row))})" for row in self.order_lists)
        yield Case("and of two indexes", pairs, SHAPES, 8.0)
        yield Case("point", tuple(f"l_partkey = {key}" for key in starts), INDEXED_ONLY, 10.0)
        yield Case("in of 100, uniform", lists, SHAPES, 2.0)
        yield Case("range of 0.1 %, uniform", uniform, SHAPES, 2.0)
        yield Case("in of 100, load order", order_lists, SHAPES, 4.0)
        yield Case("range of 0.1 %, load order", ordered, SHAPES, 4.0)

    def included(self) -> Iterator[Case]:
        """Cases that an index of included columns answers: few rows by the driver, many by tasks."""
        last, starts = int(self.parts.max()), self.parts[:, 0]
        for part, shapes in ((0.001, HELD), (0.03, {"aggregate": AGGREGATE})):
            width = max(1, int(last * part))
            ranges = tuple(f"l_partkey between {key} and {key + width}" for key in np.minimum(starts, last - width))
            yield Case(f"keys and included columns, range of {part:.1%}", ranges, shapes, 15.0)
        points = tuple(f"l_partkey = {key}" for key in starts)
        yield Case("keys and included columns, point", points, HELD, 15.0)


def _measured(lineitem: Lineitem, spark: SparkSession, case: Case) -> Iterator[dict[str, Any]]:
    """Bytes are sizes of files: ``bytes_hit`` of those in which an index found hits, ``bytes_read`` of all opened."""
    ours, delta = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}.{NAME}", f"delta.`{lineitem.delta_path}`"
    for shape, columns in case.shapes.items():
        texts = [f"select {columns} from {{}} where {condition}" for condition in case.conditions]
        runs = [timed(spark, text.format(ours), text.format(delta)) for text in texts]
        line = {"case": f"{case.name}: {shape}", **compared(runs), **_read(spark, texts[-1].format(ours))}
        yield {**line, "goal": case.target, "ok": line["ratio"] >= case.target}


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
        "files_hit": len(read),
        "files_total": len(sizes),
        "bytes_hit": int(sizes[np.array(hit, dtype=int)].sum()),
        "bytes_read": int(read.sum()),
        "bytes_total": int(sizes.sum()),
    }


if __name__ == "__main__":
    main()

"""Joins through partly synced indexes against plain Iceberg and Delta on the same rows: `make bench-joins`.

Lineitem is joined with a few parts, and with the orders of one customer: no condition on lineitem itself; and with all
orders, by the buckets of covering indexes, where shuffles are counted. Every case runs ours and its peers in turn, in
one warm session, with other keys each time; answers are compared. Prints a table and writes build/bench/joins.jsonl:
ratio = best peer / ours, medians of the repetitions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, cycle
from typing import Any

import numpy as np
import skipstone
from pyspark.sql import SparkSession
from skipstone.compat.pyspark import java_frame, running_frame

from tests.bench.lineitem import NAME, NAMESPACE, OTHERS, Lineitem, generated, index_on, reindex, say, session
from tests.bench.peers import AGGREGATE, ICEBERG, PEERS, compared, is_wanted, timed, warm
from tests.bench.results import FOLDER, is_left, keep, show_goals, verdict

RESULTS = FOLDER / "joins.jsonl"
SHAPES = {"aggregate": AGGREGATE, "rows": "l.*"}
PARTS = "{lineitem} l join {part} on l_partkey = p_partkey where p_brand = '{brand}' and p_container = '{container}'"
ORDERS = "{orders} join {lineitem} l on o_orderkey = l_orderkey where o_custkey = {customer}"
SEMI = "{lineitem} l where l_orderkey in (select o_orderkey from {orders} where o_custkey = {customer})"
#: A join of two large tables: of these columns, through covering indexes with these buckets.
LARGE = "{lineitem} l join {orders} on o_orderkey = l_orderkey where o_totalprice > {price}"
LARGE_NAME = "all orders"
#: States of the index of lineitem, as cases name them.
MISSING, ALL = "all but 3 synced", "all synced"
LARGE_SHAPES = {
    "aggregate": "count(*) as n, sum(l_extendedprice) as price, sum(o_totalprice) as total, min(l_shipdate) as shipped",
}
COVERED = {NAME: ("l_orderkey", ("l_extendedprice", "l_shipdate")), "orders": ("o_orderkey", ("o_totalprice",))}
BUCKETS = 16
CONTAINERS = ("SM CASE", "MED BOX", "LG DRUM", "JUMBO PKG", "WRAP JAR", "MED BAG", "LG CAN", "SM PACK")


@dataclass(frozen=True)
class Case:
    """A join: its ``text`` for the keys of one repetition; ``peers``: whose best time the ratio is about."""

    name: str
    text: str
    keys: tuple[dict[str, object], ...]
    shapes: Mapping[str, str] = field(default_factory=lambda: SHAPES)
    peers: tuple[str, ...] = PEERS


def main() -> None:
    """Run all cases."""
    options = _options()
    lineitem = Lineitem(options.scale, options.segments, options.files)
    say(f"TPC-H, scale {options.scale:g}, lineitem in {options.segments} segments and {options.files} files")
    lineitem.make()
    for name in OTHERS:
        _make(lineitem, name)
    spark = session(lineitem)
    spark.sparkContext.setLogLevel("ERROR")
    lineitem.make_delta(spark)
    for name in OTHERS:
        _make_delta(lineitem, spark, name)
    warm(spark, f"{lineitem.warehouse.catalog.name}.{NAMESPACE}.{NAME}", f"delta.`{lineitem.delta_path}`")
    small = [] if options.large else _lines(lineitem, spark, options)
    for line in chain(small, _large_lines(lineitem, spark, options)):
        kept = keep(RESULTS, line | {"scale": options.scale})
        peers = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in line["peers"].items())
        files = f"{line['files_hit']}/{line['files_total']} files"
        done = f"{line['shuffles']} shuffles" if "shuffles" in line else files
        hit = f"({done}) {verdict(kept)}"
        print(f"{line['case']:<60} ours {line['ours_s']:.3f} s, {peers}: {line['ratio']:.2f} {hit}", flush=True)
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds one of these, separated by semicolons")
    parser.add_argument("--large", action="store_true", help="only joins of two large tables")
    return parser.parse_args()


def _make(lineitem: Lineitem, name: str) -> None:
    """Another table of the same scale, in Iceberg, unless it is there."""
    if lineitem.catalog.table_exists((NAMESPACE, name)):
        return
    say(f"Iceberg: {name}")
    rows = generated(lineitem.root, lineitem.scale, name, 0, 1)
    lineitem.catalog.create_table((NAMESPACE, name), schema=rows.schema).append(rows)


def _make_delta(lineitem: Lineitem, spark: SparkSession, name: str) -> None:
    path = lineitem.root / f"delta-{name}"
    if not (path / "_delta_log").exists():
        say(f"Delta: {name}")
        spark.table(f"{lineitem.warehouse.catalog.name}.{NAMESPACE}.{name}").write.format("delta").save(str(path))


def _lines(lineitem: Lineitem, spark: SparkSession, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    repeats = options.repeats
    chance = np.random.default_rng(1)
    brands = (f"Brand#{chance.integers(1, 6)}{chance.integers(1, 6)}" for _ in range(repeats + 1))
    parts = tuple({"brand": brand, "container": box} for brand, box in zip(brands, cycle(CONTAINERS), strict=False))
    # only customers whose number is no multiple of three have orders
    buyers = 3 * chance.integers(1, int(50_000 * lineitem.scale), repeats + 1) + 1
    customers = tuple({"customer": int(buyer)} for buyer in buyers)
    lineitem.drop_indexes(keep=OTHERS)
    before: dict[str, int] = {}
    for state, synced in (("none synced", 0), (MISSING, lineitem.segments - 3), (ALL, lineitem.segments)):
        peers = PEERS if synced else (ICEBERG,)
        cases = {
            "l_partkey": [Case(f"a brand in a container, {state}", PARTS, parts, peers=peers)],
            "l_orderkey": [Case(f"orders of a customer, {state}", ORDERS, customers, peers=peers)],
        }
        if synced == lineitem.segments:
            cases["l_orderkey"].append(Case("orders of a customer, in (select …)", SEMI, customers))
        for column, given in cases.items():
            wanted = [case for case in given if _is_due(case, options)]
            if synced and wanted:
                lineitem.reindex(column, synced - before.get(column, 0))
                before[column] = synced
            for case in wanted:
                yield from _measured(lineitem, spark, case)


def _is_due(case: Case, options: argparse.Namespace) -> bool:
    cases = [f"{case.name}: {shape}" for shape in case.shapes]
    return is_wanted(case.name, options.only) and is_left(RESULTS, cases, options.scale)


def _large_lines(lineitem: Lineitem, spark: SparkSession, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Joins of all orders, with segments of lineitem missing and without."""
    cases = [f"{LARGE_NAME}, {state}: {shape}" for state in (MISSING, ALL) for shape in LARGE_SHAPES]
    if not is_wanted(LARGE_NAME, options.only) or not is_left(RESULTS, cases, options.scale):
        return
    lineitem.drop_indexes(keep=OTHERS)
    prices = tuple({"price": 1000 + number} for number in range(options.repeats + 1))
    before = 0
    for state, synced in ((MISSING, lineitem.segments - 3), (ALL, lineitem.segments)):
        for name, (column, include) in COVERED.items():
            more = synced - before if name == NAME else None
            reindex(lineitem.warehouse, name, index_on((column,), include, BUCKETS), more)
        before = synced
        case = Case(f"{LARGE_NAME}, {state}", LARGE, prices, LARGE_SHAPES)
        for line in _measured(lineitem, spark, case):
            yield {**line, **_shuffles(lineitem, spark, line["case"])}


def _shuffles(lineitem: Lineitem, spark: SparkSession, case: str) -> dict[str, int]:
    """How many shuffles by keys the plan of ours has, and that of plain Iceberg."""
    catalog = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}"
    shape = LARGE_SHAPES[case.rsplit(": ", 1)[-1]]
    text = f"select {shape} from {LARGE}".format(lineitem=f"{catalog}.{NAME}", orders=f"{catalog}.orders", price=1000)
    frames = {"shuffles": running_frame(skipstone.sql(spark, text)), "shuffles_iceberg": spark.sql(text)}
    plans = {name: str(java_frame(df).queryExecution().executedPlan().toString()) for name, df in frames.items()}
    return {name: plan.count("Exchange hashpartitioning") for name, plan in plans.items()}


def _measured(lineitem: Lineitem, spark: SparkSession, case: Case) -> Iterator[dict[str, Any]]:
    catalog = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}"
    names = {NAME: f"{catalog}.{NAME}", **{name: f"{catalog}.{name}" for name in OTHERS}}
    linked = {NAME: f"delta.`{lineitem.delta_path}`"}
    linked |= {name: f"delta.`{lineitem.root / f'delta-{name}'}`" for name in OTHERS}
    for shape, columns in case.shapes.items():
        text = f"select {columns} from {case.text}"
        runs = [timed(spark, text.format(**names, **keys), text.format(**linked, **keys)) for keys in case.keys]
        line = {"case": f"{case.name}: {shape}", **compared(runs, case.peers)}
        read = _read(spark, text.format(**names, **case.keys[-1]), names[NAME])
        yield {**line, **read}


def _read(spark: SparkSession, query: str, table: str) -> dict[str, int]:
    for one in skipstone.explain(skipstone.sql(spark, query)).relations:
        if one.table == table and one.plan is not None:
            funnel = one.plan.funnel
            return {"files_hit": funnel.read if one.is_rewritten else funnel.total, "files_total": funnel.total}
    return {"files_hit": -1, "files_total": -1}


if __name__ == "__main__":
    main()

"""The 22 queries of TPC-H in a session that uses indexes, beside plain Iceberg on the same tables: `make bench-tpch`.

Indexes on the keys and on dates include the columns that analyses by them need, and miss three of 40 segments. Each
query runs in turn in an enabled session and in one that is not, both warm; answers are compared. Prints a table and
writes build/bench/tpch.jsonl: ratio = Iceberg / ours, medians of the repetitions. Goals
are about each query, and about the geometric mean of those that use an index.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import skipstone
from propcache.api import cached_property
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession
from skipstone.compat.pyspark import java_frame, running_frame
from skipstone.query.plans.explanation import Explanation
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.bench.lineitem import (
    NAMESPACE,
    PROPERTIES,
    ROOT,
    append,
    generated,
    iceberg_session,
    index_on,
    reindex,
    say,
)
from tests.bench.results import FOLDER, is_left, keep, read, show_goals, verdict
from tests.bench.tpch_queries import QUERIES

RESULTS = FOLDER / "tpch.jsonl"
#: Files of each table for one of lineitem's: tables with segments have one file in each at least, the others one.
IN_SEGMENTS = {"lineitem": 1.0, "orders": 0.2, "partsupp": 0.1}
WHOLE = {"customer": 0.01, "part": 0.01, "supplier": 0.0, "nation": 0.0, "region": 0.0}
#: Of each table: the column that an index begins with, and the included ones.
INDEXES = (
    ("lineitem", "l_orderkey", ("l_suppkey", "l_quantity", "l_commitdate", "l_receiptdate")),
    (
        "lineitem",
        "l_partkey",
        ("l_orderkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount", "l_shipmode", "l_shipinstruct"),
    ),
    ("lineitem", "l_suppkey", ("l_orderkey", "l_extendedprice", "l_discount", "l_shipdate")),
    ("lineitem", "l_shipdate", ("l_partkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount")),
    ("lineitem", "l_receiptdate", ("l_orderkey", "l_shipmode", "l_commitdate", "l_shipdate")),
    ("orders", "o_orderkey", ()),
    ("orders", "o_custkey", ("o_orderkey", "o_orderdate")),
    ("orders", "o_orderdate", ("o_orderkey", "o_custkey", "o_orderpriority", "o_shippriority")),
    ("partsupp", "ps_partkey", ("ps_suppkey", "ps_supplycost")),
    ("partsupp", "ps_suppkey", ("ps_partkey", "ps_supplycost", "ps_availqty")),
    ("customer", "c_custkey", ()),
    ("part", "p_partkey", ()),
)
MISSING = 3


@dataclass(frozen=True)
class Tpch:
    """All tables of one scale. Those of many rows are in ``segments`` commits, lineitem in so many ``files``."""

    scale: float
    segments: int
    files: int

    @property
    def root(self) -> Path:
        """Where it lies."""
        return ROOT / ".cache" / "bench" / f"tpch-{self.scale:g}-{self.segments}-{self.files}"

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return WarehouseRef(name="bench", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))

    @cached_property
    def catalog(self) -> SqlCatalog:
        """The catalog, in SQLite."""
        uri = f"sqlite:///{self.root}/catalog.db"
        return SqlCatalog(self.warehouse.catalog.name, uri=uri, warehouse=f"file://{self.root}")

    def make(self) -> None:
        """Generate what is not there yet: tables, then indexes."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.catalog.create_namespace_if_not_exists(NAMESPACE)
        for name, part in {**IN_SEGMENTS, **WHOLE}.items():
            self._once(name, lambda name=name, part=part: self._make(name, part))
        for name, column, include in INDEXES:
            kept = self.segments - MISSING if name in IN_SEGMENTS else None
            index = index_on((column,), include)
            self._once(index.name, lambda name=name, i=index, k=kept: reindex(self.warehouse, name, i, k))

    def _once(self, name: str, make: Any) -> None:
        done = self.root / f"{name}.complete"
        if not done.exists():
            say(name)
            make()
            done.touch()

    def _make(self, name: str, part: float) -> None:
        if self.catalog.table_exists((NAMESPACE, name)):
            self.catalog.purge_table((NAMESPACE, name))
        segments = self.segments if name in IN_SEGMENTS else 1
        for segment in range(segments):
            rows = generated(self.root, self.scale, name, segment, segments)
            if segment == 0:
                self.catalog.create_table((NAMESPACE, name), schema=rows.schema, properties=PROPERTIES)
            append(
                self.catalog.load_table((NAMESPACE, name)), rows, segment, max(1, int(self.files * part) // segments)
            )


def main() -> None:
    """Run all queries."""
    options = _options()
    tables = Tpch(options.scale, options.segments, options.files)
    say(f"TPC-H, scale {options.scale:g}, lineitem in {options.segments} segments and {options.files} files")
    tables.make()
    spark = iceberg_session(tables)
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql(f"use {tables.warehouse.catalog.name}.{NAMESPACE}")
    numbers = [at for at in options.only or sorted(QUERIES) if is_left(RESULTS, [f"Q{at}"], options.scale)]
    for line in _lines(spark, numbers, options.repeats):
        kept = keep(RESULTS, line | {"scale": options.scale, "repeats": options.repeats})
        print(_shown(kept), flush=True)
    found = [line for line in read(RESULTS) if "uses_index" in line and line["scale"] == options.scale]
    keep(RESULTS, _mean(found) | {"scale": options.scale})
    if any(not line["uses_index"] for line in found):
        keep(RESULTS, _without_gain(found) | {"scale": options.scale})
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of queries")
    return parser.parse_args()


def _lines(spark: SparkSession, numbers: Iterable[int], repeats: int) -> Iterator[dict[str, Any]]:
    for number in numbers:
        runs = [_timed(spark, QUERIES[number], begins=at % 2 == 0) for at in range(repeats + 1)][1:]
        ours, plain = (statistics.median(one) for one in zip(*runs, strict=True))
        line = {"case": f"Q{number}", "ours_s": ours, "iceberg_s": plain, "ratio": plain / ours}
        explanation = skipstone.explain(spark.sql(QUERIES[number]))
        line |= {"uses_index": explanation.is_rewritten, "files": _files(explanation)}
        yield line | _planned(spark, QUERIES[number], repeats)


def _shown(line: dict[str, Any]) -> str:
    files = ", ".join(f"{name} {hit}/{total}" for name, hit, total in line["files"])
    times = f"ours {line['ours_s']:.3f} s, iceberg {line['iceberg_s']:.3f} s: {line['ratio']:.2f}"
    return f"{line['case']:<4} {times} {verdict(line)} {files}"


def _timed(spark: SparkSession, query: str, *, begins: bool) -> tuple[float, float]:
    """Seconds of one run with indexes, which ``begins`` or not, and of one without.

    Raises RuntimeError for different answers.
    """
    found = {}
    for is_ours in (begins, not begins):
        (skipstone.enable if is_ours else skipstone.disable)(spark)
        found[is_ours] = _collected(spark.sql(query))
    skipstone.disable(spark)
    (ours, rows), (plain, expected) = found[True], found[False]
    if rows != expected:
        raise RuntimeError(f"the answers differ: {query}")
    return ours, plain


def _planned(spark: SparkSession, query: str, repeats: int) -> dict[str, float]:
    """Milliseconds in which the query is planned, not run: through indexes, and by Spark alone."""
    calls = {
        "planned_ms": lambda: java_frame(running_frame(skipstone.sql(spark, query))),
        "iceberg_planned_ms": lambda: java_frame(spark.sql(query)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call().queryExecution().executedPlan()
            seconds[name].append(time.perf_counter() - start)
    return {name: round(1000 * statistics.median(times[1:]), 1) for name, times in seconds.items()}


def _without_gain(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What planning takes longer where no index is used."""
    plain = [line for line in lines if not line["uses_index"]]
    more = statistics.median(line["planned_ms"] - line["iceberg_planned_ms"] for line in plain)
    ratio = statistics.median(line["planned_ms"] / line["iceberg_planned_ms"] for line in plain)
    print(f"planning of {len(plain)} queries that use no index: {more:.1f} ms longer, {ratio:.2f} times")
    case = "planning of queries that use no index"
    return {"case": case, "queries": len(plain), "more_ms": more, "ratio": ratio}


def _collected(df: DataFrame) -> tuple[float, list[str]]:
    start = time.perf_counter()
    rows = df.collect()
    return time.perf_counter() - start, sorted(map(repr, rows))


def _files(explanation: Explanation) -> list[tuple[str, int, int]]:
    """Of each relation that is read through indexes: its name, files read, and all of its files."""
    return [
        (one.table.rsplit(".", 1)[-1], one.plan.funnel.read, one.plan.funnel.total)
        for one in explanation.relations
        if one.is_rewritten and one.plan is not None
    ]


def _mean(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean of the ratios of queries that use an index."""
    ratios = [line["ratio"] for line in lines if line["uses_index"]]
    mean = statistics.geometric_mean(ratios) if ratios else 0.0
    worst = min(lines, key=lambda line: line["ratio"])
    print(f"geometric mean of {len(ratios)} queries that use an index: {mean:.2f}")
    print(f"worst: {worst['case']}, {worst['ratio']:.2f}")
    case = "geometric mean of queries that use an index"
    return {"case": case, "queries": len(ratios), "ratio": mean}


if __name__ == "__main__":
    main()

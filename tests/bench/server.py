"""Plain Spark SQL on a catalog that a planning server plans, beside client planning and Skipstone: `make bench-server`.

Queries on TPC-H lineitem run in turn in one warm session, with another key each time; answers are compared. *Floor* is
the client's planning of a table that holds nothing but the files that the server leaves: what remains when planning
costs nothing. Then the server alone: processor time of a plan, plans a second of many callers, its start, its memory,
and the plan after a commit; and the queries of TPC-H. Prints a table and writes build/bench/server.jsonl, medians of
the repetitions.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import requests
import skipstone
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import DataFrame, SparkSession
from skipstone.query import ReadOptions, plan_read
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.planning import PlanningSettings

from tests.bench.lineitem import NAME, NAMESPACE, OTHERS, Lineitem, append, generated, iceberg_session, say
from tests.bench.peers import AGGREGATE, is_wanted
from tests.bench.planning import generated_metadata
from tests.bench.results import FOLDER, keep, show_goals, verdict
from tests.bench.server_tables import EVERY, KEY, indexed_metadata, million_files, warehouse_of
from tests.bench.server_tpch import tpch_lines
from tests.bench.tpch import Tpch
from tests.spark.planning_bed import TOKEN, configured, planning_process, served_settings

RESULTS = FOLDER / "server.jsonl"
SERVED, ICEBERG, OURS, FLOOR = "served", "iceberg", "skipstone", "floor"
#: The table of the files that one plan leaves: in a namespace of its own, whose tables nobody purges.
LEFT = ("remaining", "lineitem")
SYNCS = ("point, none synced", "point, synced")
SHAPES = {"aggregate": AGGREGATE, "rows": "*"}
CALLERS, CALLS, PLANS = 16, 40, 100
_TICKS = os.sysconf("SC_CLK_TCK")
_turns = itertools.count()


def main() -> None:
    """Run all cases."""
    options = _options()
    lineitem = Lineitem(options.scale, options.segments, options.files)
    say(f"TPC-H lineitem, scale {options.scale:g}, {options.segments} segments, {options.files} files")
    lineitem.make()
    spark = iceberg_session(lineitem)
    spark.sparkContext.setLogLevel("ERROR")
    for line in _lines(lineitem, spark, options):
        kept = keep(RESULTS, line | {"scale": options.scale, "files": options.files})
        rest = {name: value for name, value in line.items() if name != "case"}
        told = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in rest.items()
        )
        print(f"{line['case']:<48} {told} {verdict(kept)}", flush=True)
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=3)
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--many", type=int, default=100_000, help="files of the table of metadata alone")
    parser.add_argument("--most", type=int, default=1_000_000, help="files of the table whose memory is measured")
    parser.add_argument("--queries", type=int, nargs="*", default=[], help="numbers of queries of TPC-H")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds one of these, separated by semicolons")
    return parser.parse_args()


def _lines(lineitem: Lineitem, spark: SparkSession, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    settings = PlanningSettings(warehouse=lineitem.warehouse)
    if any(is_wanted(case, options.only) for case in (*SYNCS, "server")):
        yield from _lineitem_lines(lineitem, spark, settings, options)
    if is_wanted("many files", options.only):
        yield from _many(spark, options)
        yield from _many_indexed(options)
    if is_wanted("start", options.only):
        yield _started(settings, options.repeats)
    if is_wanted("memory", options.only):
        yield _memory(options)
    if is_wanted("tpch", options.only):
        tables = Tpch(options.scale, options.segments, options.files)
        tables.make()
        yield from tpch_lines(tables, spark, _as_documented, options.repeats, tuple(options.queries))


def _as_documented(address: str, name: str = SERVED) -> dict[str, str]:
    """The settings of docs/guide/engines.md: tests want to see commits at once, users have Spark keep a table a while.

    So does the catalog that the client plans.
    """
    settings = served_settings(address, name)
    del settings[f"spark.sql.catalog.{name}.cache-enabled"]
    return settings


def _lineitem_lines(
    lineitem: Lineitem, spark: SparkSession, settings: PlanningSettings, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    lineitem.drop_indexes(keep=OTHERS)
    with tempfile.TemporaryDirectory() as folder, planning_process(settings, Path(folder)) as (address, server):
        session = configured(spark, _as_documented(address))
        none, all_synced = SYNCS
        if is_wanted(none, options.only):
            yield from _points(lineitem, session, options, none, synced=False)
        lineitem.reindex("l_partkey")
        if is_wanted(all_synced, options.only):
            yield from _points(lineitem, session, options, all_synced, synced=True)
        alone = _Server(address, server, f"{NAMESPACE}/tables/{NAME}")
        if is_wanted("server", options.only):
            yield from _alone(lineitem, alone, options)


def _points(
    lineitem: Lineitem, spark: SparkSession, options: argparse.Namespace, case: str, *, synced: bool
) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(1)
    keys = chance.integers(1, int(200_000 * lineitem.scale), options.repeats + 2).tolist()
    own = f"{lineitem.warehouse.catalog.name}.{NAMESPACE}.{NAME}"
    for shape, columns in SHAPES.items():
        text = f"select {columns} from {{}} where l_partkey = {{}}"
        runs = [_timed(spark, text.format("{}", key), own, _left(lineitem, key) if synced else "") for key in keys]
        found = {name: statistics.median(run[name] for run in runs[2:]) for name in runs[0]}
        ratio = found[ICEBERG] / found[SERVED]
        line = {"case": f"{case}: {shape}", **{f"{name}_s": seconds for name, seconds in found.items()}, "ratio": ratio}
        line["of_ours"] = found[SERVED] / found[OURS]
        if synced:
            line["of_floor"] = found[SERVED] / found[FLOOR]
        yield {**line, "repeats": options.repeats}


def _left(lineitem: Lineitem, key: int) -> str:
    """The name of a new table of the files that an index leaves for ``key``, which it shares with lineitem."""
    lineitem.catalog.create_namespace_if_not_exists(LEFT[0])
    with suppress(NoSuchTableError):
        lineitem.catalog.drop_table(LEFT)
    table = lineitem.table()
    plan = plan_read(table, f"l_partkey = {key}", ReadOptions(by_position=False))
    new = lineitem.catalog.create_table(LEFT, schema=table.schema(), properties=table.properties)
    files = read_file_set(table)
    with new.transaction() as change, change.update_snapshot().fast_append() as append:
        for ordinal in plan.ordinals:
            append.append_data_file(files.data_file(ordinal))
    return ".".join((lineitem.warehouse.catalog.name, *LEFT))


def _timed(spark: SparkSession, text: str, own: str, left: str) -> dict[str, float]:
    """Seconds of one run of each, in turn; ``left``: the table of the files left. Raises RuntimeError.

    The answers must be the same.
    """
    served = text.format(f"served.{NAMESPACE}.{NAME}")
    calls: dict[str, Callable[[], DataFrame]] = {
        SERVED: lambda: spark.sql(served),
        ICEBERG: lambda: spark.sql(text.format(own)),
        OURS: lambda: skipstone.sql(spark, text.format(own)),
    }
    if left:
        spark.sql(f"refresh table {left}")
        spark.table(left).schema  # noqa: B018 - loads it, as the other tables are
        calls[FLOOR] = lambda: spark.sql(text.format(left))
    seconds, found, first = {}, set(), next(_turns) % len(calls)
    names = list(calls)
    for name in (*names[first:], *names[:first]):
        start = time.perf_counter()
        rows = calls[name]().collect()
        seconds[name] = time.perf_counter() - start
        found.add(tuple(sorted(map(repr, rows))))
    if len(found) != 1:
        raise RuntimeError(f"the answers differ: {text}")
    return seconds


class _Server:
    """A server that is asked for plans of one table."""

    def __init__(self, address: str, process: subprocess.Popen[bytes], table: str) -> None:
        self.url = f"{address}/v1/namespaces/{table}/plan"
        self.process = process

    def plan(self, session: requests.Session, condition: dict[str, Any]) -> float:
        """Seconds of one plan. Raises RuntimeError for an error."""
        start = time.perf_counter()
        self._answer(session, condition)
        return time.perf_counter() - start

    def files(self, condition: dict[str, Any]) -> int:
        """How many files a plan leaves. Raises RuntimeError for an error."""
        with _caller() as session:
            return len(self._answer(session, condition).json()["file-scan-tasks"])

    def _answer(self, session: requests.Session, condition: dict[str, Any]) -> requests.Response:
        asked = {"filter": condition, "case-sensitive": False, "use-snapshot-schema": True}
        answer = session.post(self.url, json=asked)
        if answer.status_code != 200:
            raise RuntimeError(f"{answer.status_code}: {answer.text[:300]}")
        return answer

    def cpu_ms(self) -> float:
        """Processor time of the process until now."""
        fields = Path("/proc", str(self.process.pid), "stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / _TICKS

    def cpu_of_a_plan(self, conditions: Sequence[dict[str, Any]]) -> float:
        """Milliseconds, of plans one after the other on a warm table."""
        with _caller() as session:
            self.plan(session, conditions[0])
            before = self.cpu_ms()
            for condition in conditions:
                self.plan(session, condition)
            return (self.cpu_ms() - before) / len(conditions)


def _caller() -> requests.Session:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {TOKEN}"
    return session


def _equal(column: str, value: Any) -> dict[str, Any]:
    return {"type": "eq", "term": column, "value": value}


def _alone(lineitem: Lineitem, server: _Server, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    keys = np.random.default_rng(2).integers(1, int(200_000 * lineitem.scale), 1000).tolist()
    conditions = [_equal("l_partkey", key) for key in keys]
    each = [server.cpu_of_a_plan(conditions[at * PLANS : (at + 1) * PLANS]) for at in range(options.repeats)]
    yield {"case": f"server: CPU of a plan, {options.files} files", "ms": statistics.median(each)}
    runs = [_crowd(server, conditions) for _ in range(options.repeats)]
    rate, late = (statistics.median(run[at] for run in runs) for at in (0, 1))
    yield {"case": f"server: {CALLERS} callers", "plans_a_second": rate, "p99_s": late}
    yield _after_a_commit(lineitem, server, conditions, options)


def _crowd(server: _Server, conditions: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Plans a second, and the time in which 99 of 100 are answered."""

    def call(number: int) -> list[float]:
        with _caller() as session:
            return [server.plan(session, conditions[(number * CALLS + at) % len(conditions)]) for at in range(CALLS)]

    start = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as callers:
        times = sorted(itertools.chain.from_iterable(callers.map(call, range(CALLERS))))
    return len(times) / (time.perf_counter() - start), times[int(len(times) * 0.99)]


def _after_a_commit(
    lineitem: Lineitem, server: _Server, conditions: Sequence[dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    """How much dearer the first plan after a commit of one file is. The commits are undone."""
    rows = generated(lineitem.root, lineitem.scale, NAME, 0, lineitem.segments).slice(0, 1000)
    before = lineitem.table().metadata.current_snapshot_id
    dearer = []
    with _caller() as session:
        for at in range(options.repeats):
            usual = statistics.median(server.plan(session, condition) for condition in conditions[:9])
            append(lineitem.table(), rows, 900 + at, 1)
            dearer.append(1000 * (server.plan(session, conditions[at]) - usual))
    lineitem.table().manage_snapshots().rollback_to_snapshot(before or 0).commit()
    return {"case": "server: after a commit", "ms_dearer": statistics.median(dearer)}


def _many(spark: SparkSession, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A table of metadata alone: no data file stands behind it."""
    root = generated_metadata(options.many)
    with _serving(root) as (address, process):
        server = _Server(address, process, "ns/tables/t")
        outside = [_equal("c1", -1 - number) for number in range(20)]
        each = [server.cpu_of_a_plan(outside) for _ in range(options.repeats)]
        case = f"many files: CPU of a plan, all of {options.many:,} ruled out by bounds"
        yield {"case": case, "ms": statistics.median(each)}
        session = configured(spark, {**_as_documented(address, "many"), **_direct(root)})
        runs = [{name: _planned(session, name) for name in ("many", "bench")} for _ in range(options.repeats + 1)]
        served, direct = (statistics.median(run[name] for run in runs[1:]) for name in ("many", "bench"))
        case = f"many files: all of {options.many:,} planned"
        yield {"case": case, "served_s": served, "iceberg_s": direct, "ratio": served / direct}


@contextmanager
def _serving(root: Path, seconds: int = 60) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server before the catalog of ``root``."""
    settings = PlanningSettings(warehouse=warehouse_of(root), plan_timeout_seconds=seconds)
    with tempfile.TemporaryDirectory() as folder, planning_process(settings, Path(folder)) as found:
        yield found


def _many_indexed(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Files that no bounds rule out; an index leaves one in a thousand, or none."""
    with _serving(indexed_metadata(options.many)) as (address, process):
        server = _Server(address, process, "ns/tables/t")
        left = server.files(_equal("c1", KEY))
        if left != -(-options.many // EVERY):
            raise RuntimeError(f"the index leaves {left} files")
        each = [server.cpu_of_a_plan([_equal("c1", KEY)] * 20) for _ in range(options.repeats)]
        keys = np.random.default_rng(3).integers(0, 1 << 40, (options.repeats, 20)).tolist()
        others = [server.cpu_of_a_plan([_equal("c1", key) for key in some]) for some in keys]
        for told, found in ((f"{left} left", each), ("none left", others)):
            case = f"many files: CPU of a plan, {options.many:,} and the index answers, {told}"
            yield {"case": case, "ms": statistics.median(found)}


def _memory(options: argparse.Namespace) -> dict[str, Any]:
    """What a server holds after plans of all files of a table, and of some. Mapped files can be let go at any time."""
    with _serving(million_files(options.most), seconds=600) as (address, process):
        server = _Server(address, process, "ns/tables/t")
        outside = [_equal("c1", -1 - number) for number in range(5)]
        ms = server.cpu_of_a_plan(outside)
        with _caller() as session:
            server.plan(session, {"type": "is-null", "term": "c1"})
        status = dict(line.split(":", 1) for line in Path("/proc", str(process.pid), "status").read_text().splitlines())
        own, peak = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "VmHWM"))
    return {"case": f"memory: {options.most:,} files", "own_mib": own, "peak_mib": peak, "plan_ms": ms}


def _direct(root: Path) -> dict[str, str]:
    name = "spark.sql.catalog.bench"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{name}.uri": f"jdbc:sqlite:{root}/catalog.db",
        f"{name}.warehouse": f"file://{root}",
        f"{name}.jdbc.schema-version": "V1",
    }


def _planned(spark: SparkSession, catalog: str) -> float:
    """Seconds in which Iceberg's Java library has all files of a scan without a filter."""
    jvm: Any = spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{catalog}.ns.t")
    start = time.perf_counter()
    files = table.newScan().planFiles()
    jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables.size(files)
    return time.perf_counter() - start


def _started(settings: PlanningSettings, repeats: int) -> dict[str, Any]:
    seconds = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            with planning_process(settings, Path(folder)):
                seconds.append(time.perf_counter() - start)
    return {"case": "start", "seconds": statistics.median(seconds)}


if __name__ == "__main__":
    main()

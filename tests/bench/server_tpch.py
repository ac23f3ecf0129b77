"""The 22 queries of TPC-H on a catalog that a planning server plans, beside client planning in the same session."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from skipstone_core.contract.planning import PlanningSettings

from tests.bench.lineitem import NAMESPACE
from tests.bench.tpch import Tpch
from tests.bench.tpch_queries import QUERIES
from tests.spark.planning_bed import configured, planning_process

SERVED, ICEBERG = "served", "iceberg"


def tpch_lines(
    tables: Tpch, spark: SparkSession, settings_of: Any, repeats: int, numbers: tuple[int, ...]
) -> Iterator[dict[str, Any]]:
    """A line for each query and one for all. ``settings_of``: Spark's settings for an address and a catalog's name."""
    settings = PlanningSettings(warehouse=tables.warehouse)
    with tempfile.TemporaryDirectory() as folder, planning_process(settings, Path(folder)) as (address, _):
        session = configured(spark, {**settings_of(address, SERVED), **_direct(tables)})
        lines = []
        for number in numbers or sorted(QUERIES):
            lines.append(_line(session, tables.warehouse.catalog.name, number, repeats))
            yield lines[-1]
    ratios = [line["ratio"] for line in lines]
    mean = statistics.geometric_mean(ratios)
    yield {"case": "tpch: geometric mean", "queries": len(ratios), "ratio": mean}


def _direct(tables: Tpch) -> dict[str, str]:
    """The same tables, planned by the client. Rows of a JDBC catalog are keyed by its name: it is the Warehouse's."""
    name = f"spark.sql.catalog.{tables.warehouse.catalog.name}"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "jdbc",
        f"{name}.uri": f"jdbc:sqlite:{tables.root}/catalog.db",
        f"{name}.warehouse": f"file://{tables.root}",
        f"{name}.jdbc.schema-version": "V1",
    }


def _line(spark: SparkSession, own: str, number: int, repeats: int) -> dict[str, Any]:
    runs = [_timed(spark, own, QUERIES[number], begins=at % 2 == 0) for at in range(repeats + 1)][1:]
    found = {name: statistics.median(run[name] for run in runs) for name in (SERVED, ICEBERG)}
    ratio = found[ICEBERG] / found[SERVED]
    line = {"case": f"tpch: Q{number}", "served_s": found[SERVED], "iceberg_s": found[ICEBERG], "ratio": ratio}
    return {**line, "repeats": repeats}


def _timed(spark: SparkSession, own: str, query: str, *, begins: bool) -> Mapping[str, float]:
    """Seconds of one run of each; ``begins``: whether the server plans the first. Raises RuntimeError.

    ``own``: the catalog that the client plans.
    """
    seconds, answers = {}, []
    for name in (SERVED, ICEBERG) if begins else (ICEBERG, SERVED):
        spark.sql(f"use {SERVED if name == SERVED else own}.{NAMESPACE}")
        start = time.perf_counter()
        rows = spark.sql(query).collect()
        seconds[name] = time.perf_counter() - start
        answers.append(sorted(map(repr, rows)))
    if answers[0] != answers[1]:
        raise RuntimeError(f"the answers differ: {query}")
    return seconds

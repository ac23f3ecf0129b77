"""Counts that Spark takes from the list of files alone are those of the files that our judge of partitions leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from skipstone.query.scans import ScanRequest, plan_scan

from tests.spark.plans_bed import Bed, open_bed

T = "skipstone.ns.counted"
EARLY, LATE = "timestamp'1965-06-01 00:00:00Z'", "timestamp'2010-03-01 00:00:00Z'"
DAY = 86_400_000_000


def sent(kind: str, term: Any, value: Any = None) -> dict[str, Any]:
    """A test as Spark sends it."""
    key = {"value": value} if not isinstance(value, list) else {"values": value}
    return {"type": kind, "term": term, **({} if value is None else key)}


def both(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """A conjunction as Spark sends it."""
    return {"type": "and", "left": left, "right": right}


#: Conditions on partitions, and what Spark sends for them. Each selects whole partitions of all specs.
CASES = {
    "g = 3": sent("eq", "g", 3),
    "g <> 3": both(sent("not-null", "g"), sent("not-eq", "g", 3)),
    "g in (1, 2, 9)": sent("in", "g", [1, 2, 9]),
    "g not in (1, 2)": both(sent("not-null", "g"), sent("not-in", "g", [1, 2])),
    "g is null": sent("is-null", "g"),
    "g is not null": sent("not-null", "g"),
    "g > 2": sent("gt", "g", 2),
    f"g <= 1 and ts >= {LATE}": both(sent("lt-eq", "g", 1), sent("gt-eq", "ts", 14_669 * DAY)),
    f"ts >= {LATE}": sent("gt-eq", "ts", 14_669 * DAY),
    f"ts < {LATE}": sent("lt", "ts", 14_669 * DAY),
    f"ts < {EARLY}": sent("lt", "ts", -1_675 * DAY),
    "g = 3 or ts is null": {"type": "or", "left": sent("eq", "g", 3), "right": sent("is-null", "ts")},
}


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A table with two specs, that both have ``g`` and the day of ``ts``."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    made.spark.sql(f"create table {T} (id int, g int, ts timestamp) using iceberg partitioned by (g, days(ts))")
    hours = "timestamp'1960-01-01 00:00:00Z' + make_interval(0, 0, 0, 0, id * 5000)"
    rows = f"select int(id), int(nullif(id % 6, 5)), if(id % 11 = 0, null, {hours}) from range(100)"
    made.spark.sql(f"insert into {T} {rows}")
    with made.lake.table("counted").update_spec() as update:
        update.add_field("id", "bucket[2]", "b")
    made.spark.sql(f"insert into {T} {rows}")
    yield made
    made.lake.catalog.close()


@pytest.mark.parametrize("condition", CASES)
def test_a_count_needs_no_rows(bed: Bed, condition: str) -> None:
    query = bed.spark.sql(f"select count(*) from {T} where {condition}")
    scan = plan_scan(bed.lake.table("counted"), ScanRequest(filter=CASES[condition], case_sensitive=False))
    counted = int(np.sum(scan.files.files["records"].to_numpy()[scan.ordinals]))
    (expected,) = query.collect()[0]
    is_told = "LocalTableScan" in str(query._jdf.queryExecution().executedPlan().toString())
    assert counted == expected if is_told else counted >= expected, (is_told, counted, expected)
    assert 0 < len(scan.ordinals) < len(scan.files)

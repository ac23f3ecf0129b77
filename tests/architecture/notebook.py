"""A notebook that uses every public call, for mypy: the types of what it gets. `make lint` checks it; nothing runs it.

``read`` gives a table of PyArrow, which has no types of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

import skipstone
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from skipstone.query import ReadOptions, ReadPlan, changes, explain, plan_read, read
from skipstone.query.datasource import SkipstoneDataSource
from skipstone.query.plans.explanation import Explanation, RelationExplanation, RuleReport
from skipstone.query.plans.refusals import Refusal
from skipstone_local.lake import Lake, LakeDelta, LakeFolders, LakeIndex, LakeLoad, LakeMerge, LakeRows, LakeTable

spark = SparkSession.builder.getOrCreate()
skipstone.enable(spark)
skipstone.disable(spark)
arguments = {"carrier": "UA"}
flights = skipstone.sql(spark, "select * from flights where carrier = :carrier", arguments)
assert_type(flights, DataFrame)
assert_type(skipstone.sql(spark, "select * from flights where tailnum = ?", ["N14228"]), DataFrame)
assert_type(skipstone.rewrite(flights), DataFrame)
assert_type(skipstone.no_index(flights), DataFrame)

explanation = skipstone.explain(flights)
assert_type(explanation, Explanation)
assert_type(explanation.relations, tuple[RelationExplanation, ...])
assert_type(explanation.refusal, Refusal | None)
assert_type(explanation.rules, tuple[RuleReport, ...])
for relation in explanation.relations:
    assert_type(relation.plan, ReadPlan | None)
    assert_type(relation.is_rewritten, bool)

spark.dataSource.register(SkipstoneDataSource)

table = load_catalog("lake").load_table("nyc.flights")
options = ReadOptions(snapshot_id=1, use_indexes=False)
assert_type(explain(table, "carrier = 'UA'", options), str)
plan = plan_read(table, "carrier = 'UA'", options, ["origin"])
assert_type(plan, ReadPlan)
assert_type(plan.ordinals, tuple[int, ...])
changes(table, 7, "main", ["flight"], "carrier = 'UA'")
read(table, ["origin"], "carrier = 'UA'", options)

with skipstone.open("lake/", warehouse="lake") as lake:
    assert_type(lake, Lake)
    assert_type(lake.table("sales.orders", {"id": "long"}, primary_key="id", partition_by=["day(at)"]), LakeTable)
    assert_type(lake.load("sales.orders", "landing/*.csv", options={"header": "true"}), LakeLoad)
    assert_type(lake.rows("sales.orders", "price > 10", snapshot_id=5), LakeRows)
    lake.load("sales.copy", lake.rows("sales.orders", ref="audit", from_snapshot_id=7))
    assert_type(lake.delta("exports/orders", "day > date '2026-01-01'", version=3), LakeDelta)
    lake.merge(lake.delta("exports/orders", starting_version=4), into="sales.orders", keys="id")
    assert_type(lake.folders(["exports/daily"], "day > date '2026-01-01'", types={"day": "date"}), LakeFolders)
    lake.load("sales.orders", lake.folders("exports/daily"))
    assert_type(lake.index("sales.orders", "customer", include="price"), LakeIndex)
    feed = [{"id": 1, "op": "D"}]
    deletes = {"when": "source.op = 'D'", "action": "Delete"}
    merged = lake.merge(feed, into="sales.orders", keys=["id"], when_matched=[deletes, "Update"])
    assert_type(merged, LakeMerge)
    lake.merge(feed, into="sales.orders", keys={"id": "id"}, when_not_matched=None, dry_run=True)
    lake.read("sales.orders", "customer = 'x'", columns=["id"])
    lake.changes("sales.orders", "nightly", datetime(2026, 1, 31, tzinfo=UTC), keys=["id"], where="price > 10")
    assert_type(lake.explain("sales.orders", "customer = 'x'"), str)
    assert_type(lake.maintain("sales.orders", "Compaction", policy={"compaction": {}}), str)
    assert_type(lake.tables(), list[LakeTable])
    lake.drop("sales.orders", purge=False)
    lake.index("sales.orders", "customer", kind="Tree")  # type: ignore[arg-type]
try:
    skipstone.open("lake/")
except skipstone.LakeError as error:
    assert_type((error.reason, error.sentence, error.way_out), tuple[str, str, str])

skipstone.no_such_call  # type: ignore[attr-defined]  # noqa: B018 - a wrong name is found by mypy
explain(table, 1)  # type: ignore[arg-type]

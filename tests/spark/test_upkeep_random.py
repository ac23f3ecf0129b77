"""Maintenance of tables with any history: what is retained reads as before, by plain Spark and by PyIceberg.

Nothing else is left, and what the table says of its jobs is what it said before.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.examples import cases
from tests.spark.secondengine import second_spark
from tests.spark.upkeep_bed import Life

#: Commits of all kinds, changes of history, files that are left behind, and maintenance.
COMMITS = ("job", "job", "other", "other", "delete", "mark", "rewrite", "insert", "replace")
CHANGES = ("tag", "branch", "unname", "rollback", "plant", "plant", "change")
UPKEEP = ("expire", "clean", "manifests")
STEPS = st.lists(
    st.tuples(st.sampled_from((*COMMITS, *CHANGES, *UPKEEP)), st.integers(0, 11)), min_size=6, max_size=cases(14, 30)
)
_LIVES = itertools.count()


@settings(
    max_examples=cases(5, 300),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to make a case smaller takes minutes
)
@given(steps=STEPS, partitioned=st.booleans(), version=st.sampled_from((2, 3)))
def test_any_history_keeps_what_is_retained_and_nothing_else(
    steps: list[tuple[str, int]], partitioned: bool, version: int, tmp_path: Path, spark: SparkSession
) -> None:
    root = tmp_path / str(next(_LIVES))
    root.mkdir()
    warehouse = WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL))
    catalog = open_catalog(warehouse)
    catalog.create_namespace("ns")
    session = second_spark(spark, warehouse)
    life = Life(warehouse, catalog, partitioned, version, spark=session)
    life.take(steps)
    life.expire(steps[0][1])
    life.clean()
    life.clean()
    assert life.planted == set()
    life.check_jobs()
    for snapshot in life.table.metadata.snapshots:
        found = session.read.option("versionAsOf", snapshot.snapshot_id).table("skipstone.ns.t").select("id").toArrow()
        assert sorted(found["id"].to_pylist()) == life.rows[snapshot.snapshot_id]
    catalog.close()

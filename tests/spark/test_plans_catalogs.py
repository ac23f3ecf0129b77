"""The plan rewrite in sessions on other catalogs than SQL ones, with Iceberg's extensions and its views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from skipstone.query.plans.refusals import Refusal
from skipstone_core.contract.requests import CatalogRef, CatalogType

from tests.spark.index_bed import Lake
from tests.spark.lineage_bed import LineageLife
from tests.spark.maintain_bed import MaintainBed
from tests.spark.plans_bed import BY_G, BY_K, SEGMENTS, TABLE, Bed
from tests.spark.restserver import rest_catalog

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def session(spark: SparkSession, **settings: str) -> SparkSession:
    """A session with Iceberg's extensions and a catalog ``skipstone``; the driver reads no rows itself."""
    jvm = spark._jvm
    assert jvm is not None
    builder = jvm.SparkSession.builder().withExtensions(getattr(jvm, EXTENSIONS)())
    made = SparkSession(spark.sparkContext, builder.create())
    made.conf.set("spark.sql.catalog.skipstone", "org.apache.iceberg.spark.SparkCatalog")
    made.conf.set("skipstone.driverRows", "0")
    for name, value in settings.items():
        made.conf.set(f"spark.sql.catalog.skipstone.{name}", value)
    return made


@pytest.fixture(scope="module")
def rest(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A table in a REST catalog, with an index on k that misses the last segment, and a full one on g."""
    root = tmp_path_factory.mktemp("lake")
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        lake = Lake(root, kind=CatalogRef(type=CatalogType.REST, uri=address))
        bed = Bed(lake, session(spark, type="rest", uri=address))
        bed.fill()
        bed.reindex(BY_K, max_segments=SEGMENTS - 1)
        bed.reindex(BY_G)
        yield bed
        lake.catalog.close()


def test_a_rest_catalog_gives_the_table_and_its_indexes(rest: Bed) -> None:
    assert rest.query(f"select * from {TABLE} where g = 'g26'").files_read == [2]
    found = rest.query(f"select k, n from {TABLE} where k = 7")
    assert len(found.answer) == 1
    assert found.only.plan is not None
    assert [use.used for use in found.only.plan.indexes] == [False, True]


def test_a_table_in_a_namespace_of_several_levels_is_read_through_its_indexes(rest: Bed) -> None:
    lake = Lake(rest.lake.root, kind=rest.lake.kind, namespace="far.eu.north")
    bed = Bed(lake, rest.spark)
    bed.fill()
    bed.reindex(BY_G)
    assert lake.index_table(BY_G).identifier[:-1] == ("far", "eu", "north")
    assert bed.query("select * from skipstone.far.eu.north.t where g = 'g26'").files_read == [2]
    lake.catalog.close()


def test_a_rest_catalog_keeps_the_lineage_of_rows_through_a_life(
    rest: Bed, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone_core.maintenance.manifests.RADIX", 2)
    bed = MaintainBed(rest.lake.root, namespace="lineage", kind=rest.lake.kind)
    fresh = session(spark, type="rest", uri=str(rest.lake.kind.uri), **{"cache-enabled": "false"})
    life = LineageLife.begun(bed, fresh, Random(4), version=2)
    for step in ("upgrade", "merge", "their_delete", "compact", "their_merge", "load"):
        getattr(life, step)()
    assert life.manifests().counts["manifestsRewritten"] > 1
    life.tag()
    assert life.expire().counts["snapshotsExpired"] > 1
    bed.catalog.close()


def test_a_view_of_the_catalog_reads_through_the_indexes_of_its_tables(rest: Bed) -> None:
    rest.spark.sql(f"create view skipstone.ns.even as select k, g from {TABLE} where n % 2 = 0")
    found = rest.query("select count(*), max(k) from skipstone.ns.even where g = 'g26'")
    assert found.files_read == [2]
    joined = rest.query(f"select v.k, t.n from skipstone.ns.even v join {TABLE} t on v.k = t.k where t.g = 'g26'")
    assert 2 in joined.files_read


def test_a_hadoop_catalog_knows_no_indexes_and_is_read_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    made = session(spark, type="hadoop", warehouse=f"file://{tmp_path}/hadoop")
    bed = Bed(Lake(tmp_path), made)
    made.sql(f"create table {TABLE} (k bigint, g string) using iceberg")
    made.sql(f"insert into {TABLE} select id, concat('g', id % 5) from range(20)")
    found = bed.query(f"select count(*) from {TABLE} where k = 7")
    assert found.refusals == [Refusal.NO_INDEX]
    bed.lake.catalog.close()

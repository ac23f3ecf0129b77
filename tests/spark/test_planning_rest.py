"""Stock Spark and PyIceberg before a planning server of a REST catalog, which forwards what it does not plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import skipstone
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession
from skipstone_core.contract.planning import PlanningMode, PlanningSettings
from skipstone_core.contract.requests import CatalogRef, CatalogType

from tests.spark.index_bed import Lake
from tests.spark.planning_bed import answers, configured, planned_files, planning_server, served_settings
from tests.spark.plans_bed import BY_G, BY_K, SEGMENTS, fill
from tests.spark.restserver import rest_catalog

QUERIES = (
    "select * from {t} where k = 7",
    "select * from {t} where g = 'g26'",
    "select count(*) as n from {t} where k in (7, 8, 9)",
    "select a.k, b.n from {t} a join {t} b on a.k = b.k where a.g = 'g26'",
    "select max(n) as n, min(k) as k, count(*) as c from {t}",
    "select g, count(*) as n from {t} where n < 20 group by g",
)


@dataclass
class Bed:
    """The lake, the server before its catalog, and a session that knows both addresses."""

    lake: Lake
    address: str
    session: SparkSession


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A table with two indexes in a REST catalog whose clients let the server plan unless they say otherwise."""
    folder = tmp_path_factory.mktemp("rest")
    with rest_catalog(folder) as upstream:
        lake = Lake(tmp_path_factory.mktemp("lake"), kind=CatalogRef(type=CatalogType.REST, uri=upstream))
        fill(lake)
        for index in (BY_K, BY_G):
            lake.reindex(index)
        settings = PlanningSettings(warehouse=lake.warehouse, mode=PlanningMode.DEFAULT, allow_plaintext_tokens=True)
        with planning_server(settings, folder) as address:
            yield Bed(lake, address, configured(spark.newSession(), _settings(address, upstream)))
        lake.catalog.close()


def _settings(address: str, upstream: str) -> dict[str, str]:
    """``served``: by the server's mode alone. ``own``: the catalog itself."""
    served = served_settings(address)
    del served["spark.sql.catalog.served.scan-planning-mode"]
    return {**served, **{name.replace("served", "own"): value for name, value in served_settings(upstream).items()}} | {
        "spark.sql.catalog.own.scan-planning-mode": "client"
    }


def test_spark_reads_the_few_files_that_indexes_leave(bed: Bed) -> None:
    before = planned_files(bed.address)
    found = answers(bed.session, QUERIES, {"t": "served.ns.t"})
    assert found == answers(bed.session, QUERIES, {"t": "own.ns.t"})
    assert not any("Exception" in row for rows in found.values() for row in rows)
    total, left = (after - earlier for after, earlier in zip(planned_files(bed.address), before, strict=True))
    assert left < total


def test_pyiceberg_learns_from_the_server_that_it_plans(bed: Bed) -> None:
    table = RestCatalog("served", uri=bed.address).load_table("ns.t")
    assert len(list(table.scan("g = 'g26'").plan_files())) < len(list(bed.lake.table().scan("g = 'g26'").plan_files()))
    assert table.scan("g = 'g26'").count() == bed.lake.table().scan("g = 'g26'").count()


def test_enabled_sessions_use_indexes_and_the_server(bed: Bed) -> None:
    query = "select t.k, t.n from served.ns.t t join served.ns.t s on t.k = s.n where s.g = 'g26'"
    expected = sorted(map(repr, bed.session.sql(query).collect()))
    df = skipstone.sql(bed.session, query)
    assert sorted(map(repr, df.collect())) == expected
    explanation = skipstone.explain(df)
    assert explanation.is_rewritten, str(explanation)
    plans = [one.plan for one in explanation.relations if one.plan is not None]
    assert all(plan.funnel.read < SEGMENTS for plan in plans[:1])


def test_what_changes_tables_is_refused_and_goes_to_the_catalog_itself(bed: Bed) -> None:
    for statement in ("insert into {} values (1, 'x', 1)", "delete from {} where k = 7", "drop table {}"):
        with pytest.raises(Exception, match=r"(?i)does not support"):
            bed.session.sql(statement.format("served.ns.t"))
    bed.session.sql("create table own.ns.copy using iceberg as select * from served.ns.t where k < 9")
    assert bed.session.table("own.ns.copy").count() == bed.session.table("served.ns.copy").count() > 0

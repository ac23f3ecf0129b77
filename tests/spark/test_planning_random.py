"""Random filters on random tables through a server that plans, against unfiltered scans and PyIceberg's own planning.

`make soak-planning` takes thousands. SKIPSTONE_SOAK_CASES tables and SKIPSTONE_SOAK_SEED choose others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession
from skipstone_core.contract.planning import PlanningSettings

from tests.examples import cases
from tests.spark.index_bed import Lake
from tests.spark.planning_arrow import Scan, compared
from tests.spark.planning_bed import TOKEN, answers, configured, planning_server, served_settings
from tests.spark.planning_random import RandomTable, random_filter
from tests.spark.secondengine import second_spark

TABLES = int(os.environ.get("SKIPSTONE_SOAK_CASES", cases(1, 60)))
SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "1"))
FILTERS = 34


@dataclass
class Bed:
    """A lake, the session that knows it by both catalogs, and the server's address."""

    lake: Lake
    session: SparkSession
    served: Catalog


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """An empty lake and a server before it."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    with planning_server(PlanningSettings(warehouse=lake.warehouse), tmp_path_factory.mktemp("server")) as address:
        session = configured(second_spark(spark, lake.warehouse), served_settings(address))
        served = RestCatalog("served", uri=address, token=TOKEN, **{"scan-planning-mode": "server"})
        yield Bed(lake, session, served)
    lake.catalog.close()


def failed(rows: list[str]) -> bool:
    """Whether a query had no answer."""
    return len(rows) == 1 and "NullPointerException" in rows[0]


@pytest.mark.parametrize("number", range(TABLES))
def test_random_filters_find_the_rows_of_an_unfiltered_scan(bed: Bed, number: int) -> None:
    chance = Random(f"{SEED} {number}")
    table = RandomTable(bed.lake, bed.session, f"t{number}", chance)
    bed.session.table(table.place).localCheckpoint().createOrReplaceTempView("unfiltered")
    filters = [random_filter(chance, table.columns) for _ in range(FILTERS)]
    forms = ("select * from {{t}} where {}", "select * from {{t}} where {}", "select count(*) as n from {{t}} where {}")
    queries = [chance.choice(forms).format(one.sql) for one in filters]
    expected = answers(bed.session, queries, {"t": "unfiltered"})
    found = answers(bed.session, queries, {"t": f"served.ns.t{number}"})
    wrong = {
        text: f"{text}: served {found[text]}, not {rows}" for text, rows in expected.items() if rows != found[text]
    }
    failing = answers(bed.session, list(wrong), {"t": table.place})
    # Spark dies of some tests on null partitions, whoever plans
    wrong = {text: what for text, what in wrong.items() if not (failed(failing[text]) and failed(found[text]))}
    assert list(wrong.values()) == [], (SEED, number, table.told)
    scans = tuple(Scan(f"t{number}", one.arrow) for one in filters if one.arrow is not None)
    assert list(compared(bed.served, bed.lake.catalog, scans, {})) == [], (SEED, number, table.told)
